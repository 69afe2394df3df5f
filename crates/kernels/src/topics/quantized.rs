//! Weights of few bits: how they lie in memory, random ones, and products with them in f64.

use super::{HostArray, wrong_size};
use gpulab::cpu;
use gpulab::error::Result;
use rayon::prelude::*;

/// How weights are stored: codes of 4 or 8 bits in two's complement, a row behind the other, the first of a word in its
/// lowest bits; and a bf16 scale for so many neighbours of a row, the first group's of all rows, then the second's. A weight
/// is its code times its scale. `quantized_gemv/codes.cuh` says the same to the kernels, bit by bit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Codes {
    /// Bits of a code: 4 or 8.
    pub bits: u32,
    /// Neighbours of a row that share a scale: 64, or a multiple of 128. They divide the row.
    pub group: u32,
}

impl Codes {
    /// 4 bits in groups of 128.
    pub const INT4: Codes = Codes { bits: 4, group: 128 };
    /// 8 bits in groups of 128.
    pub const INT8: Codes = Codes { bits: 8, group: 128 };

    /// Words of the codes and numbers of scales of so many rows.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) where a row is no whole groups, or cannot be counted.
    pub(crate) fn lengths(self, rows: usize, columns: usize) -> Result<(usize, usize)> {
        let group = self.group as usize;
        let countable = |side: usize| side <= super::MOST;
        let numbers = rows.checked_mul(columns).and_then(|numbers| numbers.checked_mul(16));
        // Kernels count the codes' 16 bytes in 32 bits: up to 64 GiB.
        let pieces = numbers.map(|numbers| numbers / 16 * self.bits as usize / 128);
        let few = pieces.is_some_and(|pieces| u32::try_from(pieces).is_ok());
        if !columns.is_multiple_of(group) || !countable(rows) || !countable(columns) || !few {
            return Err(wrong_size(rows, columns, group));
        }
        Ok((rows * columns * self.bits as usize / 32, rows * (columns / group)))
    }

    /// Random codes of all values, and random scales from 1/512 to 3/512.
    pub(super) fn random(self, rows: usize, columns: usize, seed: u64) -> Result<[HostArray; 2]> {
        let (words, scales) = self.lengths(rows, columns)?;
        let start = cpu::mix(2 * seed + 1);
        let codes = (0..words as u64).into_par_iter().map(|at| cpu::mix(start.wrapping_add(at)) as u32).collect();
        let scale = |x: f32| cpu::bf16_from_f32((x + 2.0) / 512.0);
        let scales = cpu::random_f32(scales, 2 * seed + 2).into_iter().map(scale).collect();
        Ok([HostArray::Codes(codes), HostArray::Bf16(scales)])
    }

    /// Codes of 4 bits in the order of `quantized_matmul/fragments.cuh`, which is that of the tensor cores' operands. Rows
    /// are filled up with zeros to a multiple of 16.
    ///
    /// # Panics
    /// When the array holds no codes.
    pub fn fragments(self, codes: &HostArray, rows: usize, columns: usize) -> Vec<u32> {
        let HostArray::Codes(words) = codes else { panic!("{} in place of codes", codes.dtype()) };
        // A word has two neighbours of each of two rows, and of each of two eights of columns.
        let word = |at: usize| {
            let (place, lane, block) = (at % 4, at / 4 % 32, at / 128);
            let row = block / (columns / 64) * 16 + lane / 4;
            let column = block % (columns / 64) * 64 + place * 16 + lane % 4 * 2;
            let code = |i: usize| {
                let (row, column) = (row + i % 2 * 8, column + i % 4 / 2 * 8 + i / 4);
                let at = row * columns + column;
                if row < rows { words[at / 8] >> (4 * (at % 8)) & 15 } else { 0 }
            };
            (0..8).fold(0, |word, i| word | code(i) << (4 * i))
        };
        (0..rows.next_multiple_of(16) * columns / 8).into_par_iter().map(word).collect()
    }

    /// All weights of a set of inputs (codes or fragments, and scales), rounded to bf16, row behind row.
    pub(crate) fn unpacked(self, inputs: &[HostArray], sides: (usize, usize), in_fragments: bool) -> Vec<u16> {
        let row = |row: usize| match in_fragments {
            true => self.fragment_row(&inputs[0], &inputs[1], sides, row),
            false => self.row(&inputs[0], &inputs[1], sides, row),
        };
        let bf16 = |weight: f64| cpu::bf16_from_f32(weight as f32);
        (0..sides.0).into_par_iter().flat_map_iter(|at| row(at).into_iter().map(bf16)).collect()
    }

