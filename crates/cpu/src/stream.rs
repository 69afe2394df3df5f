//! Work that only memory limits: an element-wise sum and a copy.

use super::simd::widest;
use super::{CHUNK, WORTH_SHARING};
use gpulab_measure::Result;
use gpulab_measure::error::same_length;
use rayon::prelude::*;

/// `c[i] = a[i] + b[i]`, on all cores. Moves 12 bytes per element: two reads and one write
/// (most CPUs read `c`'s lines too before they write them).
///
/// # Errors
/// [`Error::LengthMismatch`](gpulab_measure::Error::LengthMismatch) when the three lengths differ.
pub fn vector_add(a: &[f32], b: &[f32], c: &mut [f32]) -> Result<()> {
    check_lengths(a, b, c)?;
    if a.len() < WORTH_SHARING {
        add_chunk(a, b, c);
        return Ok(());
    }
    let chunks = a.par_chunks(CHUNK).zip(b.par_chunks(CHUNK)).zip(c.par_chunks_mut(CHUNK));
    chunks.for_each(|((a, b), c)| add_chunk(a, b, c));
    Ok(())
}

/// The same on one core.
///
/// # Errors
/// As [`vector_add`].
pub fn vector_add_one_core(a: &[f32], b: &[f32], c: &mut [f32]) -> Result<()> {
    check_lengths(a, b, c)?;
    add_chunk(a, b, c);
    Ok(())
}

/// Copies `from` to `to`, on all cores. Moves 8 bytes per element.
///
/// # Errors
/// [`Error::LengthMismatch`](gpulab_measure::Error::LengthMismatch) when the lengths differ.
pub fn copy(from: &[f32], to: &mut [f32]) -> Result<()> {
    same_length("the copy's target", from.len(), to.len())?;
    if from.len() < WORTH_SHARING {
        to.copy_from_slice(from);
        return Ok(());
    }
    // A piece a thread: the system's copy goes past the caches only when it is asked for much at once.
    let piece = from.len().div_ceil(rayon::current_num_threads());
    from.par_chunks(piece).zip(to.par_chunks_mut(piece)).for_each(|(from, to)| to.copy_from_slice(from));
    Ok(())
}

/// The same on one core.
///
/// # Errors
/// As [`copy`].
pub fn copy_one_core(from: &[f32], to: &mut [f32]) -> Result<()> {
    same_length("the copy's target", from.len(), to.len())?;
    to.copy_from_slice(from);
    Ok(())
}

fn check_lengths(a: &[f32], b: &[f32], c: &[f32]) -> Result<()> {
    same_length("vector_add's second input", a.len(), b.len())?;
    same_length("vector_add's output", a.len(), c.len())
}

widest!(fn add_chunk(a: &[f32], b: &[f32], c: &mut [f32]) = add_elements);

#[inline(always)]
fn add_elements(a: &[f32], b: &[f32], c: &mut [f32]) {
    for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
        *c = a + b;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random_f32;

    #[test]
    fn every_element_is_written_at_any_length() {
        for n in [0, 1, 31, 33, CHUNK + 1, WORTH_SHARING - 1, WORTH_SHARING, WORTH_SHARING + CHUNK + 3] {
            let (a, b) = (random_f32(n, 1), random_f32(n, 2));
            let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
            for add in [vector_add, vector_add_one_core] {
                let mut c = vec![f32::NAN; n];
                add(&a, &b, &mut c).unwrap();
                assert_eq!(c, expected, "n = {n}");
            }
            for copy in [copy, copy_one_core] {
                let mut c = vec![f32::NAN; n];
                copy(&a, &mut c).unwrap();
                assert_eq!(c, a, "n = {n}");
            }
        }
    }

    #[test]
    fn lengths_that_differ_are_named() {
        let text = vector_add(&[1.0; 3], &[1.0; 3], &mut [0.0; 2]).unwrap_err().to_string();
        assert!(text.contains("output: 3 elements expected, 2 given"), "{text}");
        assert!(vector_add_one_core(&[1.0; 3], &[1.0; 4], &mut [0.0; 3]).is_err());
        assert!(copy(&[1.0; 3], &mut [0.0; 4]).is_err() && copy_one_core(&[1.0; 3], &mut []).is_err());
    }
}
