//! One rung of the rotary position embedding, ready to run and to time on a GPU.

use super::rows::{self, in_f64, sides};
use super::{Allocation, Array, Cost, HostArray, Launches, Reference, Size, Topic, compiled, spread_rows};
use crate::ladder::Rung;
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::measurement::Summary;

/// Numbers of one attention head, as in Llama.
const HEAD: usize = 128;

/// Operations on an element: two products, one sum.
const OPERATIONS: f64 = 3.0;

/// Rows, heads, and numbers of a head that a new kernel is checked at.
const AWKWARD: [(usize, usize, usize); 5] = [(1, 1, 2), (31, 3, 6), (33, 5, 64), (65, 3, HEAD), (7, 3, 48)];

/// A rope kernel of the course on one GPU: turns each pair of numbers of `q` and `k` by the angle of its position (its
/// row) and its place in the head, from bf16 to bf16 (`u16` to the host), in f32 between: 8 bytes an element of `q`.
/// Where nobody says how long a head is, it has 128 numbers, or as many less as make rows of whole heads.
#[derive(Debug, Clone)]
pub struct Rope {
    gpu: Gpu,
    rung: Rung,
    kernel: Kernel,
}

/// The cosines and sines of all rows, `rows × head / 2` each, on the GPU.
#[derive(Debug)]
pub struct Angles {
    /// Numbers of a head.
    pub head: usize,
    /// Cosines, row-major.
    pub cosines: Buffer<f32>,
    /// Sines, row-major.
    pub sines: Buffer<f32>,
}

impl Rope {
    /// Compiles the rung of that path, such as `rope/02_eight_pairs`, and checks it against the CPU in f64.
    ///
    /// ```no_run
    /// use gpulab::prelude::*;
    /// use gpulab_kernels::*;
    /// let gpu = Gpu::open()?;
    /// let rope = Rope::new(&gpu, "rope/02_eight_pairs")?;
    /// println!("{} ms", rope.time(32_768, 8192, &Bench::default())?);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] for a path that is none, or a kernel whose result is wrong; [`Error::Unsupported`] for a GPU
    /// that is too old for it; the errors of [`Gpu::compile`].
    pub fn new(gpu: &Gpu, path: &str) -> Result<Rope> {
        let (rung, kernel) = compiled(gpu, path)?;
        let rope = Rope { gpu: gpu.clone(), rung, kernel };
        for (rows, heads, head) in AWKWARD {
            let (q, k) = (cpu::random_bf16(rows * heads * head, 1), cpu::random_bf16(rows * heads * head, 2));
            let (q_turned, k_turned) = rope.turn(&q, &k, heads * head, head)?;
            agree(path, "q", &q_turned, &q, (heads * head, head))?;
            agree(path, "k", &k_turned, &k, (heads * head, head))?;
        }
        Ok(rope)
    }

