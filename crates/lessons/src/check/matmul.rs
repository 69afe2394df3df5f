//! Exercises of lessons 12a to 12d: products of matrices, run in the simulator, which finds races and counts what memory serves;
//! questions on paper; and kernels with a mistake whose source stays hidden until the mistake is named.

mod hopper;
mod pipelines;
mod tensor_cores;
mod tiles;

pub use hopper::{RingFault, RingReport, RingSuspect, narrow_product, ring_suspect, wgmma_tile};
pub use pipelines::{LOOP_TOOLS, ShareSuspect, product_loop, share_suspect, wave_share};
pub use tensor_cores::{ErrorSuspect, error_suspect, first_bank, mma_tile};
pub use tiles::{TileSuspect, memory_limit, product, tile_suspect};

use super::kernels::{self, first_wrong, whole};
use super::verdict::{Check, none_wrong, told, wrong};
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// Rows, columns and the length of the sums.
type Shape = (usize, usize, usize);

/// What is wrong with a kernel whose source is hidden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Not decided yet.
    Unknown,
    /// The lanes of a warp load from addresses that lie far apart.
    LanesApart,
    /// Lanes wait for one another at a bank of shared memory.
    BankConflicts,
    /// The sums do not lie in registers.
    Spills,
    /// Barriers in the inner loop.
    Barriers,
    /// Rows and columns beyond the matrix are counted, or forgotten.
    Edges,
    /// Two threads write one word.
    Race,
    /// A share of the steps that ends within a tile.
    CutTiles,
    /// A share of the steps that covers more than two tiles.
    LongShares,
    /// Both factors are rounded to 16 bits.
    RoundedInputs,
    /// Partial sums are rounded to 16 bits.
    RoundedSums,
    /// Lanes hold other elements than the instruction takes them for.
    Fragments,
}

/// The answer to a question on paper: a number near `right`. The first hint is what one of the `known` wrong numbers leaves out,
/// the second one, `idea`, how to go on.
fn on_paper(answer: Option<f64>, right: f64, known: &[(f64, &'static str)], unit: &str, idea: &'static str) -> Check {
    let Some(answer) = answer else {
        return wrong("no number yet", "work it out on paper, then write `Some(…)`");
    };
    let near = |value: f64| (answer - value).abs() <= 0.01 * value.abs().max(0.5);
    if near(right) {
        return Ok(());
    }
    let slip = known.iter().find(|one| near(one.0)).map(|one| one.1);
    told(
        format!("{answer} {unit} is not it"),
        slip.unwrap_or("write the sum down with its units: which of them is left over at the end?"),
        idea,
    )
}

/// The result of a product, by a plain loop.
fn reference(a: &[f32], b: &[f32], (m, n, k): Shape) -> Vec<f32> {
    let at = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    (0..m * n).map(at).collect()
}

/// What a launch did that multiplied two matrices, or what is wrong with its result.
fn multiplied(gpu: &Gpu, kernel: &Kernel, config: LaunchConfig, shape: Shape, hint: &'static str) -> Check<Inspection> {
    let (m, n, k) = shape;
    let (a, b) = (whole(m * k, 1), whole(k * n, 2));
    let (on_a, on_b, mut c) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.poison::<f32>(m * n)?);
    let sides = (m as i32, n as i32, k as i32);
    // First as any launch: its mistakes come as an error.
    kernel.launch(config, (&on_a, &on_b, &mut c, sides.0, sides.1, sides.2))?;
    right_product(&c.to_host()?, &a, &b, shape, hint)?;
    if on_a.to_host()? != a || on_b.to_host()? != b {
        return wrong(format!("with {}: the kernel changed `a` or `b`", named(shape)), "write to `c` alone");
    }
    Ok(kernel.inspect(config, (&on_a, &on_b, &mut c, sides.0, sides.1, sides.2))?)
}

/// The first element that is wrong, and how many are.
fn right_product(given: &[f32], a: &[f32], b: &[f32], shape: Shape, hint: &'static str) -> Check {
    let place = |at: usize| format!("row {}, column {}", at / shape.1, at % shape.1);
    none_wrong(first_wrong(&named(shape), given, &reference(a, b, shape), place), hint)
}

fn named((m, n, k): Shape) -> String {
    format!("m, n, k = {m}, {n}, {k}")
}

/// What to ask oneself about the first mistake of threads that share tiles.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::SharedRace]) && reads_too_early(error) {
        "a thread reads what another one has perhaps not written yet: who wrote it, and what makes this thread wait?"
    } else if is(&[Kind::SharedRace]) {
        "a thread writes where another one perhaps still reads: who reads it, and what makes this thread wait?"
    } else if is(&[Kind::Unfinished]) {
        "the copy may still be in flight: which thread waits for it, and what makes the others wait for that thread?"
    } else if is(&[Kind::UninitialisedRead]) {
        "nobody wrote that word before it was read: which thread should have, also where its element lies beyond the matrix?"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "every thread of the block must come by the barrier, also one whose element does not exist"
    } else if is(&[Kind::GlobalRace]) {
        "two threads write one element of the result: which rows are this thread's, and which its neighbour's?"
    } else if is(&[Kind::Misaligned]) {
        "16 bytes are read at multiples of 16: what is the length of a row, in bytes?"
    } else {
        "work the index out by hand for that block and thread: which element is it, and does it exist?"
    }
}

/// Whether a race is one of a thread that reads what another wrote. The others are of threads that write too early.
fn reads_too_early(error: &Error) -> bool {
    let Error::Mistakes { shown, .. } = error else { return false };
    shown.iter().flat_map(|mistake| &mistake.what).any(|what| what.starts_with("reads"))
}

/// That a wrong answer is told so, and where.
#[cfg(test)]
fn red(verdict: &super::Verdict, said: &str) {
    let text = verdict.text();
    assert!(text.starts_with("NOT YET") && text.contains(said), "`{said}` is not said: {text}");
}
