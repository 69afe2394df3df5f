//! One rung of the rotary position embedding, ready to run and to time on a GPU.

use super::rows::{compared, rounding, sides, table};
use super::{Allocation, Array, Cost, HostArray, Launches, Loaded, Reference, Size, Topic, check, lengths};
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;

/// Numbers of one attention head, as in Llama.
const HEAD: usize = 128;

/// Operations on an element: two products, one sum.
const OPERATIONS: f64 = 3.0;

/// Rows and columns that a new kernel is checked at: one head of 2 numbers, 67 of 6, 4 of 80, 3 of 128, 3 of 86 and 131
/// of 64.
const AWKWARD: [(usize, usize); 6] = [(1, 2), (31, 402), (33, 320), (65, 3 * HEAD), (7, 258), (2, 8384)];

/// A rope kernel of the course on one GPU: rotates each pair of numbers of `q` and `k` by the angle of its position (its
/// row) and its place in the head, from bf16 to bf16 (`u16` to the host), in f32 between: 8 bytes per element of `q`.
/// A size is (rows, columns); a head has 128 numbers, or as many less as make rows of whole heads. The inputs are `q`, `k`
/// and the cosines and sines of all rows, `rows × head / 2` each.
#[derive(Debug, Clone)]
pub struct Rope(Loaded);

impl Rope {
    /// Compiles the rung of that path, such as `rope/02_eight_pairs`, and checks it against the CPU in f64.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::{topics::Topic, *};
    /// let gpu = Gpu::open()?;
    /// let rope = Rope::new(&gpu, "rope/02_eight_pairs")?;
    /// println!("{} ms", rope.time(Size::Two(32_768, 8192), &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, or a kernel whose result is wrong; [`Error::Unsupported`] for a GPU
    /// that is too old for it; the errors of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Rope> {
        let rope = Rope(Loaded::new(gpu, path)?);
        for size in AWKWARD {
            check(&rope, path, &rope.inputs(size.into(), 1)?, size)?;
        }
        Ok(rope)
    }
}

impl Topic for Rope {
    fn gpu(&self) -> &Gpu {
        &self.0.gpu
    }

    fn work(&self, size: Size) -> Result<Cost> {
        let (_, columns, n) = table(size)?;
        head_of(columns)?;
        Ok(Cost::of_bytes(8 * n, 2.0 * OPERATIONS * n as f64, "bf16"))
    }

    /// Row r stands at position r; pair i of its heads is turned by r · 10000^(-2i / head), computed in f64.
    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (rows, columns, n) = table(size)?;
        let head = head_of(columns)?;
        let random = |seed| HostArray::Bf16(cpu::random_bf16(n, seed));
        let speeds: Vec<f64> = (0..head / 2).map(|i| speed(i, head)).collect();
        let angles = (0..rows).flat_map(|row| speeds.iter().map(move |speed| row as f64 * speed));
        let (cosines, sines) = angles.map(|angle| (angle.cos() as f32, angle.sin() as f32)).unzip();
        Ok(vec![random(2 * seed), random(2 * seed + 1), HostArray::F32(cosines), HostArray::F32(sines)])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        Ok(vec![Allocation::Bf16(table(size)?.2); 2])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (rows, columns, n) = table(size)?;
        let head = head_of(columns)?;
        let (q, k, cosines, sines) = (inputs[0].bf16()?, inputs[1].bf16()?, inputs[2].f32()?, inputs[3].f32()?);
        let [q_rotated, k_rotated] = outputs else { unreachable!("`outputs` asks for two arrays") };
        let (q_rotated, k_rotated) = (q_rotated.bf16_mut()?, k_rotated.bf16_mut()?);
        let pairs = rows * head / 2;
        lengths("rope", &[("q", q.len(), n), ("k", k.len(), n)])?;
        lengths("rope", &[("cosines", cosines.len(), pairs), ("sines", sines.len(), pairs)])?;
        lengths("rope", &[("turned q", q_rotated.len(), n), ("turned k", k_rotated.len(), n)])?;
        let (row_count, column_count) = sides(rows, columns)?;
        let args = (q, k, cosines, sines, q_rotated, k_rotated, row_count, column_count, head as i32);
        self.0.launch(launches, columns, rows, args)
    }

    fn rows(&self, size: Size) -> Result<(usize, usize)> {
        compared(size)
    }

    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>> {
        let (_, columns) = size.two()?;
        let (from, head) = (row * columns, head_of(columns)?);
        let turned = |output: usize| {
            let at = (from..from + columns).map(|at| turned(at, |at| inputs[output].get(at), (columns, head)));
            // The table and the three operations in f32 are off by at most 2⁻²² of what they add, which is below 2.
            Reference::new(output, from, at.collect(), |_, exact| rounding(exact) + 2.0_f64.powi(-21))
        };
        Ok(vec![turned(0), turned(1)])
    }
}

/// How long a head is in rows of so many numbers.
fn head_of(columns: usize) -> Result<usize> {
    (2..=HEAD).rev().step_by(2).find(|&head| columns.is_multiple_of(head)).ok_or_else(|| Error::Invalid {
        what: format!("rope: a row of {columns} numbers has no pairs"),
        fix: "take rows of an even number, such as 8192".to_string(),
    })
}

/// The angle by which one position rotates pair i of a head, in radians.
fn speed(i: usize, head: usize) -> f64 {
    10_000.0_f64.powf(-2.0 * i as f64 / head as f64)
}

/// What stands at that place of the matrix after the rotation, in f64.
fn turned(at: usize, x: impl Fn(usize) -> f64, (columns, head): (usize, usize)) -> f64 {
    let (row, column, half) = (at / columns, at % columns, head / 2);
    let (sine, cosine) = (row as f64 * speed(column % half, head)).sin_cos();
    match column % head < half {
        true => x(at) * cosine - x(at + half) * sine,
        false => x(at) * cosine + x(at - half) * sine,
    }
}

#[cfg(test)]
mod tests;
