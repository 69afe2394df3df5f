//! How sparse matrices lie in memory: CSR, blocks, and 2:4; random ones of several patterns.

use gpulab::cpu;
use gpulab::error::{Error, Result};
use rayon::prelude::*;

/// A matrix in compressed sparse rows (CSR), in f32: the values of the entries row behind row, a column index for each, and
/// for each row the place of its first entry. 8 bytes per entry, and 4 per row.
///
/// ```
/// use gpulab_kernels::sparse::Csr;
/// let a = Csr::from_dense(&[0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 4.0], 3);
/// assert_eq!((&a.starts[..], &a.indices[..], &a.values[..]), (&[0, 1, 1, 3][..], &[1, 0, 2][..], &[2.0, 3.0, 4.0][..]));
/// assert_eq!(a.bytes(), 4 * 4 + 3 * 8);
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Csr {
    /// Columns of the matrix.
    pub columns: usize,
    /// Of each row the place of its first entry, and at the end the number of all entries.
    pub starts: Vec<i32>,
    /// The column of each entry, ascending within a row.
    pub indices: Vec<i32>,
    /// The value of each entry.
    pub values: Vec<f32>,
}

/// Where a random matrix has its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pattern {
    /// Anywhere, all places alike.
    Uniform,
    /// A few rows have most of them: an entry's row has rank `rows · u³`, `u` uniform.
    PowerLaw,
    /// Beside the diagonal, as many in each row.
    Banded,
}

impl Csr {
    /// The entries of a row-major matrix that are not 0.
    ///
    /// # Panics
    /// When the numbers are no whole rows.
    pub fn from_dense(dense: &[f32], columns: usize) -> Csr {
        assert!(columns > 0 && dense.len().is_multiple_of(columns), "{} numbers in rows of {columns}", dense.len());
        let mut csr = Csr { columns, starts: vec![0], indices: Vec::new(), values: Vec::new() };
        for row in dense.chunks(columns) {
            for (column, value) in row.iter().enumerate().filter(|(_, value)| **value != 0.0) {
                csr.indices.push(column as i32);
                csr.values.push(*value);
            }
            csr.starts.push(csr.values.len() as i32);
        }
        csr
    }

    /// `entries` random values at random places of that pattern.
    ///
    /// # Errors
    /// As [`entries_fit`].
    pub fn random(rows: usize, columns: usize, entries: usize, pattern: Pattern, seed: u64) -> Result<Csr> {
        entries_fit(rows, columns, entries)?;
        let counts = counts(rows, columns, entries, pattern, seed);
        let mut starts = vec![0];
        starts.extend(counts.iter().scan(0, |sum, count| {
            *sum += *count as i32;
            Some(*sum)
        }));
        let row = |(row, count): (usize, usize)| match pattern {
            Pattern::Banded => {
                let first = (row * columns / rows).saturating_sub(count / 2).min(columns - count);
                (first..first + count).map(|column| column as i32).collect()
            }
            _ => some_of(columns, count, cpu::mix(seed ^ (row as u64) << 20)),
        };
        let indices = counts.into_par_iter().enumerate().flat_map_iter(row).collect();
        Ok(Csr { columns, starts, indices, values: cpu::random_f32(entries, seed + 1) })
    }

    /// The number of its rows.
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// The part of all places that have an entry.
    pub fn density(&self) -> f64 {
        self.values.len() as f64 / (self.rows() * self.columns) as f64
    }

    /// Bytes of its three arrays.
    pub fn bytes(&self) -> usize {
        4 * (self.starts.len() + self.indices.len() + self.values.len())
    }

    /// The same matrix with its zeros, row-major.
    pub fn to_dense(&self) -> Vec<f32> {
        let mut dense = vec![0.0; self.rows() * self.columns];
        for row in 0..self.rows() {
            for at in self.starts[row] as usize..self.starts[row + 1] as usize {
                dense[row * self.columns + self.indices[at] as usize] = self.values[at];
            }
        }
        dense
    }

    /// What the CPU's products take.
    pub fn as_ref(&self) -> cpu::CsrRef<'_> {
        cpu::CsrRef { starts: &self.starts, indices: &self.indices, values: &self.values }
    }
}

