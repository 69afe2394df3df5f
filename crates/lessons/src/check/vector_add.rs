//! An exercise of lesson 10: a kernel that the learner writes, run in the simulator, which sees every access.

use super::Verdict;
use super::kernels::{self, shared_out, telling, unchanged};
use super::verdict::{Check, none_told, told};
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// Threads of a block.
const BLOCK: u32 = 256;
/// Whole warps and blocks: only with these are work and sectors judged.
const WHOLE: [usize; 2] = [1024, 8192];

/// Checks a kernel `scale(const float *x, float *y, int n)` that sets `y[i]` to `2 * x[i]`, launched with one thread for four
/// elements: as few sectors a request as there can be.
pub fn scale(source: &str) -> Verdict {
    kernels::verdict("scale", source, "scale", mistake_hint, |gpu, kernel| {
        // The last one is several blocks, of four elements per thread.
        for n in [WHOLE[0], 1, 31, 33, 1000, 5000, WHOLE[1]] {
            let seen = doubled(gpu, kernel, n)?;
            if WHOLE.contains(&n) {
                shared_out(&seen, 0.5)?;
                scattered(&seen, n)?;
            }
        }
        Ok(())
    })
}

/// What the launch did, or what is wrong with its result.
fn doubled(gpu: &Gpu, kernel: &Kernel, n: usize) -> Check<Inspection> {
    let x = telling(n, 1);
    let (on_x, mut on_y) = (gpu.to_device(&x)?, gpu.poison::<f32>(n)?);
    let config = LaunchConfig::for_elements(n.div_ceil(4), BLOCK);
    // First as any launch: its mistakes come as an error.
    kernel.launch(config, (&on_x, &mut on_y, n as i32))?;
    let expected: Vec<f32> = x.iter().map(|x| 2.0 * x).collect();
    none_told(
        first_wrong(n, &on_y.to_host()?, &expected),
        "each thread of the launch takes four elements, and together they should take each one once",
        "write down the four elements of thread 0 and of thread 1: how far apart are the four of one thread?",
    )?;
    unchanged("x", &on_x, &x)?;
    Ok(kernel.inspect(config, (&on_x, &mut on_y, n as i32))?)
}

/// Where more is fetched than must be: only whole warps are judged.
fn scattered(seen: &Inspection, n: usize) -> Check {
    let bytes = n as u64 * 4;
    let c = &seen.counters;
    let all = [
        ("loads", c.global_load_requests, c.global_load_sectors),
        ("stores", c.global_store_requests, c.global_store_sectors),
    ];
    for (what, requests, sectors) in all {
        // One sector for every 32 bytes of the array, touched once.
        if sectors > bytes.div_ceil(32) {
            let each = sectors as f64 / requests as f64;
            // A warp whose neighbours begin inside a sector touches five for its four.
            let hint = match (4.0..=5.0).contains(&each) {
                true => {
                    "the lanes are neighbours, but lane 0 is to begin where a sector does: at a multiple of 8 elements"
                }
                false => {
                    "neighbouring lanes must take neighbouring elements in each step: then the four elements of one thread lie far apart"
                }
            };
            let worst = kernels::scattered(seen).map_or(String::new(), |worst| format!("\n{worst}"));
            return told(
                format!(
                    "with n = {n} its {what} make {requests} requests and touch {sectors} sectors, {each:.1} a request; \
                     the array has {} sectors{worst}",
                    bytes.div_ceil(32)
                ),
                "memory comes in sectors of 32 bytes: some of them are fetched several times, since the lanes of one request \
                 use only a part of each",
                hint,
            );
        }
    }
    Ok(())
}

/// Equal but for rounding; NaN is never.
fn near(given: f32, expected: f32) -> bool {
    given == expected || (given - expected).abs() <= 1e-5 * expected.abs().max(1.0)
}

