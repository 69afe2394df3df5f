//! Exercise of lesson 10: an interleaved image taken apart into planes, from a blank page.

use super::Verdict;
use super::judged::{lanes_work, unchanged, warp_shares};
use super::kernels::{self, first_wrong};
use super::verdict::{Check, ask_timed, none_wrong, wrong};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// The size at which traffic and shares are judged: planes of whole sectors and whole warps.
const JUDGED: usize = 4096;
/// One pixel, a warp and its neighbours, planes that begin inside a sector.
const SIZES: [usize; 6] = [1, 31, 33, 256, 1000, JUDGED];
/// So many times the least a request may fetch: a third of a warp's lanes for each plane reaches 1.7.
const MOST: f64 = 2.05;
/// Stores of one warp at most: 16 elements for each of its threads would be 48.
const SHARE: usize = 64;

/// Checks a kernel `planes(const float *pixels, float *out, int n)` that takes `n` interleaved pixels (red, green, blue, red,
/// …) apart into three planes, one behind the other in `out`, and the launch that goes with it.
pub fn planes(source: &str, launch: fn(usize) -> LaunchConfig) -> Verdict {
    kernels::verdict("planes", source, "planes", mistake_hint, |gpu, kernel| {
        for n in SIZES {
            let config = ask_timed(&format!("n = {n}"), move || launch(n))?;
            let seen = apart(gpu, kernel, config, n, ((0, 0, 0), 0))?;
            if n == JUDGED {
                lanes_work(&seen, 16.0)?;
                traffic(&seen)?;
                warp_shares(&seen, SHARE)?;
                // The last block's first warp has pixels too: the grid fits the image.
                let last = (config.grid.0 - 1, config.grid.1 - 1, config.grid.2 - 1);
                if last != (0, 0, 0) {
                    warp_shares(&apart(gpu, kernel, config, n, (last, 0))?, SHARE)?;
                }
            }
        }
        Ok(())
    })
}

/// What the launch did, or what is wrong with its result.
fn apart(
    gpu: &Gpu,
    kernel: &Kernel,
    config: LaunchConfig,
    n: usize,
    (block, warp): ((u32, u32, u32), u32),
) -> Check<Inspection> {
    let pixels = cpu::random_f32(3 * n, n as u64);
    let (on_gpu, mut out) = (gpu.to_device(&pixels)?, gpu.poison::<f32>(3 * n)?);
    // First as any launch: its mistakes come as an error.
    kernel.launch(config, (&on_gpu, &mut out, n as i32))?;
    let expected: Vec<f32> = (0..3 * n).map(|at| pixels[at % n * 3 + at / n]).collect();
    let place = |at: usize| format!("element {} of plane {}", at % n, at / n);
    let hint =
        "take one float of `pixels`: which pixel and which colour is it, and where does that colour's plane begin?";
    none_wrong(first_wrong(&format!("n = {n}"), &out.to_host()?, &expected, place), hint)?;
    unchanged("pixels", &on_gpu, &pixels)?;
    Ok(kernel.inspect_warp(config, (&on_gpu, &mut out, n as i32), block, warp)?)
}

