//! Exercises of lesson 10: kernels that the learner writes, run in the simulator, which sees every access.

use super::Verdict;
use super::kernels;
use super::verdict::{Check, none_wrong, wrong};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// The blocks that kernels are launched with here.
const BLOCK: u32 = 256;
/// One element, a warp and its neighbours, a few blocks with a ragged end.
const SIZES: [usize; 5] = [1, 31, 33, 256, 1000];
/// Whole warps and blocks, so that nothing but the kernel's own choice lets lanes part.
const WHOLE: usize = 1024;

/// Checks a kernel `axpy(float s, const float *x, float *y, int n)` that replaces `y[i]` by `s * x[i] + y[i]`, launched with at least
/// one thread an element.
pub fn axpy(source: &str) -> Verdict {
    kernels::verdict("axpy", source, "axpy", mistake_hint, |gpu, kernel| {
        for n in SIZES {
            let (s, x, y) = (0.5f32, cpu::random_f32(n, 1), cpu::random_f32(n, 2));
            let (on_x, mut on_y) = (gpu.to_device(&x)?, gpu.to_device(&y)?);
            kernel.launch(LaunchConfig::for_elements(n, BLOCK), (s, &on_x, &mut on_y, n as i32))?;
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| s * x + y).collect();
            let given = on_y.to_host()?;
            if let Some(what) = first_wrong(n, &given, &expected) {
                let left = given.iter().zip(&expected).position(|(&given, &expected)| !near(given, expected));
                let hint = match n <= BLOCK as usize {
                    _ if left.is_some_and(|at| given[at] == y[at]) => {
                        "that element has its old value: no thread takes it"
                    }
                    true => "y[i] is to become s * x[i] + y[i]: look at the formula",
                    false => "one block is right, several are not: which elements do the threads of block 1 take?",
                };
                return wrong(what, hint);
            }
        }
        Ok(())
    })
}

/// Checks a kernel `scale(const float *x, float *y, int n)` that sets `y[i]` to `2 * x[i]`, launched with one thread for four
/// elements: as few sectors a request as there can be.
pub fn scale(source: &str) -> Verdict {
    kernels::verdict("scale", source, "scale", mistake_hint, |gpu, kernel| {
        // The last one is several blocks, of four elements a thread.
        for n in [WHOLE, 1, 31, 33, 1000, 5000] {
            scattered(&doubled(gpu, kernel, n)?, n)?;
        }
        Ok(())
    })
}

/// What the launch did, or what is wrong with its result.
fn doubled(gpu: &Gpu, kernel: &Kernel, n: usize) -> Check<Inspection> {
    let x = cpu::random_f32(n, 1);
    let (on_x, mut on_y) = (gpu.to_device(&x)?, gpu.poison::<f32>(n)?);
    let config = LaunchConfig::for_elements(n.div_ceil(4), BLOCK);
    // First as any launch: its mistakes come as an error.
    kernel.launch(config, (&on_x, &mut on_y, n as i32))?;
    let seen = kernel.inspect(config, (&on_x, &mut on_y, n as i32))?;
    let expected: Vec<f32> = x.iter().map(|x| 2.0 * x).collect();
    let hint = "each thread still takes four elements, and together they take all of them once: \
                how far apart are the four of one thread?";
    none_wrong(first_wrong(n, &on_y.to_host()?, &expected), hint)?;
    Ok(seen)
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
        if n == WHOLE && sectors > bytes.div_ceil(32) {
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
            return wrong(
                format!(
                    "with n = {n} its {what} make {requests} requests and touch {sectors} sectors, {each:.1} a request; \
                     the array has {} sectors",
                    bytes.div_ceil(32)
                ),
                hint,
            );
        }
    }
    Ok(())
}

/// Checks a kernel `two_kinds(float *x, int n)` that treats even and odd elements differently without letting the lanes of a warp
/// part; launched with at least one thread an element, in whole blocks.
pub fn two_kinds(source: &str) -> Verdict {
    kernels::verdict("two_kinds", source, "two_kinds", mistake_hint, |gpu, kernel| {
        for n in [WHOLE, 1, 2, 33, 1000] {
            let x = cpu::random_f32(n, 1);
            let mut on_x = gpu.to_device(&x)?;
            let config = LaunchConfig::for_elements(n, BLOCK);
            kernel.launch(config, (&mut on_x, n as i32))?;
            let expected: Vec<f32> = x.iter().enumerate().map(|(i, &x)| one_kind(i, x)).collect();
            let hint =
                "every element once: give each thread another element, and keep what is done to even and odd elements";
            none_wrong(first_wrong(n, &on_x.to_host()?, &expected), hint)?;
            if n == WHOLE {
                parted(&kernel.inspect(config, (&mut on_x, n as i32))?)?;
            }
        }
        Ok(())
    })
}

/// What `two_kinds` does to an element.
fn one_kind(i: usize, x: f32) -> f32 {
    (0..64).fold(x, |x, _| if i.is_multiple_of(2) { x.mul_add(0.5, 1.0) } else { x.mul_add(x, -0.5) })
}