/// Refuses more entries than places, and what kernels do not count in `int`.
///
/// # Errors
/// [`Error::Invalid`].
pub fn entries_fit(rows: usize, columns: usize, entries: usize) -> Result<()> {
    let places = rows.saturating_mul(columns);
    let countable = [rows, columns, rows.saturating_add(entries)].iter().all(|&n| n <= i32::MAX as usize - (1 << 20));
    match entries <= places && countable {
        true => Ok(()),
        false => Err(Error::invalid(
            format!(
                "{entries} entries in a matrix of {rows} × {columns}: it has {places} places, and kernels count rows and entries in `int`"
            ),
            "ask for fewer entries, or split the matrix",
        )),
    }
}

/// How many entries each row has.
fn counts(rows: usize, columns: usize, entries: usize, pattern: Pattern, seed: u64) -> Vec<usize> {
    if pattern == Pattern::Banded {
        return (0..rows).map(|row| entries * (row + 1) / rows - entries * row / rows).collect();
    }
    let unit = |at: usize| {
        (cpu::mix(seed.wrapping_mul(0x9E37_79B9).wrapping_add(at as u64)) >> 11) as f64 / (1_u64 << 53) as f64
    };
    let mut order: Vec<usize> = (0..rows).collect();
    (1..rows).for_each(|at| order.swap(at, (unit(entries + at) * (at + 1) as f64) as usize));
    let mut counts = vec![0; rows];
    for at in 0..entries {
        let u = unit(at);
        let rank = rows as f64 * if pattern == Pattern::PowerLaw { u.powi(3) } else { u };
        counts[order[rank as usize]] += 1;
    }
    // A full row hands what it cannot hold to the next one; the second time round there is room.
    let mut left = 0;
    for row in (0..rows).chain(0..rows) {
        let wanted = counts[row] + left;
        counts[row] = wanted.min(columns);
        left = wanted - counts[row];
    }
    counts
}

/// `count` different numbers below `all`, ascending.
fn some_of(all: usize, count: usize, seed: u64) -> Vec<i32> {
    // The smaller half is drawn: those that are there, or those that are not.
    let draw = count.min(all - count);
    let (mut drawn, mut left, mut at) = (vec![false; all], draw, 0);
    while left > 0 {
        let one = (cpu::mix(seed.wrapping_add(at)) % all as u64) as usize;
        left -= usize::from(!std::mem::replace(&mut drawn[one], true));
        at += 1;
    }
    let there = draw == count;
    (0..all).filter(|&one| drawn[one] == there).map(|one| one as i32).collect()
}

/// A bf16 matrix whose rows have at most two numbers in each group of four neighbours that are not 0 (2:4): half of the
/// values, and two bits for each of them that say where in its group it stands.
///
/// ```
/// use gpulab_kernels::sparse::TwoFour;
/// let a = TwoFour::compress(&[0.0, 1.0, 0.0, 2.0, 3.0, 0.0, 0.0, 0.0], 8)?;
/// assert_eq!(a.decompress(), [0.0, 1.0, 0.0, 2.0, 3.0, 0.0, 0.0, 0.0]);
/// let error = TwoFour::compress(&[0.0; 8].map(|_: f32| 1.0), 8).unwrap_err().to_string();
/// assert!(error.contains("row 0, group 0 (columns 0 to 3) has 4 numbers that are not 0"));
/// # Ok::<(), gpulab::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TwoFour {
    /// Columns of the matrix, without those that fill up its rows.
    pub columns: usize,
    /// The values as bf16, row behind row, half as many as the columns, which are filled up to a multiple of 64.
    pub values: Vec<u16>,
    /// Their places, in the order of `two_four/tiles.cuh`.
    pub metadata: Vec<u32>,
}

impl TwoFour {
    /// Columns are filled up to a multiple of this, rows of the metadata to a multiple of 16.
    pub const COLUMNS: usize = 64;

