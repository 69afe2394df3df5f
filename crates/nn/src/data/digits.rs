//! Digits as a hand would write them, for where MNIST's files are not: each drawn from strokes that vary.

use super::{ImageSet, Images};
use gpulab::cpu::random::mix;
use rayon::prelude::*;

/// Pixels of a row, and rows.
const SIDE: usize = 28;

impl Images {
    /// Digits as a hand would write them, 28 × 28 pixels: strokes that differ in shape, slant, size, place and
    /// thickness, with noise. The same seed gives the same images on every machine, and the first ones of a larger set are
    /// those of a smaller.
    pub fn generated(seed: u64, train: usize, test: usize) -> Images {
        let set = |which: u64, count: usize| set_of(seed.wrapping_mul(2).wrapping_add(which), count);
        Images {
            name: format!("generated digits, seed {seed}"),
            width: SIDE,
            height: SIDE,
            train: set(0, train),
            test: set(1, test),
        }
    }
}

/// `count` digits; each follows from the seed and its own number alone.
fn set_of(seed: u64, count: usize) -> ImageSet {
    let mut pixels = vec![0; count * SIDE * SIDE];
    let mut labels = vec![0; count];
    pixels.par_chunks_mut(SIDE * SIDE).zip(&mut labels).enumerate().for_each(|(at, (image, label))| {
        let mut rng = Rng::new(seed, at as u64);
        *label = rng.below(10) as u8;
        digit(*label, &mut rng, image);
    });
    ImageSet { pixels, labels }
}

// ----------------------------------------------------------------------
// One digit: its strokes bent, slanted, placed, drawn with a pen, and made noisy.

type Point = (f32, f32);

/// Pieces of line between two points of a stroke.
const PIECES: usize = 6;

/// Draws a digit into an image of zeros.
fn digit(digit: u8, rng: &mut Rng, image: &mut [u8]) {
    let glyphs = glyphs(digit);
    let strokes = glyphs[rng.below(glyphs.len() as u64) as usize];
    let hand = Hand::new(rng);
    let mut ink = [0f32; SIDE * SIDE];
    for stroke in strokes {
        let points: Vec<Point> =
            stroke.iter().map(|&(x, y)| (x + rng.around(hand.shake), y + rng.around(hand.shake))).collect();
        let line: Vec<Point> = smooth(&points).into_iter().map(|point| hand.transform(point)).collect();
        for pair in line.windows(2) {
            press(&mut ink, pair[0], pair[1], hand.radius);
        }
    }
    for (pixel, ink) in image.iter_mut().zip(ink) {
        let value = ink * hand.dark + rng.around(hand.noise);
        *pixel = (value.clamp(0.0, 1.0) * 255.0) as u8;
    }
}

/// How one digit is written.
struct Hand {
    /// How far points stray, in parts of the digit's height.
    shake: f32,
    /// From the box of the strokes to pixels: two rows of a matrix.
    x: Point,
    y: Point,
    middle: Point,
    /// Waves that bend the page: height in pixels, and phase, along each side.
    waves: [(f32, f32); 2],
    /// Half the pen's width, in pixels.
    radius: f32,
    dark: f32,
    noise: f32,
}

impl Hand {
    fn new(rng: &mut Rng) -> Hand {
        let high = rng.between(15.5, 22.0);
        let wide = high * rng.between(0.55, 0.95);
        let (slant, turn) = (rng.around(0.2), rng.around(0.11));
        // Sine and cosine differ in their last bit between systems; for a small angle these are as good.
        let (sin, cos) = (turn - turn * turn * turn / 6.0, 1.0 - turn * turn / 2.0);
        Hand {
            shake: rng.between(0.015, 0.05),
            x: (wide * cos, -high * (slant * cos + sin)),
            y: (wide * sin, high * (cos - slant * sin)),
            middle: (14.0 + rng.around(1.3), 14.0 + rng.around(1.3)),
            waves: [(rng.around(0.8), rng.between(0.0, 4.0)), (rng.around(0.8), rng.between(0.0, 4.0))],
            radius: rng.between(0.7, 1.7),
            dark: rng.between(0.65, 1.1),
            noise: rng.between(0.0, 0.1),
        }
    }

    fn transform(&self, (x, y): Point) -> Point {
        let (x, y) = (x - 0.5, y - 0.5);
        let dot = |row: Point| row.0 * x + row.1 * y;
        let (x, y) = (dot(self.x) + self.middle.0, dot(self.y) + self.middle.1);
        let [(dx, px), (dy, py)] = self.waves;
        (x + dx * wave(y / 7.0 + px), y + dy * wave(x / 7.0 + py))
    }
}