fn parted(seen: &Inspection) -> Check {
    let c = &seen.counters;
    if c.divergent_branches > 0 {
        return wrong(
            format!(
                "at {} branches the lanes of a warp part: {:.1} of 32 lanes are active in the average instruction",
                c.divergent_branches,
                c.active_lanes_per_instruction()
            ),
            "let the threads of one warp (t / 32 is its number) all take even elements, and those of the next one all take odd ones",
        );
    }
    // 64 steps of one kind and the way there are about 100 instructions; both kinds are 64 more.
    let each = c.thread_instructions as f64 / WHOLE as f64;
    let what = (each > 125.0).then(|| format!("no lanes part, but each thread runs {each:.0} instructions"));
    none_wrong(what, "computing both and choosing one costs what divergence costs: each thread is to do one kind only")
}

/// Equal but for rounding; NaN is never.
fn near(given: f32, expected: f32) -> bool {
    (given - expected).abs() <= 1e-5 * expected.abs().max(1.0)
}

/// The first element that is not as it should be, in words.
fn first_wrong(n: usize, given: &[f32], expected: &[f32]) -> Option<String> {
    let at = given.iter().zip(expected).position(|(&given, &expected)| !near(given, expected))?;
    let count = given.iter().zip(expected).filter(|(given, expected)| !near(**given, **expected)).count();
    let is = if given[at].is_nan() { "was never written".to_string() } else { format!("is {}", given[at]) };
    Some(format!("with n = {n} element {at} {is}, and it should be {}; {count} of {n} are wrong", expected[at]))
}

/// What to ask oneself about the first mistake; none of these kernels needs threads that work together.
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
    use crate::check::kernels::expect;

    const AXPY: &str = "extern \"C\" __global__ void axpy(float s, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { y[i] = s * x[i] + y[i]; }
}";

    const SCALE: &str = "extern \"C\" __global__ void scale(const float *x, float *y, int n) {
    int threads = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) { y[i] = 2.0f * x[i]; }
}";

    const TWO_KINDS: &str = "extern \"C\" __global__ void two_kinds(float *x, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int i = t / 64 * 64 + t % 32 * 2 + t / 32 % 2;
    if (i < n) {
        float value = x[i];
        if (i % 2 == 0) { for (int k = 0; k < 64; ++k) { value = value * 0.5f + 1.0f; } }
        else { for (int k = 0; k < 64; ++k) { value = value * value - 0.5f; } }
        x[i] = value;
    }
}";

    #[test]
    fn axpy_knows_its_mistakes() {
        expect(
            axpy,
            AXPY,
            &[
                ("if (i < n) ", "", "block (0, 0, 0), thread (1, 0, 0)"),
                ("if (i < n)", "if (i <= n)", "kernel.cu:3"),
                ("blockIdx.x * blockDim.x + ", "", "nothing orders the blocks"),
                ("+ y[i]", "", "look at the formula"),
                ("s * x[i]", "s * x[i", "the compiler"),
                ("axpy", "saxpy", "no kernel `axpy`"),
                (", int n", ", float n", "keep its name and its parameters"),
                ("+ threadIdx.x", "+ threadIdx.x + 1", "no thread takes it"),
                ("if (i < n)", "while (i < n)", "what ends the loop"),
                ("if (i < n)", "if (i % 2) __syncthreads(); if (i < n)", "without a barrier"),
                ("blockIdx.x * blockDim.x", "blockIdx.x * gridDim.x", "which elements do these two take"),
            ],
        );
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
        expect(
            scale,
            SCALE,
            &[
                (strided, pieces, "touch 512 sectors, 16.0 a request"),
                ("; i < n; i += threads", "; i < n; i += n", "never written"),
                ("; i < n;", "; i <= n;", "past the end"),
                ("2.0f", "3.0f", "element 0 is"),
                (strided, within_block, "with n = 5000 element 2048 was never written"),
                (begin, &off_by_one, "begin where a sector does"),
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
        assert!(scale(wide).passed(), "{}", scale(wide).text());
    }

    #[test]
    fn two_kinds_sees_lanes_part() {
        let by_thread = "int i = t;";
        let own = "int i = t / 64 * 64 + t % 32 * 2 + t / 32 % 2;";
        let arms = "if (i % 2 == 0) { for (int k = 0; k < 64; ++k) { value = value * 0.5f + 1.0f; } }
        else { for (int k = 0; k < 64; ++k) { value = value * value - 0.5f; } }";
        let both = "float a = value, b = value;
        for (int k = 0; k < 64; ++k) { a = a * 0.5f + 1.0f; b = b * b - 0.5f; }
        value = i % 2 == 0 ? a : b;";
        expect(
            two_kinds,
            TWO_KINDS,
            &[
                (own, by_thread, "lanes of a warp part"),
                ("i % 2 == 0", "t / 32 % 2 == 1", "element 0 is"),
                ("t % 32 * 2", "t % 32", "element"),
                ("if (i < n)", "", "past the end"),
            ],
        );
        let source = TWO_KINDS.replace(own, by_thread).replace(arms, both);
        let text = two_kinds(&source).text();
        assert!(text.contains("computing both"), "{text}");
    }
}
