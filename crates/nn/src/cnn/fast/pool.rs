//! The 2 × 2 max-pool of one image, between channels last and the order [channel][row][column] of what follows.

use super::image::{CHANNELS_2, PADDED_SIDE, SIDE_2};

pub(super) const SIDE: usize = SIDE_2 / 2;

/// Says that none of the four was above zero, so nothing goes back: ReLU stopped it.
const NONE: u8 = 4;

/// The largest of each four, and which it was. Of equal ones it is the first, as PyTorch has it.
pub(super) fn forward(layer_2: &[f32], pooled: &mut [f32], winners: &mut [u8]) {
    let rows = layer_2.as_chunks::<CHANNELS_2>().0;
    for y in 0..SIDE {
        for x in 0..SIDE {
            let first = 2 * y * SIDE_2 + 2 * x;
            let four = [first, first + 1, first + SIDE_2, first + SIDE_2 + 1].map(|at| &rows[at]);
            let (mut best, mut winner) = (*four[0], [0u8; CHANNELS_2]);
            for (number, row) in four.into_iter().enumerate().skip(1) {
                for channel in 0..CHANNELS_2 {
                    let better = row[channel] > best[channel];
                    best[channel] = if better { row[channel] } else { best[channel] };
                    winner[channel] = if better { number as u8 } else { winner[channel] };
                }
            }
            for channel in 0..CHANNELS_2 {
                let at = (channel * SIDE + y) * SIDE + x;
                pooled[at] = best[channel];
                winners[at] = if best[channel] > 0.0 { winner[channel] } else { NONE };
            }
        }
    }
}

/// Lays the gradient of the pooled numbers where they came from, into the padded image of layer 2, whose edge is zero and
/// stays so; adds it up for the bias.
pub(super) fn backward(gradient: &[f32], winners: &[u8], padded: &mut [f32], bias: &mut [f32]) {
    let rows = padded.as_chunks_mut::<CHANNELS_2>().0;
    for y in 0..SIDE {
        for x in 0..SIDE {
            let first = (2 * y + 2) * PADDED_SIDE + 2 * x + 2;
            let places = [first, first + 1, first + PADDED_SIDE, first + PADDED_SIDE + 1];
            places.into_iter().for_each(|place| rows[place].fill(0.0));
            for channel in 0..CHANNELS_2 {
                let at = (channel * SIDE + y) * SIDE + x;
                if let Some(&place) = places.get(usize::from(winners[at])) {
                    rows[place][channel] = gradient[at];
                    bias[channel] += gradient[at];
                }
            }
        }
    }
}