/// Sectors asked for, on both sides, against those that hold the image.
fn traffic(seen: &Inspection) -> Check {
    let c = &seen.counters;
    let least = (3 * JUDGED * 4 / 32) as f64;
    for (what, sectors) in [("loads", c.global_load_sectors), ("stores", c.global_store_sectors)] {
        let times = sectors as f64 / least;
        if times > MOST {
            return wrong(
                format!(
                    "right, but with n = {JUDGED} its {what} ask for {sectors} sectors, and the image lies in {least}: \
                     {times:.1} times as many"
                ),
                "in one of these instructions, at which addresses do lanes 0, 1 and 2 stand? `inspect` and `sectors` draw it",
            );
        }
    }
    Ok(())
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::GlobalRace, Kind::SharedRace]) {
        "two threads meet at one float: compute by hand which float these two write"
    } else if is(&[Kind::UninitialisedRead]) {
        "nothing was put there before the launch: does the kernel have to read it?"
    } else {
        "compute by hand which float that thread takes: does it exist, and how many floats has the image?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLANES: &str = "extern \"C\" __global__ void planes(const float *pixels, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < 3 * n) { out[i % 3 * n + i / 3] = pixels[i]; }
}";

    fn a_float_each(n: usize) -> LaunchConfig {
        LaunchConfig::for_elements(3 * n, 256)
    }

    fn a_pixel_each(n: usize) -> LaunchConfig {
        LaunchConfig::for_elements(n, 256)
    }

    fn told(source: &str, launch: fn(usize) -> LaunchConfig, said: &str) {
        let text = planes(source, launch).text();
        assert!(text.starts_with("NOT YET") && text.contains(said), "{said}: {text}");
    }

    #[test]
    fn right_ones_pass() {
        assert!(planes(PLANES, a_float_each).passed(), "{}", planes(PLANES, a_float_each).text());
        // Staged in shared memory: both sides perfect.
        let staged = "extern \"C\" __global__ void planes(const float *pixels, float *out, int n) {
    __shared__ float tile[768];
    int first = blockIdx.x * 256, t = threadIdx.x;
    for (int k = t; k < 768 && 3 * first + k < 3 * n; k += 256) { tile[k] = pixels[3 * first + k]; }
    __syncthreads();
    if (first + t < n) { for (int c = 0; c < 3; ++c) { out[c * n + first + t] = tile[3 * t + c]; } }
}";
        assert!(planes(staged, a_pixel_each).passed(), "{}", planes(staged, a_pixel_each).text());
        // A grid-stride loop on a small grid.
        let walking = PLANES.replace("if (i < 3 * n) {", "for (; i < 3 * n; i += gridDim.x * blockDim.x) {");
        let few = |n: usize| LaunchConfig::for_elements(n.div_ceil(2), 128);
        assert!(planes(&walking, few).passed(), "{}", planes(&walking, few).text());
    }

    #[test]
    fn wrong_ones_are_told_so() {
        let change = |old: &str, new: &str| {
            let source = PLANES.replacen(old, new, 1);
            assert_ne!(source, PLANES);
            source
        };
        told(&change("if (i < 3 * n)", ""), a_float_each, "how many floats has the image");
        told(PLANES, a_pixel_each, "was never written");
        told(&change("i % 3 * n + i / 3", "i"), a_float_each, "element 1 of plane 0");
        told(&change("i % 3 * n", "(2 - i % 3) * n"), a_float_each, "of plane 0 is");
        told(&change("i % 3 * n + i / 3", "i / 3"), a_float_each, "two threads meet");
        // A pixel a thread, and a float of the result a thread: the lanes read every third float.
        let pixels = "extern \"C\" __global__ void planes(const float *pixels, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { for (int c = 0; c < 3; ++c) { out[c * n + i] = pixels[3 * i + c]; } }
}";
        told(pixels, a_pixel_each, "its loads ask for 4608 sectors, and the image lies in 1536: 3.0 times");
        let results = change("out[i % 3 * n + i / 3] = pixels[i]", "out[i] = pixels[i % n * 3 + i / n]");
        told(&results, a_float_each, "its loads ask for");
        told(PLANES, |_| panic!("no launch yet"), "your code panicked: no launch yet");
    }

    #[test]
    fn cheats_are_told_so() {
        let body = "if (i < 3 * n) { out[i % 3 * n + i / 3] = pixels[i]; }";
        let one_thread = "if (i == 0) { for (; i < 3 * n; ++i) { out[i % 3 * n + i / 3] = pixels[i]; } }";
        told(&PLANES.replace(body, one_thread), a_float_each, "lanes are active");
        let one_warp = "if (i < 32) { for (; i < 3 * n; i += 32) { out[i % 3 * n + i / 3] = pixels[i]; } }";
        told(&PLANES.replace(body, one_warp), a_float_each, "alone makes 384 stores");
        told(&PLANES.replace("pixels[i]; ", "0.5f; "), a_float_each, "of plane 0 is 0.5");
        told(&PLANES.replace("pixels[i]; ", "0.0f / 0.0f; "), a_float_each, "is NaN, which no number should give");
        let spoiled = PLANES.replace("pixels[i]; ", "pixels[i]; __threadfence(); ((float *)pixels)[i] = 0.0f; ");
        told(&spoiled, a_float_each, "`pixels` is no longer");
        // The next buffer's memory.
        told(&PLANES.replace("= pixels[i]", "= pixels[i + 3 * n]"), a_float_each, "past the end");
    }
}
