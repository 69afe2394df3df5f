//! A sheet of images, to look at.

use super::Images;
use gpulab::plot::Figure;
use gpulab::plot::canvas::{Align, MARGIN, WIDTH, figure};
use gpulab::plot::canvas::INK;

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
    fn a_sheet_shows_labels_and_ink() {
        assert_eq!(runs(&[0, 255, 250, 0, 128, 10]), [(1, 3, 4), (4, 5, 2)]);
        let images = Images::generated(1, 30, 1);
        let svg = images.sheet(2).svg();
        assert!(svg.contains("the first 24 of 30 images") && svg.matches("<polygon").count() > 500, "{}", svg.len());
        assert!(svg.len() < 600_000, "{}", svg.len());
    }
}