    /// Keeps two values of each group of four, rounded to bf16; where fewer are not 0, zeros fill up.
    ///
    /// # Errors
    /// [`Error::Invalid`] with row and group of the first group that has more than two; for numbers that are no whole rows.
    pub fn compress(dense: &[f32], columns: usize) -> Result<TwoFour> {
        if columns == 0 || !dense.len().is_multiple_of(columns) {
            return Err(Error::invalid(
                format!("{} numbers are no whole rows of {columns}", dense.len()),
                "give the matrix row by row, with the number of its columns",
            ));
        }
        let (rows, padded) = (dense.len() / columns, columns.next_multiple_of(Self::COLUMNS));
        let mut values = vec![0; rows * padded / 2];
        // Rows and groups that are not there hold two zeros, at places 0 and 1.
        let mut metadata = vec![0x4444_4444; rows.div_ceil(16) * padded / 64 * 32];
        for (row, numbers) in dense.chunks(columns).enumerate() {
            for (group, four) in numbers.chunks(4).enumerate() {
                let mut places: Vec<usize> = (0..four.len()).filter(|&at| four[at] != 0.0).collect();
                if places.len() > 2 {
                    return Err(Error::invalid(
                        format!(
                            "row {row}, group {group} (columns {} to {}) has {} numbers that are not 0, and 2:4 keeps two",
                            4 * group,
                            4 * group + four.len() - 1,
                            places.len()
                        ),
                        "set the smaller ones of each group to 0 first: `sparse::prune_two_four(&dense, columns)`",
                    ));
                }
                // Zeros fill up, so that the places ascend.
                for at in 0..4 {
                    if places.len() < 2 && !places.contains(&at) {
                        places.push(at);
                    }
                }
                places.sort_unstable();
                let (word, shift) = word_of(row, 4 * group, padded);
                metadata[word] &= !(15 << shift);
                for (i, place) in places.into_iter().enumerate() {
                    let value = four.get(place).copied().unwrap_or(0.0);
                    values[row * padded / 2 + 2 * group + i] = cpu::bf16_from_f32(value);
                    metadata[word] |= (place as u32) << (shift + 2 * i);
                }
            }
        }
        Ok(TwoFour { columns, values, metadata })
    }

    /// The matrix with its zeros, row-major.
    pub fn decompress(&self) -> Vec<f32> {
        let padded = self.columns.next_multiple_of(Self::COLUMNS);
        let rows = self.values.len() * 2 / padded;
        (0..rows).flat_map(|row| self.row(row)).collect()
    }

    /// One of its rows, with its zeros.
    pub fn row(&self, row: usize) -> Vec<f32> {
        let padded = self.columns.next_multiple_of(Self::COLUMNS);
        let mut dense = vec![0.0; padded];
        for (at, value) in self.values[row * padded / 2..][..padded / 2].iter().enumerate() {
            let (word, shift) = word_of(row, at / 2 * 4, padded);
            let place = self.metadata[word] >> (shift + at % 2 * 2) & 3;
            // Of a group with fewer than two numbers, the rest are zeros at places of their own.
            dense[at / 2 * 4 + place as usize] += cpu::f32_from_bf16(*value);
        }
        dense.truncate(self.columns);
        dense
    }

    /// Bytes of values and metadata.
    pub fn bytes(&self) -> usize {
        2 * self.values.len() + 4 * self.metadata.len()
    }
}

/// The word of the metadata that holds the group which begins at that column, and the lowest of its four bits.
fn word_of(row: usize, column: usize, padded: usize) -> (usize, usize) {
    let lane = row % 8 * 4 + column % 64 / 16;
    ((row / 16 * (padded / 64) + column / 64) * 32 + lane, row % 16 / 8 * 16 + column % 16)
}

/// Of each group of four neighbours in a row the two of largest magnitude, the others 0; of equal ones the first.
pub fn prune_two_four(dense: &[f32], columns: usize) -> Vec<f32> {
    let mut pruned = dense.to_vec();
    for four in pruned.chunks_mut(columns).flat_map(|row| row.chunks_mut(4)) {
        let mut order: Vec<usize> = (0..four.len()).collect();
        order.sort_by(|&a, &b| four[b].abs().total_cmp(&four[a].abs()));
        order.into_iter().skip(2).for_each(|at| four[at] = 0.0);
    }
    pruned
}