/// A wave of length 4 and height 1, made of parabolas: the same bits on every system, as a sine is not.
fn wave(x: f32) -> f32 {
    let at = x - (x / 4.0).floor() * 4.0;
    if at < 2.0 { at * (2.0 - at) } else { (at - 2.0) * (at - 4.0) }
}

/// A curve through all points (Catmull and Rom's), as short lines.
fn smooth(points: &[Point]) -> Vec<Point> {
    let at = |index: isize| points[index.clamp(0, points.len() as isize - 1) as usize];
    let mut line = vec![points[0]];
    for start in 0..points.len() as isize - 1 {
        let [a, b, c, d] = [at(start - 1), at(start), at(start + 1), at(start + 2)];
        for piece in 1..=PIECES {
            let t = piece as f32 / PIECES as f32;
            let one = |a: f32, b: f32, c: f32, d: f32| {
                b + 0.5 * t * (c - a + t * (2.0 * a - 5.0 * b + 4.0 * c - d + t * (3.0 * (b - c) + d - a)))
            };
            line.push((one(a.0, b.0, c.0, d.0), one(a.1, b.1, c.1, d.1)));
        }
    }
    line
}

/// Darkens the pixels near a short line; the pen's edge is one pixel soft.
fn press(ink: &mut [f32; SIDE * SIDE], from: Point, to: Point, radius: f32) {
    let reach = radius + 0.5;
    let range = |a: f32, b: f32| {
        let (low, high) = (a.min(b) - reach, a.max(b) + reach);
        (low.ceil().max(0.0) as usize)..(high.floor().clamp(-1.0, SIDE as f32 - 1.0) + 1.0) as usize
    };
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let square = (dx * dx + dy * dy).max(1e-12);
    for y in range(from.1, to.1) {
        for x in range(from.0, to.0) {
            let (px, py) = (x as f32 - from.0, y as f32 - from.1);
            let along = ((px * dx + py * dy) / square).clamp(0.0, 1.0);
            let (ax, ay) = (px - along * dx, py - along * dy);
            // √ is exact by IEEE 754, and so the same everywhere.
            let pressed = (reach - (ax * ax + ay * ay).sqrt()).clamp(0.0, 1.0);
            let pixel = &mut ink[y * SIDE + x];
            *pixel = pixel.max(pressed);
        }
    }
}

// ----------------------------------------------------------------------
// The random numbers of one image.

/// SplitMix64 (see [`gpulab::cpu::random_f32`]), begun anew for each image.
struct Rng(u64);

