//! What a rank can do, whatever it is.

use crate::bf16::BFloat16;
use gpulab_measure::Result;
use std::fmt::Debug;

/// How the numbers of all ranks become one.
///
/// # Examples
/// ```
/// use gpulab_ranks::{Collectives, Op, World};
/// let run = World::new(3).run(|rank| {
///     let mut numbers = [rank.rank() as f32, 1.0];
///     rank.all_reduce(&mut numbers[..], Op::Max)?;
///     Ok(numbers)
/// });
/// assert_eq!(run.unwrap().results, [[2.0, 1.0]; 3]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Their sum.
    Sum,
    /// Their sum, divided by the number of ranks at the end.
    Avg,
    /// The largest.
    Max,
    /// The smallest.
    Min,
}

impl Op {
    /// `sum`, `avg` …
    pub fn name(self) -> &'static str {
        match self {
            Op::Sum => "sum",
            Op::Avg => "avg",
            Op::Max => "max",
            Op::Min => "min",
        }
    }
}

/// A number that ranks exchange.
pub trait CollectiveElement: Copy + PartialEq + PartialOrd + Debug + Default + Send + Sync + 'static {
    /// Rust's name of the type.
    const NAME: &'static str;

    /// Makes each number of `own` and its neighbour in `theirs` one; [`Op::Avg`] adds here, and divides in [`CollectiveElement::divide`].
    fn reduce(own: &mut [Self], theirs: &[Self], op: Op);

    /// Divides each number by the number of ranks; whole numbers are rounded towards 0.
    fn divide(data: &mut [Self], by: usize);

    /// The numbers as bytes, the lowest byte of each first.
    fn to_bytes(data: &[Self]) -> Vec<u8>;

    /// The numbers of [`CollectiveElement::to_bytes`].
    fn from_bytes(bytes: &[u8]) -> Vec<Self>;
}

// Over slices of one type, and not generic: so the loops are compiled here, optimised, and not again in each cell that calls them.
macro_rules! element {
    ($($kind:ident $bits:ident $to_bits:expr, $from_bits:expr, $add:expr, $divide:expr);*) => {$(
        impl CollectiveElement for $kind {
            const NAME: &'static str = stringify!($kind);

            fn reduce(own: &mut [Self], theirs: &[Self], op: Op) {
                let pairs = own.iter_mut().zip(theirs);
                match op {
                    Op::Sum | Op::Avg => pairs.for_each(|(a, b)| *a = $add(*a, *b)),
                    Op::Max => pairs.for_each(|(a, b)| if *b > *a { *a = *b }),
                    Op::Min => pairs.for_each(|(a, b)| if *b < *a { *a = *b }),
                }
            }

            fn divide(data: &mut [Self], by: usize) {
                data.iter_mut().for_each(|x| *x = $divide(*x, by));
            }

            fn to_bytes(data: &[Self]) -> Vec<u8> {
                data.iter().flat_map(|x| $bits::to_le_bytes($to_bits(*x))).collect()
            }

            fn from_bytes(bytes: &[u8]) -> Vec<Self> {
                let (numbers, _) = bytes.as_chunks();
                numbers.iter().map(|bytes| $from_bits($bits::from_le_bytes(*bytes))).collect()
            }
        }
    )*};
}

// Whole numbers wrap, as they do in NCCL; bf16 is rounded after each addition.
element!(
    f32 u32 f32::to_bits, f32::from_bits, |a, b| a + b, |x, by| x / by as f32;
    f64 u64 f64::to_bits, f64::from_bits, |a, b| a + b, |x, by| x / by as f64;
    i32 i32 |x| x, |x| x, i32::wrapping_add, |x, by| x / by as i32;
    i64 i64 |x| x, |x| x, i64::wrapping_add, |x, by| x / by as i64;
    u32 u32 |x| x, |x| x, u32::wrapping_add, |x, by| x / by as u32;
    u64 u64 |x| x, |x| x, u64::wrapping_add, |x, by| x / by as u64;
    BFloat16 u16 |x: BFloat16| x.0, BFloat16, |a: BFloat16, b: BFloat16| BFloat16::from_f32(a.to_f32() + b.to_f32()), |x: BFloat16, by| BFloat16::from_f32(x.to_f32() / by as f32)
);

/// One rank's place among the ranks of its group (a communicator, as MPI and NCCL call it).
///
/// # Errors
/// Every call fails once any rank of the world has failed, with an error that names that rank.
pub trait Communicator: Sized {
    /// This rank's number, from 0.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// Returns once all ranks have called it.
    #[track_caller]
    fn barrier(&self) -> Result<()>;

    /// The group of all ranks that give the same colour, with numbers from 0 in the old order.
    #[track_caller]
    fn split(&self, color: usize) -> Result<Self>;
}

/// The collectives of one rank over buffers of kind `B`: `[f32]` for a thread of the CPU, `gpulab::gpu::Buffer<f32>` for a GPU.
/// All ranks of a group make the same calls in the same order.
///
/// Code that is generic over it runs in both worlds:
/// ```
/// use gpulab_ranks::{Collectives, Op, World};
/// fn mean<B: ?Sized, R: Collectives<B>>(rank: &R, gradients: &mut B) -> gpulab_measure::Result<()> {
///     rank.all_reduce(gradients, Op::Avg)
/// }
/// let run = World::new(2).run(|rank| {
///     let mut x = [rank.rank() as f32, 5.0];
///     mean(rank, &mut x[..])?;
///     Ok(x)
/// })?;
/// assert_eq!(run.results[1], [0.5, 5.0]);
/// # Ok::<(), gpulab_measure::Error>(())
/// ```
///
/// # Errors
/// As [`Communicator`]; and where buffers do not fit together.
pub trait Collectives<B: ?Sized>: Communicator {
    /// Puts the reduced numbers of all ranks into the buffer of each.
    #[track_caller]
    fn all_reduce(&self, data: &mut B, op: Op) -> Result<()>;

    /// Reduces `data`, which is as long as the `own` of all ranks together, and gives rank `r` its `r`-th part.
    #[track_caller]
    fn reduce_scatter(&self, data: &B, own: &mut B, op: Op) -> Result<()>;

    /// Puts the `own` of all ranks, in the order of ranks, into the `all` of each.
    #[track_caller]
    fn all_gather(&self, own: &B, all: &mut B) -> Result<()>;

    /// Puts the numbers of rank `root` into the buffer of each.
    #[track_caller]
    fn broadcast(&self, data: &mut B, root: usize) -> Result<()>;

    /// Sends to one rank.
    #[track_caller]
    fn send(&self, data: &B, to: usize) -> Result<()>;

    /// Receives from one rank as many numbers as `data` has.
    #[track_caller]
    fn recv(&self, data: &mut B, from: usize) -> Result<()>;

    /// Sends and receives at the same time, so that neither waits for the other (`MPI_Sendrecv`; in NCCL both calls in a group).
    #[track_caller]
    fn send_recv(&self, data: &B, to: usize, received: &mut B, from: usize) -> Result<()>;
}