    /// A row of weights in f64, of such fragments.
    pub(super) fn fragment_row(
        self,
        fragments: &HostArray,
        scales: &HostArray,
        (rows, columns): (usize, usize),
        row: usize,
    ) -> Vec<f64> {
        let HostArray::Codes(words) = fragments else { panic!("{} in place of fragments", fragments.dtype()) };
        let weight = |column: usize| {
            let block = row / 16 * (columns / 64) + column / 64;
            let lane = row % 8 * 4 + column % 8 / 2;
            let i = row % 16 / 8 + column % 16 / 8 * 2 + column % 2 * 4;
            let moved = words[(block * 32 + lane) * 4 + column % 64 / 16] << (28 - 4 * i);
            f64::from(moved as i32 >> 28) * scales.get(column / self.group as usize * rows + row)
        };
        (0..columns).map(weight).collect()
    }

    /// A row of weights in f64, of such codes and scales of so many rows.
    pub(super) fn row(
        self,
        codes: &HostArray,
        scales: &HostArray,
        (rows, columns): (usize, usize),
        row: usize,
    ) -> Vec<f64> {
        let HostArray::Codes(words) = codes else { panic!("{} in place of codes", codes.dtype()) };
        let each = 32 / self.bits as usize;
        let weight = |column: usize| {
            let at = row * columns + column;
            let moved = words[at / each] << (32 - self.bits as usize * (at % each + 1));
            let code = moved as i32 >> (32 - self.bits);
            f64::from(code) * scales.get(column / self.group as usize * rows + row)
        };
        (0..columns).map(weight).collect()
    }
}

/// Σ weight · x, and by how much f32 sums may be off: the tensor cores drop what lies below the last places of a sum.
pub(super) fn product(weights: &[f64], x: impl Iterator<Item = f64>) -> (f64, f64) {
    let (sum, all) = weights.iter().zip(x).fold((0.0, 0.0), |(sum, all), (weight, x)| {
        let term = weight * x;
        (sum + term, all + f64::abs(term))
    });
    (sum, all * 2.0_f64.powi(-18))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_twos_complement_from_the_lowest_bits_on_and_groups_share_scales() {
        let bf16 = |numbers: &[f32]| HostArray::Bf16(numbers.iter().map(|x| cpu::bf16_from_f32(*x)).collect());
        let mut words = vec![0; 2 * 128 * 4 / 32];
        // Of the second row: codes 0 to 7 are 1, −1, 7, −8, 2, 3, 0, −2; code 64 is −3.
        words[128 * 4 / 32] = 0xE03_287F1;
        words[(128 + 64) * 4 / 32] = 0xD;
        let codes = Codes { bits: 4, group: 64 };
        let row = codes.row(&HostArray::Codes(words), &bf16(&[9.0, 0.5, 9.0, 2.0]), (2, 128), 1);
        assert_eq!(row[..8], [0.5, -0.5, 3.5, -4.0, 1.0, 1.5, 0.0, -1.0]);
        assert_eq!((row[64], row.iter().filter(|weight| **weight != 0.0).count()), (-6.0, 8));
        let mut words = vec![0; 64 * 8 / 32];
        words[0] = 0x807F_FF01;
        let row = Codes { bits: 8, group: 64 }.row(&HostArray::Codes(words), &bf16(&[1.0]), (1, 64), 0);
        assert_eq!(row[..5], [1.0, -1.0, 127.0, -128.0, 0.0]);
    }

    #[test]
    fn fragments_hold_the_same_weights_in_another_order() {
        let (rows, columns, codes) = (19, 192, Codes { bits: 4, group: 64 });
        let [plain, scales] = codes.random(rows, columns, 5).unwrap();
        let fragments = HostArray::Codes(codes.fragments(&plain, rows, columns));
        assert_eq!(fragments.len(), 32 * columns / 8);
        for row in 0..rows {
            let sides = (rows, columns);
            assert_eq!(codes.fragment_row(&fragments, &scales, sides, row), codes.row(&plain, &scales, sides, row));
        }
    }

    #[test]
    fn rows_that_are_no_whole_groups_are_refused() {
        assert_eq!(Codes::INT4.lengths(3, 256).unwrap(), (96, 6));
        assert_eq!(Codes::INT8.lengths(0, 0).unwrap(), (0, 0));
        for (rows, columns) in [(1, 64), (1, 1), (usize::MAX, 128), (1 << 40, 128)] {
            let refused = Codes::INT4.lengths(rows, columns).unwrap_err().to_string();
            assert!(refused.contains("groups of 128") && refused.contains("\nnext: "), "{refused}");
        }
    }
}
