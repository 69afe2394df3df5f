//! Memory in large pages, where the system gives them on request.

/// An empty vector with room for `n` numbers, in 2 MiB pages where Linux has them and the vector is large.
///
/// Most Linux systems give large pages only to programs that ask. Without them a CPU that reads a long array spends
/// a sixth of its bandwidth on looking up 4 KiB pages; NumPy asks too, so its arrays would be read faster than ours.
pub(super) fn reserve(n: usize) -> Vec<f32> {
    let mut numbers: Vec<f32> = Vec::with_capacity(n);
    ask_for_large_pages(&mut numbers);
    numbers
}

#[cfg(target_os = "linux")]
fn ask_for_large_pages(numbers: &mut Vec<f32>) {
    /// The base page of some ARM servers; a multiple of every smaller one.
    const PAGE: usize = 64 << 10;
    /// Below this, the first touch of large pages costs more than they save.
    const WORTHWHILE: usize = 4 << 20;
    let bytes = numbers.capacity() * size_of::<f32>();
    if bytes < WORTHWHILE {
        return;
    }
    let start = numbers.as_mut_ptr().cast::<u8>();
    let to_page = start.align_offset(PAGE);
    let length = (bytes - to_page) / PAGE * PAGE;
    // SAFETY: the range lies inside the vector's own allocation and starts on a page. The advice changes no content,
    // and a kernel that does not know it answers with an error, which changes nothing.
    unsafe { libc::madvise(start.add(to_page).cast(), length, libc::MADV_HUGEPAGE) };
}

#[cfg(not(target_os = "linux"))]
fn ask_for_large_pages(_: &mut Vec<f32>) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_is_as_asked_and_writable() {
        for n in [0, 1, 1000, 1 << 20, (8 << 20) + 13] {
            let mut numbers = reserve(n);
            assert!(numbers.is_empty() && numbers.capacity() >= n);
            numbers.resize(n, 1.0);
            assert_eq!(numbers.iter().map(|&v| f64::from(v)).sum::<f64>(), n as f64);
        }
    }
}
