//! Images to train on: MNIST from its own files, or generated digits where they are not there.
//!
//! Every result shows [`Images::name`], which says which of the two it was.

mod baselines;
mod digits;
mod fetch;
mod images;
mod mnist;

pub use baselines::{linear_accuracy, nearest_mean_accuracy};
pub(crate) use fetch::curl;
pub use fetch::{fetch_mnist, mnist_sources};
pub use images::{ImageSet, Images};
pub use mnist::MnistFile;

use gpulab::error::Result;
use std::path::Path;

/// The seed of the digits that stand in for MNIST.
pub const SEED: u64 = 7;

/// The real images of that folder; without one those in `data/mnist/` of this repository, and where there are none,
/// 60,000 generated digits to train on and 10,000 to test.
///
/// # Errors
/// [`gpulab::Error::File`] when a folder is named and lacks one of MNIST's four files, or when one is damaged: the message says which
/// and how.
pub fn images(folder: Option<&Path>) -> Result<Images> {
    first_images(folder, 60_000, 10_000)
}

/// The first images of [`images`], so many to train on and to test: no others are generated.
///
/// # Errors
/// As [`images`].
pub fn first_images(folder: Option<&Path>, train: usize, test: usize) -> Result<Images> {
    let usual = mnist::usual_folder();
    let real = match folder {
        Some(folder) => Images::mnist(folder)?,
        None if MnistFile::ALL[0].find(&usual).is_some() => Images::mnist(&usual)?,
        None => return Ok(Images::generated(SEED, train, test)),
    };
    Ok(real.first(train, test))
}
