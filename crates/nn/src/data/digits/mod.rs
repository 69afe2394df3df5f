//! Digits as a hand would write them, for where MNIST's files are not: each drawn from strokes that vary.

mod chance;
mod draw;
mod strokes;

use super::Set;
use chance::Chance;
use rayon::prelude::*;

/// Pixels of a row, and rows.
pub(super) const SIDE: usize = 28;

/// `count` digits; each follows from the seed and its own number alone.
pub(super) fn set(seed: u64, count: usize) -> Set {
    let mut pixels = vec![0; count * SIDE * SIDE];
    let mut labels = vec![0; count];
    pixels.par_chunks_mut(SIDE * SIDE).zip(&mut labels).enumerate().for_each(|(at, (image, label))| {
        let mut chance = Chance::new(seed, at as u64);
        *label = chance.below(10) as u8;
        draw::digit(*label, &mut chance, image);
    });
    Set { pixels, labels }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_comes_about_as_often_and_has_ink_inside() {
        let set = set(5, 2000);
        for digit in 0..10 {
            let count = set.labels.iter().filter(|&&label| label == digit).count();
            // 200 each; the standard deviation is 13.
            assert!((140..260).contains(&count), "{digit}: {count}");
        }
        for at in 0..set.len() {
            let image = set.image(at, SIDE * SIDE);
            let ink = image.iter().filter(|&&pixel| pixel > 127).count();
            assert!((12..350).contains(&ink), "image {at} of {}: {ink} dark pixels", set.labels[at]);
        }
    }
}
