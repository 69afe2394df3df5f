//! One digit: its strokes bent, slanted, placed, drawn with a pen, and made noisy.

use super::SIDE;
use super::chance::Chance;
use super::strokes::ways;

type Point = (f32, f32);

/// Pieces of line between two points of a stroke.
const PIECES: usize = 6;

/// Draws a digit into an image of zeros.
pub(super) fn digit(digit: u8, chance: &mut Chance, image: &mut [u8]) {
    let ways = ways(digit);
    let strokes = ways[chance.below(ways.len() as u64) as usize];
    let hand = Hand::new(chance);
    let mut ink = [0f32; SIDE * SIDE];
    for stroke in strokes {
        let points: Vec<Point> =
            stroke.iter().map(|&(x, y)| (x + chance.around(hand.shake), y + chance.around(hand.shake))).collect();
        let line: Vec<Point> = smooth(&points).into_iter().map(|point| hand.place(point)).collect();
        for pair in line.windows(2) {
            press(&mut ink, pair[0], pair[1], hand.radius);
        }
    }
    for (pixel, ink) in image.iter_mut().zip(ink) {
        let value = ink * hand.dark + chance.around(hand.noise);
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
    fn new(chance: &mut Chance) -> Hand {
        let high = chance.between(15.5, 22.0);
        let wide = high * chance.between(0.55, 0.95);
        let (slant, turn) = (chance.around(0.2), chance.around(0.11));
        // Sine and cosine differ in their last bit between systems; for a small angle these are as good.
        let (sin, cos) = (turn - turn * turn * turn / 6.0, 1.0 - turn * turn / 2.0);
        Hand {
            shake: chance.between(0.015, 0.05),
            x: (wide * cos, -high * (slant * cos + sin)),
            y: (wide * sin, high * (cos - slant * sin)),
            middle: (14.0 + chance.around(1.3), 14.0 + chance.around(1.3)),
            waves: [(chance.around(0.8), chance.between(0.0, 4.0)), (chance.around(0.8), chance.between(0.0, 4.0))],
            radius: chance.between(0.7, 1.7),
            dark: chance.between(0.65, 1.1),
            noise: chance.between(0.0, 0.1),
        }
    }

    fn place(&self, (x, y): Point) -> Point {
        let (x, y) = (x - 0.5, y - 0.5);
        let place = |row: Point| row.0 * x + row.1 * y;
        let (x, y) = (place(self.x) + self.middle.0, place(self.y) + self.middle.1);
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