/// The first element that is not as it should be, in words.
fn first_wrong(n: usize, given: &[f32], expected: &[f32]) -> Option<String> {
    let at = given.iter().zip(expected).position(|(&given, &expected)| !near(given, expected))?;
    let count = given.iter().zip(expected).filter(|(given, expected)| !near(**given, **expected)).count();
    let is = kernels::left(given[at]);
    Some(format!("with n = {n} element {at} {is}, and it should be {}; {count} of {n} are wrong", expected[at]))
}

/// What to ask oneself about the first mistake; this kernel needs no threads that work together.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::GlobalRace, Kind::SharedRace]) {
        "two threads meet at one element, and each is to have its own: which elements do these two take?"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "no thread needs what another one computes here: the kernel can do without a barrier"
    } else if is(&[Kind::UninitialisedRead]) {
        "nothing was put there before the launch: does the kernel have to read it?"
    } else {
        "do the sum for that block and thread by hand: which element is its own, and does it exist?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::{expect, passes};

    const SCALE: &str = "extern \"C\" __global__ void scale(const float *x, float *y, int n) {
    int threads = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) { y[i] = 2.0f * x[i]; }
}";

    #[test]
    fn what_is_wrong_comes_first_and_ideas_when_asked_for() {
        let verdict = scale(&SCALE.replace("y[i] = ", "y[i / 2] = "));
        let shown = verdict.shown();
        assert!(shown.contains("`scale` has") && shown.contains("data race in global memory"), "{shown}");
        assert!(!shown.contains("next:"), "{shown}");
        let meaning = verdict.clone().hint();
        assert!(meaning.text().contains("nothing says who is first"), "{}", meaning.text());
        assert!(meaning.hint().text().contains("which elements do these two take"), "{}", verdict.text());
    }

    #[test]
    fn scale_counts_sectors() {
        let pieces = "int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int i = first; i < first + 4 && i < n; ++i)";
        // Right with one block.
        let within_block =
            "for (int k = 0, i = blockIdx.x * blockDim.x + threadIdx.x; k < 4 && i < n; ++k, i += blockDim.x)";
        let begin = "for (int i = ";
        let off_by_one = format!("if (blockIdx.x + threadIdx.x == 0) {{ y[0] = 2.0f * x[0]; }} {begin}1 + ");
        let strided = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads)";
        let first = "int t = blockIdx.x * blockDim.x + threadIdx.x;";
        expect(
            scale,
            SCALE,
            &[
                (strided, pieces, "touch 512 sectors, 16.0 a request"),
                ("; i < n; i += threads", "; i < n; i += n", "never written"),
                ("; i < n;", "; i <= n;", "past the end"),
                ("2.0f", "3.0f", "element 0 is"),
                (strided, within_block, "with n = 5000 element 2048 was never written"),
                (strided, pieces, "one request touches 16 sectors, and its bytes fill 4"),
                (begin, &off_by_one, "begin where a sector does"),
                // One thread, one warp, one block does all; the input is changed; the output only looks right.
                (strided, &format!("{first} if (t == 0) for (int i = 0; i < n; ++i)"), "the work is not shared out"),
                (
                    strided,
                    &format!("{first} if (t < 32) for (int i = t; i < n; i += 32)"),
                    "the work is not shared out",
                ),
                (
                    strided,
                    &format!("{first} if (t < 256) for (int i = t; i < n; i += 256)"),
                    "the work is not shared out",
                ),
                ("2.0f * x[i]", "2.0f * x[i]; ((float *)x)[i] = y[i]", "the input `x` has changed"),
                ("2.0f * x[i]", "x[i] / x[i] * 2.0f", "element"),
            ],
        );
        // Wide loads are as good.
        let wide = "extern \"C\" __global__ void scale(const float *x, float *y, int n) {
        int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
        if (i + 3 < n) {
            float4 v = *(const float4 *)(x + i);
            *(float4 *)(y + i) = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
        } else { for (; i < n; ++i) { y[i] = 2 * x[i]; } }
    }";
        let backwards = SCALE.replace("y[i] = 2.0f * x[i];", "int k = n - 1 - i; y[k] = x[k] + x[k];");
        passes(scale, &[wide, &backwards]);
    }
}
