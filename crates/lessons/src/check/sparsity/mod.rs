//! Exercises of lesson 51: CSR times a vector from a blank page; from which density on CSR takes more bytes; and a kernel whose
//! source stays hidden until its mistake is named. And of lesson 51a: 2:4 compressed and decompressed; what it saves of a layer's
//! bytes; and another hidden kernel.

mod hidden;
mod places;
mod spmv;

pub use hidden::{SparseFault, SparseReport, diagnose_sparse, revealed_sparse, sparse_report};
pub use places::{PlacesFault, PlacesReport, diagnose_places, places_report, revealed_places};
pub use spmv::spmv_eight;

use super::Verdict;
use super::on_paper::{part, within};
use super::verdict::{Check, ask, timed, told, verdict};
use gpulab::cpu;

/// Values and metadata, or row and group of the first group that has more than two numbers.
pub type Compressed = Result<(Vec<f32>, Vec<u32>), (usize, usize)>;

/// The word of a value's place, and the lower of its two bits.
fn bits_of(value: usize) -> (usize, usize) {
    (value / 16, value % 16 * 2)
}

fn place(metadata: &[u32], value: usize) -> usize {
    let (word, shift) = bits_of(value);
    (metadata[word] >> shift & 3) as usize
}

/// A random matrix of rows of 32 · `words` columns with so many numbers in each group, chosen by `count`.
fn matrix(rows: usize, words: usize, seed: u64, count: impl Fn(usize) -> usize) -> Vec<f32> {
    let mut dense: Vec<f32> = cpu::random_f32(rows * words * 32, seed).into_iter().map(|x| x + x.signum()).collect();
    for (group, four) in dense.chunks_mut(4).enumerate() {
        let first = cpu::mix(seed + group as u64) as usize;
        (0..4 - count(group)).for_each(|i| four[(first + i * (1 + 2 * (first / 4 % 2))) % 4] = 0.0);
    }
    dense
}

/// Checks a pair of functions: a matrix, row-major, whose columns are a multiple of 32, into 2:4: two values of each group of four
/// neighbours, in their order, and words of 2-bit places, 16 in each, the first value's lowest; and back. A group with more than
/// two numbers that are not 0 is `Err((row, group))`.
pub fn two_four(
    compress: fn(&[f32], usize) -> Compressed,
    decompress: fn(&[f32], &[u32], usize) -> Vec<f32>,
) -> Verdict {
    timed("two_four", move || {
        let mut one = vec![0.0; 32];
        (one[1], one[3], one[4]) = (5.0, -6.0, 7.0);
        let cases = [
            ("one row with three numbers", one, 32),
            ("two numbers in each group", matrix(3, 1, 1, |_| 2), 32),
            ("no to two numbers in each group", matrix(4, 2, 2, |group| group % 3), 64),
            ("zeros", vec![0.0; 64], 32),
        ];
        for (name, dense, columns) in &cases {
            compressed(name, dense, *columns, compress)?;
        }
        let mut refused = matrix(3, 2, 3, |group| group % 3);
        (refused[64 + 20], refused[64 + 21], refused[64 + 23]) = (1.0, 2.0, 3.0);
        for (name, dense, right) in [
            ("three numbers in row 1, group 5", refused.clone(), (1, 5)),
            ("four in row 0, group 0", vec![1.0; 64], (0, 0)),
        ] {
            match ask(name, || compress(&dense, 64))? {
                Err(given) if given == right => (),
                Err(given) => {
                    return told(
                        format!("{name}: you refuse row {}, group {}", given.0, given.1),
                        "another group is named than the first one with more than two numbers",
                        "groups are counted within their row, from 0",
                    );
                }
                Ok(_) => {
                    return told(
                        format!("{name}: it is compressed, and a number is lost"),
                        "a matrix that is no 2:4 would come back changed, and nobody would know",
                        "count the numbers of a group that are not 0 before you keep two",
                    );
                }
            }
        }
        for (name, dense, columns) in &cases {
            let (values, metadata) = reference(dense);
            let given = ask(&format!("decompress, {name}"), || decompress(&values, &metadata, *columns))?;
            if given.len() != dense.len() {
                return told(
                    format!("decompress, {name}: {} numbers, and the matrix has {}", given.len(), dense.len()),
                    "the zeros are part of the matrix",
                    "each two values make a group of four",
                );
            }
            if let Some(at) = (0..dense.len()).find(|&at| given[at] != dense[at]) {
                return told(
                    format!(
                        "decompress, {name}: row {}, column {} is {}, and it should be {}",
                        at / columns,
                        at % columns,
                        given[at],
                        dense[at]
                    ),
                    "a value stands at another place than its two bits say",
                    "value i belongs to group i / 2, and its place is in bits 2 · (i % 16) and above of word i / 16",
                );
            }
        }
        Ok(())
    })
}