/// A bf16 matrix in block compressed sparse rows: CSR whose entries are dense blocks of `SIDE` × `SIDE`.
#[derive(Debug, Clone, PartialEq)]
pub struct Blocks {
    /// Rows of the matrix.
    pub rows: usize,
    /// Columns of the matrix.
    pub columns: usize,
    /// Of each row of blocks the place of its first one, and at the end the number of all.
    pub starts: Vec<i32>,
    /// Of each block its number along the row, ascending.
    pub indices: Vec<i32>,
    /// The blocks as bf16, each row-major; beyond the matrix they hold zeros.
    pub blocks: Vec<u16>,
}

impl Blocks {
    /// Rows and columns of a block.
    pub const SIDE: usize = 32;

    /// The blocks of a row-major matrix in which anything is not 0, rounded to bf16.
    ///
    /// # Panics
    /// When the numbers are no whole rows.
    pub fn from_dense(dense: &[f32], columns: usize) -> Blocks {
        assert!(columns > 0 && dense.len().is_multiple_of(columns), "{} numbers in rows of {columns}", dense.len());
        let rows = dense.len() / columns;
        let mut all = Blocks { rows, columns, starts: vec![0], indices: Vec::new(), blocks: Vec::new() };
        for y in 0..rows.div_ceil(Self::SIDE) {
            for x in 0..columns.div_ceil(Self::SIDE) {
                let number = |at: usize| {
                    let (row, column) = (y * Self::SIDE + at / Self::SIDE, x * Self::SIDE + at % Self::SIDE);
                    if row < rows && column < columns { dense[row * columns + column] } else { 0.0 }
                };
                let block: Vec<f32> = (0..Self::SIDE * Self::SIDE).map(number).collect();
                if block.iter().any(|x| *x != 0.0) {
                    all.indices.push(x as i32);
                    all.blocks.extend(block.into_iter().map(cpu::bf16_from_f32));
                }
            }
            all.starts.push(all.indices.len() as i32);
        }
        all
    }

    /// So many blocks of random numbers at random places.
    ///
    /// # Errors
    /// As [`entries_fit`].
    pub fn random(rows: usize, columns: usize, blocks: usize, seed: u64) -> Result<Blocks> {
        let [y, x] = [rows, columns].map(|side| side.div_ceil(Self::SIDE));
        let places = Csr::random(y, x, blocks, Pattern::Uniform, seed)?;
        let mut numbers = cpu::random_bf16(blocks * Self::SIDE * Self::SIDE, seed + 1);
        for row in 0..y {
            for block in places.starts[row] as usize..places.starts[row + 1] as usize {
                for (at, number) in
                    numbers[block * Self::SIDE * Self::SIDE..][..Self::SIDE * Self::SIDE].iter_mut().enumerate()
                {
                    let column = places.indices[block] as usize * Self::SIDE + at % Self::SIDE;
                    if row * Self::SIDE + at / Self::SIDE >= rows || column >= columns {
                        *number = 0;
                    }
                }
            }
        }
        Ok(Blocks { rows, columns, starts: places.starts, indices: places.indices, blocks: numbers })
    }

    /// One row of the matrix, with its zeros.
    pub fn row(&self, row: usize) -> Vec<f32> {
        let mut dense = vec![0.0; self.columns];
        let of = row / Self::SIDE;
        for block in self.starts[of] as usize..self.starts[of + 1] as usize {
            let numbers = &self.blocks[(block * Self::SIDE + row % Self::SIDE) * Self::SIDE..][..Self::SIDE];
            let to = &mut dense[self.indices[block] as usize * Self::SIDE..];
            to.iter_mut().zip(numbers).for_each(|(to, number)| *to = cpu::f32_from_bf16(*number));
        }
        dense
    }

