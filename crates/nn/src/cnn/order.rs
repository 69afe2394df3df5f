//! In which order an epoch goes through the images.

use gpulab::cpu::random::mix;

/// The images of that epoch in the order in which they are trained on: a permutation of `0..images`, the same one for
/// the same seed and epoch on every machine, so that a resumed run goes on where it stopped.
pub fn order(seed: u64, epoch: u64, images: usize) -> Vec<u32> {
    let mut state = mix(seed ^ mix(epoch.wrapping_add(1)));
    let mut order: Vec<u32> = (0..images as u32).collect();
    // Fisher and Yates, from the back. The high half of a product is even enough: off by less than 2⁻³⁰ for 60,000.
    for last in (1..images).rev() {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let other = ((u128::from(mix(state)) * (last as u128 + 1)) >> 64) as usize;
        order.swap(last, other);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_sees_every_image_once_in_an_order_of_its_own() {
        let (first, second) = (order(7, 0, 1000), order(7, 1, 1000));
        assert_eq!(first, order(7, 0, 1000));
        assert_ne!(first, second);
        assert_ne!(first, order(8, 0, 1000));
        let mut sorted = second.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..1000));
        // An unshuffled stretch would stay near its place: the mean distance of a fair shuffle is a third of all.
        let distance: usize = first.iter().enumerate().map(|(at, &image)| at.abs_diff(image as usize)).sum();
        assert!((280_000..390_000).contains(&distance), "{distance}");
        assert!(order(1, 0, 0).is_empty() && order(1, 0, 1) == [0]);
    }
}