/// Two values of each group, zeros among them where there are fewer: the last places that ascend.
fn reference(dense: &[f32]) -> (Vec<f32>, Vec<u32>) {
    let (mut values, mut metadata) = (Vec::new(), vec![0; dense.len().div_ceil(32)]);
    for four in dense.chunks(4) {
        let mut places: Vec<usize> = (0..4).filter(|&at| four[at] != 0.0).collect();
        (0..4).rev().for_each(|at| {
            if places.len() < 2 && !places.contains(&at) {
                places.push(at);
            }
        });
        places.sort_unstable();
        for at in places {
            let (word, shift) = bits_of(values.len());
            metadata[word] |= (at as u32) << shift;
            values.push(four[at]);
        }
    }
    (values, metadata)
}

fn compressed(name: &str, dense: &[f32], columns: usize, compress: fn(&[f32], usize) -> Compressed) -> Check {
    let (values, metadata) = match ask(name, || compress(dense, columns))? {
        Ok(both) => both,
        Err((row, group)) => {
            return told(
                format!("{name}: you refuse row {row}, group {group}, and no group has more than two numbers"),
                "two numbers that are not 0 are allowed in a group of four",
                "which count is too many?",
            );
        }
    };
    let (count, words) = (dense.len() / 2, dense.len() / 32);
    if (values.len(), metadata.len()) != (count, words) {
        return told(
            format!("{name}: {} values and {} words; {count} values need {words} words", values.len(), metadata.len()),
            "of each group of four there are two values, whatever they are, and 16 places of two bits fill a word",
            "a group with fewer than two numbers keeps zeros, so that every row takes the same room",
        );
    }
    for group in 0..count / 2 {
        let [first, second] = [0, 1].map(|i| place(&metadata, 2 * group + i));
        let (row, own) = (4 * group / columns, group % (columns / 4));
        let mut back = [0.0; 4];
        back[first] += values[2 * group];
        back[second] += values[2 * group + 1];
        let four = &dense[4 * group..4 * group + 4];
        if back != *four {
            return told(
                format!(
                    "{name}: row {row}, group {own} is {four:?}; you keep {:?} at places {first} and {second}",
                    &values[2 * group..2 * group + 2]
                ),
                "what is kept does not give the group back",
                "a place is 0 to 3, counted within the group; value i has bits 2 · (i % 16) and above of word i / 16",
            );
        }
        if first >= second {
            return told(
                format!("{name}: row {row}, group {own} has the places {first} and {second}"),
                "the tensor cores want two different places, the smaller one first; others give undefined results",
                "where a group has fewer than two numbers, which place may a zero take?",
            );
        }
    }
    Ok(())
}