    /// The table of angles for so many rows, on the GPU. Row r stands at position r; pair i of its heads is turned by
    /// r · 10000^(-2i / head). Computed in f64.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a head of 0 or of an odd number, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn angles(&self, rows: usize, head: usize) -> Result<Angles> {
        even(head)?;
        let (cosines, sines) = tables(rows, head);
        Ok(Angles { head, cosines: self.gpu.to_device(&cosines)?, sines: self.gpu.to_device(&sines)? })
    }

    /// All four steps: allocates, copies `q` and `k` to the device, launches, and copies both back, turned.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] when `q` and `k` are not both of the same number of whole rows, [`Error::Invalid`]
    /// when a row is not of whole heads, [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn turn(&self, q: &[u16], k: &[u16], columns: usize, head: usize) -> Result<(Vec<u16>, Vec<u16>)> {
        let angles = self.angles(q.len().checked_div(columns).unwrap_or(0), head)?;
        // Poisoned: an element that the kernel forgets comes back as NaN.
        let (mut q_turned, mut k_turned) = (self.gpu.poison(q.len())?, self.gpu.poison(k.len())?);
        let (q, k) = (self.gpu.to_device(q)?, self.gpu.to_device(k)?);
        self.launch((&q, &k), &angles, (&mut q_turned, &mut k_turned), columns)?;
        Ok((q_turned.to_host()?, k_turned.to_host()?))
    }

    /// The kernel alone, by device events, in **ms a call**: everything is on the GPU already.
    /// Several sets are rotated, so that none is still in the cache from its last turn.
    ///
    /// # Errors
    /// As [`Rope::turn`].
    pub fn time(&self, rows: usize, columns: usize, plan: &Bench) -> Result<Summary> {
        self.gpu.has_times()?;
        let n = rows * columns;
        let count = self.gpu.sets_past_cache(4 * n * size_of::<u16>());
        let angles = self.angles(rows, head_of(columns)?)?;
        let random = |seed| self.gpu.to_device(&cpu::random_bf16(n, seed));
        let set = |seed| Ok((random(2 * seed)?, random(2 * seed + 1)?, self.gpu.alloc(n)?, self.gpu.alloc(n)?));
        let mut sets = (0..count as u64).map(set).collect::<Result<Vec<_>>>()?;
        self.gpu.time(plan, |call| {
            let (q, k, q_turned, k_turned) = &mut sets[call % count];
            self.launch((q, k), &angles, (q_turned, k_turned), columns)
        })
    }

    /// The launch alone, on the default stream: `q` and `k` are rows of `columns` numbers, row r at position r.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] and [`Error::Invalid`] as for [`Rope::turn`], before anything runs; the errors of
    /// [`Kernel::launch`].
    pub fn launch(
        &self,
        (q, k): (&Buffer<u16>, &Buffer<u16>),
        angles: &Angles,
        turned: (&mut Buffer<u16>, &mut Buffer<u16>),
        columns: usize,
    ) -> Result<()> {
        let Angles { head, cosines, sines } = angles;
        self.launch_by(&mut Launches::queue(), (q, k), (cosines, sines), turned, (columns, *head))
    }

    fn launch_by(
        &self,
        launches: &mut Launches,
        (q, k): (&Buffer<u16>, &Buffer<u16>),
        (cosines, sines): (&Buffer<f32>, &Buffer<f32>),
        (q_turned, k_turned): (&mut Buffer<u16>, &mut Buffer<u16>),
        (columns, head): (usize, usize),
    ) -> Result<()> {
        even(head)?;
        if !columns.is_multiple_of(head) {
            return Err(Error::Invalid {
                what: format!("rope: rows of {columns} numbers are not of whole heads of {head}"),
                fix: "let a row be the number of heads times the numbers of a head".to_string(),
            });
        }
        let rows = q.len().checked_div(columns).unwrap_or(0);
        let lengths = [
            ("q", q.len(), rows * columns),
            ("k", k.len(), q.len()),
            ("result for q", q_turned.len(), q.len()),
            ("result for k", k_turned.len(), q.len()),
            ("cosines", cosines.len(), rows * head / 2),
            ("sines", sines.len(), rows * head / 2),
        ];
        for (what, given, expected) in lengths {
            if given != expected {
                return Err(Error::LengthMismatch { what: format!("rope's {what}"), expected, given });
            }
        }
        // Nothing to turn; a launch has at least one block.
        if rows == 0 {
            return Ok(());
        }
        let config = self.rung.launch(columns, rows, self.gpu.multiprocessors());
        let (rows, columns) = sides(rows, columns)?;
        // Fits too: a row is of whole heads.
        let head = head as i32;
        launches.launch(&self.kernel, config, (q, k, cosines, sines, q_turned, k_turned, rows, columns, head))
    }
}

/// A size is (rows, columns). The arrays are q, k, cosines and sines; and q and k, turned.
impl Topic for Rope {
    fn work(&self, size: Size) -> Result<Cost> {
        let (rows, columns) = size.two()?;
        head_of(columns)?;
        sides(rows, columns)?;
        let n = rows * columns;
        Ok(Cost::of_bytes(8 * n, 2.0 * OPERATIONS * n as f64, "bf16"))
    }

    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>> {
        let (rows, columns) = size.two()?;
        let random = |seed| HostArray::Bf16(cpu::random_bf16(rows * columns, seed));
        let (cosines, sines) = tables(rows, head_of(columns)?);
        Ok(vec![random(2 * seed), random(2 * seed + 1), HostArray::F32(cosines), HostArray::F32(sines)])
    }