impl Rng {
    fn new(seed: u64, image: u64) -> Rng {
        Rng(mix(mix(seed.wrapping_add(0x1234_5678_9ABC_DEF1)) ^ image.wrapping_mul(0xD134_2543_DE82_EF95)))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// A whole number from 0 to `end` - 1.
    fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// Even between the two.
    fn between(&mut self, low: f32, high: f32) -> f32 {
        low + (high - low) * ((self.next() >> 40) as f32 / (1u32 << 24) as f32)
    }

    /// About a normal distribution around 0 with this standard deviation: the sum of four even numbers, which needs no
    /// logarithm, and is the same on every machine.
    fn around(&mut self, deviation: f32) -> f32 {
        let sum: f32 = (0..4).map(|_| self.between(-1.0, 1.0)).sum();
        sum * deviation * 0.866_025_4
    }
}

// ----------------------------------------------------------------------
// How digits are written: points that the pen passes, in a box of 1 × 1, y downwards.
//
// A stroke's points lie on a smooth curve; a corner is where one stroke ends and the next begins.

type Stroke = &'static [(f32, f32)];

/// The strokes of each way to write a digit.
// A table of points: a line for each way to write a digit.
#[rustfmt::skip]
fn glyphs(digit: u8) -> &'static [&'static [Stroke]] {
    match digit {
        0 => &[
            &[&[(0.5, 0.0), (0.18, 0.2), (0.1, 0.52), (0.2, 0.84), (0.5, 1.0), (0.82, 0.84), (0.9, 0.5), (0.8, 0.16), (0.48, 0.01)]],
            &[&[(0.62, 0.04), (0.3, 0.08), (0.1, 0.5), (0.25, 0.92), (0.6, 0.98), (0.88, 0.6), (0.78, 0.15), (0.5, 0.02)]],
        ],
        1 => &[
            &[&[(0.5, 0.0), (0.5, 0.5), (0.5, 1.0)]],
            &[&[(0.28, 0.24), (0.42, 0.12), (0.54, 0.0)], &[(0.54, 0.0), (0.53, 0.5), (0.52, 1.0)]],
            &[&[(0.3, 0.22), (0.52, 0.0)], &[(0.52, 0.0), (0.52, 0.5), (0.52, 1.0)], &[(0.25, 1.0), (0.52, 1.0), (0.78, 0.99)]],
        ],
        2 => &[
            &[&[(0.12, 0.24), (0.3, 0.03), (0.66, 0.02), (0.84, 0.24), (0.7, 0.52), (0.36, 0.82), (0.1, 1.0)], &[(0.1, 1.0), (0.5, 0.97), (0.92, 1.0)]],
            &[&[(0.14, 0.2), (0.4, 0.0), (0.78, 0.14), (0.72, 0.5), (0.36, 0.88), (0.12, 0.94), (0.2, 0.76), (0.5, 0.9), (0.92, 0.96)]],
        ],
        3 => &[
            &[&[(0.14, 0.12), (0.42, 0.0), (0.76, 0.1), (0.74, 0.36), (0.4, 0.48)], &[(0.4, 0.48), (0.8, 0.58), (0.86, 0.84), (0.5, 1.0), (0.1, 0.9)]],
            &[&[(0.14, 0.04), (0.5, 0.03), (0.82, 0.02)], &[(0.82, 0.02), (0.6, 0.24), (0.42, 0.42)], &[(0.42, 0.42), (0.8, 0.52), (0.86, 0.8), (0.52, 1.0), (0.12, 0.9)]],
        ],
        4 => &[
            &[&[(0.26, 0.02), (0.14, 0.34), (0.12, 0.56), (0.5, 0.58), (0.92, 0.54)], &[(0.74, 0.1), (0.7, 0.56), (0.66, 1.0)]],
            &[&[(0.68, 0.0), (0.38, 0.34), (0.1, 0.66)], &[(0.1, 0.66), (0.5, 0.67), (0.94, 0.64)], &[(0.68, 0.0), (0.68, 0.5), (0.66, 1.0)]],
        ],
        5 => &[
            &[&[(0.84, 0.02), (0.5, 0.03), (0.24, 0.02)], &[(0.24, 0.02), (0.2, 0.22), (0.18, 0.42)], &[(0.18, 0.42), (0.52, 0.34), (0.84, 0.54), (0.8, 0.86), (0.45, 1.0), (0.1, 0.9)]],
            &[&[(0.3, 0.06), (0.22, 0.4), (0.56, 0.4), (0.84, 0.66), (0.62, 0.94), (0.14, 0.96)], &[(0.3, 0.06), (0.6, 0.05), (0.88, 0.03)]],
        ],
        6 => &[
            &[&[(0.72, 0.0), (0.38, 0.22), (0.16, 0.56), (0.22, 0.88), (0.52, 1.0), (0.82, 0.84), (0.76, 0.6), (0.48, 0.52), (0.2, 0.7)]],
            &[&[(0.46, 0.0), (0.24, 0.36), (0.14, 0.74), (0.4, 1.0), (0.74, 0.9), (0.72, 0.62), (0.42, 0.56), (0.18, 0.74)]],
        ],
        7 => &[
            &[&[(0.1, 0.06), (0.5, 0.03), (0.88, 0.05)], &[(0.88, 0.05), (0.62, 0.46), (0.42, 1.0)]],
            &[&[(0.1, 0.06), (0.5, 0.03), (0.88, 0.05)], &[(0.88, 0.05), (0.62, 0.5), (0.46, 1.0)], &[(0.3, 0.54), (0.56, 0.51), (0.84, 0.5)]],
            &[&[(0.1, 0.2), (0.14, 0.06), (0.5, 0.05), (0.84, 0.04)], &[(0.84, 0.04), (0.7, 0.4), (0.58, 1.0)]],
        ],
        8 => &[
            &[&[(0.76, 0.14), (0.48, 0.0), (0.2, 0.16), (0.34, 0.4), (0.7, 0.6), (0.8, 0.84), (0.5, 1.0), (0.18, 0.84), (0.32, 0.58), (0.68, 0.38), (0.78, 0.18), (0.7, 0.08)]],
            &[&[(0.5, 0.0), (0.24, 0.12), (0.28, 0.38), (0.5, 0.46), (0.74, 0.34), (0.74, 0.1), (0.5, 0.0)], &[(0.5, 0.46), (0.18, 0.62), (0.2, 0.9), (0.5, 1.0), (0.82, 0.88), (0.82, 0.6), (0.5, 0.46)]],
        ],
        _ => &[
            &[&[(0.8, 0.2), (0.54, 0.02), (0.2, 0.16), (0.22, 0.44), (0.52, 0.5), (0.78, 0.34), (0.82, 0.16)], &[(0.82, 0.16), (0.78, 0.6), (0.7, 1.0)]],
            &[&[(0.8, 0.12), (0.48, 0.02), (0.18, 0.22), (0.34, 0.48), (0.66, 0.42), (0.82, 0.14), (0.84, 0.52), (0.68, 0.9), (0.24, 0.96)]],
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_digit_comes_about_as_often_and_has_ink_inside() {
        let set = set_of(5, 2000);
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