/// On paper: a matrix of 8192 × 8192 in 8 bits as dense, and in CSR with values of 8 bits, 32-bit column indices and 32-bit starts. At
/// which density (in percent) do both have as many bytes? And if each entry also fetches a sector of 32 bytes for its number of x?
pub fn break_even(answer: [Option<f64>; 2]) -> Verdict {
    verdict("break_even", || {
        let side = 8192.0_f64;
        // 5 d n² + 4 (n + 1) = n².
        let right = |entry: f64| 100.0 * (side * side - 4.0 * (side + 1.0)) / (entry * side * side);
        let slips = [
            (
                100.0 / 3.0,
                "are indices of 16 bits, or values of bf16, in your entry? Values have 8 bits here, indices 32",
            ),
            (100.0 / 6.0, "values of 16 bits? They have 8 on both sides"),
            (100.0 / 8.0, "values of 32 bits? They have 8 on both sides"),
            (25.0, "does an entry cost its index alone, and no value?"),
            (50.0, "an index has 32 bits: how many bytes are those?"),
            (100.0, "an entry of CSR has an index besides its value"),
            (100.0 - right(5.0), "that is how many zeros there must be: the question asks for the entries"),
            (right(5.0) / 100.0, "in percent, please"),
            (500.0, "the other way round"),
        ];
        let start =
            "write down the bytes of both as functions of the density d: what does an entry cost here, and what there?";
        part("without x", answer[0], right(5.0) * 0.995..=right(5.0) * 1.005, &slips, start)?;
        let slips = [
            (right(5.0), "that leaves x out: what does each entry fetch besides itself?"),
            (right(9.0), "four bytes of x are used; how many does memory hand out?"),
            (right(6.0), "one byte of x is used; how many does memory hand out?"),
            (right(32.0), "the sector comes besides the entry itself"),
            (right(36.0), "an entry also has a value"),
            (right(33.0), "an entry also has an index"),
            (100.0 - right(37.0), "that is how many zeros there must be: the question asks for the entries"),
            (right(37.0) / 100.0, "in percent, please"),
        ];
        part("with x", answer[1], right(37.0) * 0.995..=right(37.0) * 1.005, &slips, start).map(|_| ())
    })
}

