//! IDX, the form of MNIST's files: a magic number that names the kind, the sizes, then bytes. All numbers are big-endian.

/// The content of an IDX file of bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Idx {
    /// Images, rows, pixels of a row; labels have one size.
    pub sizes: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// Reads a file of bytes with so many sizes: 3 for images, 1 for labels.
///
/// # Errors
/// A text that says what is wrong.
pub(super) fn parse(file: &[u8], dimensions: usize) -> Result<Idx, String> {
    let word = |at: usize| file.get(at * 4..)?.first_chunk::<4>().map(|word| u32::from_be_bytes(*word));
    let magic = word(0).ok_or("it is cut short: it has not even a magic number")?;
    let expected = 0x800 + dimensions as u32;
    if magic != expected {
        return Err(format!("it begins with the magic number {magic:#x}, and {expected:#x} is that of such a file"));
    }
    let sizes: Option<Vec<usize>> = (1..=dimensions).map(|at| word(at).map(|size| size as usize)).collect();
    let sizes = sizes.ok_or("it is cut short within its sizes")?;
    let needed = sizes.iter().try_fold(1usize, |all, &size| all.checked_mul(size));
    let bytes = &file[4 * (dimensions + 1)..];
    match needed {
        Some(needed) if bytes.len() == needed => Ok(Idx { sizes, bytes: bytes.to_vec() }),
        Some(needed) if bytes.len() < needed => {
            Err(format!("it is cut short: it announces {needed} bytes for {sizes:?}, and {} are there", bytes.len()))
        }
        _ => Err(format!("it announces {sizes:?}, and {} bytes are there", bytes.len())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_labels_are_read() {
        let labels = [&[0, 0, 8, 1, 0, 0, 0, 3][..], &[7, 2, 1]].concat();
        assert_eq!(parse(&labels, 1), Ok(Idx { sizes: vec![3], bytes: vec![7, 2, 1] }));
        let images = [&[0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2][..], &[1, 2, 3, 4]].concat();
        assert_eq!(parse(&images, 3), Ok(Idx { sizes: vec![2, 1, 2], bytes: vec![1, 2, 3, 4] }));
    }

    #[test]
    fn each_damage_is_named() {
        let good = [&[0, 0, 8, 1, 0, 0, 0, 3][..], &[7, 2, 1]].concat();
        assert!(parse(&good, 3).unwrap_err().contains("magic number 0x801, and 0x803"));
        assert!(parse(&good[..3], 1).unwrap_err().contains("not even a magic number"));
        assert!(parse(&good[..6], 1).unwrap_err().contains("within its sizes"));
        assert!(parse(&good[..9], 1).unwrap_err().contains("announces 3 bytes for [3], and 1 are there"));
        assert!(parse(&[&good[..], b"x"].concat(), 1).unwrap_err().contains("and 4 bytes are there"));
        let huge = [0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255];
        assert!(parse(&huge, 3).is_err());
    }
}
