//! Images with what each of them shows, and a sheet of them to look at.

use gpulab::error::{Error, Result};
use gpulab::plot::Figure;
use gpulab::plot::canvas::INK;
use gpulab::plot::canvas::{Align, MARGIN, WIDTH, figure};

/// Images of one size, to train and to test on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Images {
    /// `MNIST`, or `generated digits, seed 7`.
    pub name: String,
    /// Pixels of a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// What a network is trained on.
    pub train: ImageSet,
    /// What it is judged by, and never sees before.
    pub test: ImageSet,
}

/// Images and what each of them shows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageSet {
    /// One byte a pixel, 0 is paper and 255 is ink, image after image and row after row.
    pub pixels: Vec<u8>,
    /// The digit, 0 to 9, of each image.
    pub labels: Vec<u8>,
}

impl ImageSet {
    /// How many images there are.
    pub fn len(&self) -> usize {
        self.labels.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty()
    }

    /// The pixels of one image of `size` pixels.
    pub(crate) fn image(&self, at: usize, size: usize) -> &[u8] {
        &self.pixels[at * size..][..size]
    }

    fn first(&self, count: usize, size: usize) -> ImageSet {
        let count = count.min(self.len());
        ImageSet { pixels: self.pixels[..count * size].to_vec(), labels: self.labels[..count].to_vec() }
    }
}

impl Images {
    /// The first images of each part; all where there are fewer.
    pub fn first(&self, train: usize, test: usize) -> Images {
        let size = self.width * self.height;
        Images { train: self.train.first(train, size), test: self.test.first(test, size), ..self.clone() }
    }

    /// Whether pixels, labels and sizes fit together, and there is something to train on and to test.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] names the part that does not fit.
    pub fn check(&self) -> Result<()> {
        for (part, set) in [("train", &self.train), ("test", &self.test)] {
            let unfit = |what: String| {
                Error::invalid(
                    format!("the images to {part} of {} {what}", self.name),
                    "fill it as `gpulab::data::images(None)?` does, and compare",
                )
            };
            if set.is_empty() {
                return Err(unfit("are none".to_string()));
            }
            if set.pixels.len() != set.len() * self.width * self.height {
                let (labels, pixels) = (set.len(), set.pixels.len());
                return Err(unfit(format!("have {labels} labels, and {pixels} pixels, which are not as many images")));
            }
            if let Some(label) = set.labels.iter().find(|&&label| label > 9) {
                return Err(unfit(format!("have the label {label}, which is no digit")));
            }
        }
        Ok(())
    }
}

// ----------------------------------------------------------------------
// A sheet of images, to look at.

const COLUMNS: usize = 12;
/// Shades of ink; more of them make the figure larger and not clearer.
const SHADES: usize = 4;

impl Images {
    /// The first `rows` × 12 images to train on, each with its label.
    pub fn sheet(&self, rows: usize) -> Figure {
        let count = (rows * COLUMNS).min(self.train.len());
        let title = format!("{}: the first {count} of {} images", self.name, self.train.len());
        let cell = (WIDTH - 2.0 * MARGIN) / COLUMNS as f64;
        let pixel = (cell - 16.0) / self.width.max(1) as f64;
        figure(&title, |canvas| {
            let top = canvas.title(&title) + 6.0;
            for at in 0..count {
                let (x, y) = (MARGIN + (at % COLUMNS) as f64 * cell, top + (at / COLUMNS) as f64 * (cell + 8.0));
                let image = self.train.image(at, self.width * self.height);
                for (row, pixels) in image.chunks(self.width).enumerate() {
                    for (start, end, shade) in runs(pixels) {
                        let (left, up) = (x + start as f64 * pixel, y + row as f64 * pixel);
                        let right = x + end as f64 * pixel;
                        canvas.rect((left, up), (right, up + pixel), INK, shade as f64 / SHADES as f64);
                    }
                }
                canvas.small(&self.train.labels[at].to_string(), (x + cell - 16.0, y + cell - 8.0), Align::Left);
            }
            top + count.div_ceil(COLUMNS) as f64 * (cell + 8.0) + MARGIN
        })
    }
}

/// Neighbours of one shade as (first, end, shade), the paper left out.
fn runs(pixels: &[u8]) -> Vec<(usize, usize, usize)> {
    let shade = |pixel: u8| (usize::from(pixel) * SHADES + 127) / 255;
    let mut runs: Vec<(usize, usize, usize)> = Vec::new();
    for (at, &pixel) in pixels.iter().enumerate() {
        match runs.last_mut() {
            Some(last) if last.1 == at && last.2 == shade(pixel) => last.1 = at + 1,
            _ if shade(pixel) > 0 => runs.push((at, at + 1, shade(pixel))),
            _ => (),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_set_is_the_beginning_of_a_large_one() {
        let (small, large) = (Images::generated(3, 20, 10), Images::generated(3, 50, 20));
        assert_eq!(large.first(20, 10), small);
        assert_ne!(small.train.pixels, Images::generated(4, 20, 10).train.pixels);
        assert_ne!(small.train.first(10, 784).pixels, small.test.pixels, "nothing is tested on what was trained on");
        assert_eq!((small.train.len(), small.first(99, 1).train.len()), (20, 20));
        small.check().unwrap();
    }

    #[test]
    fn what_does_not_fit_together_is_named() {
        let good = Images::generated(3, 4, 2);
        let with = |change: fn(&mut Images)| {
            let mut images = good.clone();
            change(&mut images);
            let text = images.check().unwrap_err().to_string();
            assert!(text.contains("\nnext: "));
            text
        };
        assert!(with(|i| i.train.labels[0] = 10).contains("train of generated digits, seed 3 have the label 10"));
        assert!(with(|i| i.test = ImageSet::default()).contains("to test of generated digits, seed 3 are none"));
        assert!(with(|i| i.width = 27).contains("4 labels, and 3136 pixels"));
    }

    #[test]
    fn a_sheet_shows_labels_and_ink() {
        assert_eq!(runs(&[0, 255, 250, 0, 128, 10]), [(1, 3, 4), (4, 5, 2)]);
        let images = Images::generated(1, 30, 1);
        let svg = images.sheet(2).svg();
        assert!(svg.contains("the first 24 of 30 images") && svg.matches("<polygon").count() > 500, "{}", svg.len());
        assert!(svg.len() < 600_000, "{}", svg.len());
    }
}