/// On paper: a product whose time is that of reading its weights once. How many times as fast can it be at most with weights in 2:4,
/// with values of 16 bits, and with values of 4 bits?
pub fn two_four_bytes(answer: [Option<f64>; 2]) -> Verdict {
    verdict("two_four_bytes", || {
        let start = "how many bits has a group of four in full, and how many of them are left, with their places?";
        let slips = [
            (2.0, "half of the values go; what is stored besides them?"),
            (9.0 / 16.0, "that is the share of the bytes that is left: how many times as fast is that?"),
            (16.0 / 10.0, "only the values that are kept have places"),
            (16.0 / 8.5, "a place among four takes more than one bit"),
            (16.0 / 12.0, "that is what 4 bits give, or four bits for each value's place"),
        ];
        part("16 bits", answer[0], within(16.0 / 9.0, 0.005), &slips, start)?;
        let slips = [
            (2.0, "half of the values go; what is stored besides them?"),
            (0.75, "that is the share of the bytes that is left: how many times as fast is that?"),
            (1.0, "only the values that are kept have places"),
            (1.6, "that is what values of 8 bits give, or one bit for each place"),
            (16.0 / 9.0, "a place takes two bits, however few the values have"),
        ];
        part("4 bits", answer[1], within(4.0 / 3.0, 0.005), &slips, start).map(|_| ())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compress(dense: &[f32], columns: usize) -> Compressed {
        for (group, four) in dense.chunks(4).enumerate() {
            if four.iter().filter(|x| **x != 0.0).count() > 2 {
                return Err((group / (columns / 4), group % (columns / 4)));
            }
        }
        Ok(reference(dense))
    }

    fn decompress(values: &[f32], metadata: &[u32], _columns: usize) -> Vec<f32> {
        let mut dense = vec![0.0; 2 * values.len()];
        values.iter().enumerate().for_each(|(i, x)| dense[i / 2 * 4 + place(metadata, i)] += x);
        dense
    }

    /// Two values of each group at the places that the function gives.
    fn by(
        dense: &[f32],
        columns: usize,
        places: fn(&[f32]) -> [usize; 2],
        write: fn(&mut [u32], usize, usize),
    ) -> Compressed {
        compress(dense, columns)?;
        let (mut values, mut metadata) = (Vec::new(), vec![0; dense.len() / 32]);
        for four in dense.chunks(4) {
            for at in places(four) {
                write(&mut metadata, values.len(), at);
                values.push(four[at]);
            }
        }
        Ok((values, metadata))
    }

    fn lowest(metadata: &mut [u32], value: usize, place: usize) {
        metadata[value / 16] |= (place as u32) << (value % 16 * 2);
    }

    fn first_places(four: &[f32]) -> [usize; 2] {
        let there: Vec<usize> = (0..4).filter(|&at| four[at] != 0.0).collect();
        match there[..] {
            [] => [0, 1],
            [0] => [0, 1],
            [at] => [0, at],
            [a, b, ..] => [a, b],
        }
    }

    #[test]
    fn pairs_right_and_wrong() {
        let right: fn(&[f32], usize) -> Compressed = |dense, columns| by(dense, columns, first_places, lowest);
        for compress in [compress, right] {
            assert!(two_four(compress, decompress).passed(), "{}", two_four(compress, decompress).text());
        }
        type Compress = fn(&[f32], usize) -> Compressed;
        type Decompress = fn(&[f32], &[u32], usize) -> Vec<f32>;
        let wrong: [(Compress, Decompress, &str); 15] = [
            (|d, c| by(d, c, |_| [0, 1], lowest), decompress, "does not give the group back"),
            (
                |d, c| by(d, c, first_places, |m, v, p| m[v / 16] |= (p as u32) << (30 - v % 16 * 2)),
                decompress,
                "does not give the group back",
            ),
            // Four bits for a place.
            (
                |d, c| by(d, c, first_places, |m, v, p| m[v / 16] |= (p as u32).wrapping_shl(v as u32 % 8 * 4)),
                decompress,
                "does not give the group back",
            ),
            (
                |d, c| {
                    by(
                        d,
                        c,
                        |four| {
                            let [a, b] = first_places(four);
                            [b, a]
                        },
                        lowest,
                    )
                },
                decompress,
                "the smaller one first",
            ),
            // One number: both values at its place, the second one 0.
            (
                |d, c| {
                    let (mut values, metadata) = by(
                        d,
                        c,
                        |four| match (0..4).filter(|&at| four[at] != 0.0).collect::<Vec<_>>()[..] {
                            [at] => [at, at],
                            _ => first_places(four),
                        },
                        lowest,
                    )?;
                    for i in (1..values.len()).step_by(2) {
                        if place(&metadata, i) == place(&metadata, i - 1) {
                            values[i] = 0.0;
                        }
                    }
                    Ok((values, metadata))
                },
                decompress,
                "two different places",
            ),
            // Only what is not 0.
            (
                |d, c| {
                    compress(d, c)
                        .map(|(values, metadata)| (values.into_iter().filter(|x| *x != 0.0).collect(), metadata))
                },
                decompress,
                "keeps zeros",
            ),
            (|d, _| Ok(reference(&crate::check::sparsity::tests::pruned(d))), decompress, "a number is lost"),
            (|d, c| compress(d, c).map_err(|(row, group)| (0, row * c / 4 + group)), decompress, "another group"),
            (|d, c| compress(d, c).map_err(|(row, group)| (row, 4 * group)), decompress, "another group"),
            (
                |d, c| match d.chunks(4).position(|four| four.iter().filter(|x| **x != 0.0).count() > 1) {
                    Some(group) => Err((4 * group / c, group % (c / 4))),
                    None => compress(d, c),
                },
                decompress,
                "which count is too many",
            ),
            (|_, _| todo!(), decompress, "instead of panicking"),
            (compress, |values, _, _| values.iter().flat_map(|x| [*x, 0.0]).collect(), "another place"),
            (compress, |values, m, c| decompress(values, m, c)[1..].to_vec(), "the zeros are part"),
            // Cheats: the matrix itself as values; a pair that agrees with nobody else.
            (|d, _| Ok((d.to_vec(), Vec::new())), |values, _, _| values.to_vec(), "values need"),
            (
                |d, c| compress(d, c).map(|(v, m)| (v, m.into_iter().map(|word| !word).collect())),
                |v, m, c| decompress(v, &m.iter().map(|word| !word).collect::<Vec<_>>(), c),
                "does not give the group back",
            ),
        ];
        for (index, (compress, decompress, said)) in wrong.into_iter().enumerate() {
            let text = two_four(compress, decompress).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{index}: {text}");
        }
    }

    /// The first two numbers of each group.
    pub(super) fn pruned(dense: &[f32]) -> Vec<f32> {
        let keep = |four: &[f32]| {
            let mut left = 2;
            four.iter()
                .map(|x| {
                    let kept = *x != 0.0 && left > 0;
                    left -= usize::from(kept);
                    if kept { *x } else { 0.0 }
                })
                .collect::<Vec<f32>>()
        };
        dense.chunks(4).flat_map(keep).collect()
    }

    #[test]
    fn break_even_is_worked_out() {
        let right = [Some(20.0), Some(2.70)];
        assert!(break_even(right).passed(), "{}", break_even(right).text());
        for (answer, said) in [
            ([None, None], "no number yet"),
            ([Some(33.3), None], "Values have 8 bits here"),
            ([Some(16.7), None], "8 on both sides"),
            ([Some(25.0), None], "no value"),
            ([Some(50.0), None], "how many bytes"),
            ([Some(80.0), None], "how many zeros"),
            ([Some(0.2), None], "in percent"),
            ([Some(41.0), None], "as functions of the density"),
            ([Some(f64::NAN), None], "is no answer"),
            ([Some(20.0), None], "with x: no number yet"),
            ([Some(20.0), Some(20.0)], "leaves x out"),
            ([Some(20.0), Some(11.1)], "how many does memory hand out"),
            ([Some(20.0), Some(3.12)], "besides the entry itself"),
            ([Some(20.0), Some(2.78)], "also has a value"),
            ([Some(20.0), Some(97.3)], "how many zeros"),
            ([Some(20.0), Some(f64::INFINITY)], "is no answer"),
        ] {
            let text = break_even(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer:?}: {text}");
        }
    }

    #[test]
    fn bytes_of_two_four_are_worked_out() {
        let right = [Some(1.78), Some(1.333)];
        assert!(two_four_bytes(right).passed(), "{}", two_four_bytes(right).text());
        for (answer, said) in [
            ([None, None], "16 bits: no number yet"),
            ([Some(2.0), None], "besides them"),
            ([Some(0.5625), None], "share of the bytes"),
            ([Some(1.6), None], "only the values that are kept"),
            ([Some(1.88), None], "more than one bit"),
            ([Some(1.333), Some(1.333)], "what 4 bits give"),
            ([Some(1.7), None], "a group of four"),
            ([Some(1.78), None], "4 bits: no number yet"),
            ([Some(1.78), Some(2.0)], "besides them"),
            ([Some(1.78), Some(0.75)], "share of the bytes"),
            ([Some(1.78), Some(1.0)], "only the values that are kept"),
            ([Some(1.78), Some(1.78)], "however few"),
            ([Some(1.78), Some(1.6)], "values of 8 bits"),
            // Cheats.
            ([Some(f64::NAN), None], "is no answer"),
            ([Some(1.78), Some(f64::INFINITY)], "is no answer"),
        ] {
            let text = two_four_bytes(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer:?}: {text}");
        }
    }
}