    /// Bytes of its arrays.
    pub fn bytes(&self) -> usize {
        4 * (self.starts.len() + self.indices.len()) + 2 * self.blocks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_matrices_have_their_entries_and_their_pattern() {
        for pattern in [Pattern::Uniform, Pattern::PowerLaw, Pattern::Banded] {
            for (rows, columns, entries) in
                [(1, 1, 0), (1, 1, 1), (40, 30, 0), (40, 30, 1200), (200, 77, 1001), (7, 1000, 6999)]
            {
                let csr = Csr::random(rows, columns, entries, pattern, 3).unwrap();
                let row = |row: usize| &csr.indices[csr.starts[row] as usize..csr.starts[row + 1] as usize];
                assert_eq!((csr.rows(), csr.indices.len(), csr.values.len()), (rows, entries, entries));
                assert!((0..rows).all(|at| row(at).is_sorted_by(|a, b| a < b)), "{pattern:?}");
                assert!(csr.indices.iter().all(|&column| (0..columns as i32).contains(&column)));
                if entries > 0 {
                    assert_eq!(Csr::from_dense(&csr.to_dense(), columns).indices, csr.indices);
                }
            }
        }
        let longest = |pattern| {
            let csr = Csr::random(1000, 1000, 10_000, pattern, 1).unwrap();
            csr.starts.windows(2).map(|two| two[1] - two[0]).max().unwrap()
        };
        assert!(longest(Pattern::Banded) == 10 && longest(Pattern::Uniform) < 40 && longest(Pattern::PowerLaw) > 400);
        let error = Csr::random(3, 3, 10, Pattern::Uniform, 1).unwrap_err().to_string();
        assert!(error.contains("it has 9 places") && error.contains("\nnext: "), "{error}");
        assert!(entries_fit(1 << 31, 1, 1).is_err() && entries_fit(usize::MAX, 2, 1).is_err());
    }

    #[test]
    fn two_of_four_come_back_and_three_are_refused() {
        for (rows, columns) in [(1, 1), (1, 4), (17, 66), (33, 130), (16, 64)] {
            let dense: Vec<f32> = cpu::random_bf16(rows * columns, 1).into_iter().map(cpu::f32_from_bf16).collect();
            let pruned = prune_two_four(&dense, columns);
            // Some groups have fewer than two.
            let pruned: Vec<f32> =
                pruned.into_iter().enumerate().map(|(at, x)| if at % 11 == 0 { 0.0 } else { x }).collect();
            let compressed = TwoFour::compress(&pruned, columns).unwrap();
            assert_eq!(compressed.decompress(), pruned, "{rows} × {columns}");
            // mma.sp asks for two different places, the smaller one first.
            let ordered = |word: &u32| (0..8).all(|i| word >> (4 * i) & 3 < word >> (4 * i + 2) & 3);
            assert!(compressed.metadata.iter().all(ordered), "{rows} × {columns}");
        }
        let mut dense = vec![0.0; 3 * 100];
        [244, 245, 247].into_iter().for_each(|at| dense[at] = 1.0);
        let error = TwoFour::compress(&dense, 100).unwrap_err().to_string();
        assert!(
            error.contains("row 2, group 11 (columns 44 to 47) has 3 numbers") && error.contains("\nnext: "),
            "{error}"
        );
        assert!(TwoFour::compress(&dense, 7).unwrap_err().to_string().contains("no whole rows of 7"));
        assert_eq!(prune_two_four(&[1.0, -3.0, 2.0, 3.0, 5.0, 0.5], 6), [0.0, -3.0, 0.0, 3.0, 5.0, 0.5]);
        let full = TwoFour::compress(&vec![0.0; 64 * 128], 128).unwrap();
        assert_eq!(full.bytes() * 16, 64 * 128 * 2 * 9);
    }

    #[test]
    fn blocks_hold_the_matrix() {
        let (rows, columns) = (70, 45);
        let mut dense = vec![0.0; rows * columns];
        [(0, 0), (31, 31), (69, 44)].into_iter().for_each(|(row, column)| dense[row * columns + column] = 1.5);
        let blocks = Blocks::from_dense(&dense, columns);
        assert_eq!((&blocks.starts[..], &blocks.indices[..]), (&[0, 1, 1, 2][..], &[0, 1][..]));
        assert_eq!((0..rows).flat_map(|row| blocks.row(row)).collect::<Vec<_>>(), dense);
        let random = Blocks::random(rows, columns, 5, 1).unwrap();
        let dense: Vec<f32> = (0..rows).flat_map(|row| random.row(row)).collect();
        assert_eq!(Blocks::from_dense(&dense, columns), random);
        assert!(Blocks::random(rows, columns, 7, 1).is_err());
    }
}