    fn outputs(&self, size: Size) -> Result<Vec<Allocation>> {
        let (rows, columns) = size.two()?;
        Ok(vec![Allocation::Bf16(rows * columns); 2])
    }

    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()> {
        let (_, columns) = size.two()?;
        let (given, angles) = ((inputs[0].bf16()?, inputs[1].bf16()?), (inputs[2].f32()?, inputs[3].f32()?));
        let [q, k] = outputs else { unreachable!("`outputs` asks for two arrays") };
        self.launch_by(launches, given, angles, (q.bf16_mut()?, k.bf16_mut()?), (columns, head_of(columns)?))
    }

    fn exact(&self, inputs: &[HostArray], size: Size) -> Result<Vec<Reference>> {
        let (rows, columns) = size.two()?;
        let head = head_of(columns)?;
        let row_of = |row: usize, output: usize| {
            let values = turned_row(row, |at| inputs[output].get(at), (columns, head));
            Reference { output, from: row * columns, values }
        };
        Ok(spread_rows(rows, 16).into_iter().flat_map(|row| [row_of(row, 0), row_of(row, 1)]).collect())
    }
}

fn even(head: usize) -> Result<()> {
    match head > 0 && head.is_multiple_of(2) {
        true => Ok(()),
        false => Err(Error::Invalid {
            what: format!("rope: a head of {head} numbers has no pairs"),
            fix: "take heads of an even number, such as 128".to_string(),
        }),
    }
}

/// How long a head is, where only the row's length is known.
fn head_of(columns: usize) -> Result<usize> {
    (2..=HEAD).rev().step_by(2).find(|&head| columns.is_multiple_of(head)).ok_or_else(|| Error::Invalid {
        what: format!("rope: a row of {columns} numbers has no pairs"),
        fix: "take rows of an even number, such as 8192".to_string(),
    })
}

/// The cosines and sines of so many rows.
fn tables(rows: usize, head: usize) -> (Vec<f32>, Vec<f32>) {
    let speeds: Vec<f64> = (0..head / 2).map(|i| speed(i, head)).collect();
    let angles = (0..rows).flat_map(|row| speeds.iter().map(move |speed| row as f64 * speed));
    angles.map(|angle| (angle.cos() as f32, angle.sin() as f32)).unzip()
}

/// By how much one position turns pair i of a head, in radians.
fn speed(i: usize, head: usize) -> f64 {
    10_000.0_f64.powf(-2.0 * i as f64 / head as f64)
}

/// What stands at that place of the matrix after the turn, in f64.
fn turned(at: usize, x: impl Fn(usize) -> f64, (columns, head): (usize, usize)) -> f64 {
    let (row, column, half) = (at / columns, at % columns, head / 2);
    let (sine, cosine) = (row as f64 * speed(column % half, head)).sin_cos();
    match column % head < half {
        true => x(at) * cosine - x(at + half) * sine,
        false => x(at) * cosine + x(at - half) * sine,
    }
}

/// A row of the matrix after the turn.
fn turned_row(row: usize, x: impl Fn(usize) -> f64, (columns, head): (usize, usize)) -> Vec<f64> {
    (row * columns..(row + 1) * columns).map(|at| turned(at, &x, (columns, head))).collect()
}

/// Compares with the turned pairs in f64. The table and the three operations in f32 are off by at most 2⁻²² of what they
/// add, which is below 2.
fn agree(path: &str, name: &str, given: &[u16], x: &[u16], (columns, head): (usize, usize)) -> Result<()> {
    let x = in_f64(x);
    for (row, given) in given.chunks(columns).enumerate() {
        let exact = turned_row(row, |at| x[at], (columns, head));
        let place = format!("{name}, heads of {head}, row {row}");
        rows::agree(path, &place, given, &exact, |_| 2.0_f64.powi(-21))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
