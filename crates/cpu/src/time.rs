//! Times of CPU work, by the rule of [`bench`](gpulab_measure::bench).

use gpulab_measure::Error;
use gpulab_measure::Result;
use gpulab_measure::bench::{self, Bench};
use gpulab_measure::measurement::Summary;
use std::hint::black_box;
use std::time::Instant;

/// What timed work may give back: anything that is plainly a result, or an error that stops the measurement.
///
/// So `|| cpu::sum(&x)` and `|| cpu::matmul(&a, &b, &mut c, n)` are both timed as they stand,
/// and a call that fails is never taken for a fast one.
pub trait TimedResult {
    /// The error, if the work failed.
    fn failure(self) -> Option<Error>;
}

impl<T, E: Into<Error>> TimedResult for std::result::Result<T, E> {
    fn failure(self) -> Option<Error> {
        self.err().map(Into::into)
    }
}

impl<T> TimedResult for Vec<T> {
    fn failure(self) -> Option<Error> {
        None
    }
}

macro_rules! never_fails {
    ($($plain:ty),*) => {
        $(impl TimedResult for $plain {
            fn failure(self) -> Option<Error> {
                None
            }
        })*
    };
}
never_fails!((), bool, f32, f64, u8, u32, u64, usize, i32, i64, String);

/// The time of one call of `work`, in **ms**, by `Instant`: median, p10, p90 and number of samples.
///
/// What `work` returns is kept from the optimiser, and so is its being called; still, return what you compute
/// (`|| cpu::sum(&x)`), because a result that nobody can see may never be computed.
///
/// # Examples
/// ```
/// use gpulab_cpu as cpu;
/// use gpulab_measure::bench::Bench;
/// let x = cpu::random_f32(10_000, 1);
/// let t = cpu::time(&Bench::default().samples(5), || cpu::sum(&x))?;
/// assert!(t.median > 0.0 && t.samples == 5);
/// # Ok::<(), gpulab_measure::Error>(())
/// ```
///
/// # Errors
/// The first error that `work` returns, and those of [`bench::run`].
pub fn time<R: TimedResult>(bench: &Bench, mut work: impl FnMut() -> R) -> Result<Summary> {
    bench::run(bench, |repeats| {
        let start = Instant::now();
        for _ in 0..repeats {
            if let Some(error) = black_box(work()).failure() {
                return Err(error);
            }
        }
        Ok(start.elapsed().as_secs_f64() * 1e3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_sleep_takes_as_long_as_it_says() {
        let t = time(&Bench::default().samples(5), || std::thread::sleep(Duration::from_millis(2))).unwrap();
        assert!(t.median >= 2.0 && t.samples == 5, "{t}");
    }

    #[test]
    fn a_failing_call_is_not_a_fast_one() {
        let mut c = vec![0.0; 3];
        let got = time(&Bench::default(), || crate::matmul(&[1.0; 4], &[1.0; 4], &mut c, 2));
        assert!(matches!(got, Err(Error::LengthMismatch { .. })), "{got:?}");
    }
}
