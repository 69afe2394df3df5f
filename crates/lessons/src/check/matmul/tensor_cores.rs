//! Lesson 12c: one tile by `ldmatrix` and `mma.sync` from a blank page, a bank on paper, and an error to explain.

use super::{Fault, Shape, mistake_hint, named, on_paper, right_product};
use crate::check::Verdict;
use crate::check::kernels::{self, shared_out, whole};
use crate::check::verdict::{Check, verdict, wrong};
use gpulab::cpu;
use gpulab::error::Result;
use gpulab::gpu::Gpu;
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;

/// At which the counters are judged; then sides that are no multiples of anything.
const WHOLE: Shape = (32, 16, 64);
const SHAPES: [Shape; 6] = [WHOLE, (16, 8, 16), (1, 1, 1), (17, 9, 20), (15, 7, 33), (33, 20, 40)];

/// Checks a kernel `mma_tile(const bf16 *a, const bf16 *b, float *c, int m, int n, int k)`, launched with one warp for each
/// 16 × 8 elements of c: right, by tensor cores, and no more of shared memory than fragments need.
pub fn mma_tile(source: &str) -> Verdict {
    kernels::verdict("mma_tile", source, "mma_tile", mistake_hint, |gpu, kernel| {
        for shape in SHAPES {
            let (m, n, k) = shape;
            let (a, b) = (whole(m * k, 1), whole(k * n, 2));
            let bits = |numbers: &[f32]| numbers.iter().map(|&x| cpu::bf16_from_f32(x)).collect::<Vec<u16>>();
            let (on_a, on_b, mut c) = (gpu.to_device(&bits(&a))?, gpu.to_device(&bits(&b))?, gpu.poison::<f32>(m * n)?);
            let config = LaunchConfig {
                grid: (n.div_ceil(8) as u32, m.div_ceil(16) as u32, 1),
                block: (32, 1, 1),
                shared_bytes: 0,
            };
            let sides = (m as i32, n as i32, k as i32);
            kernel.launch(config, (&on_a, &on_b, &mut c, sides.0, sides.1, sides.2))?;
            let hint = "the PTX ISA draws which lane holds which element of a fragment (mma.m16n8k16): compare for the element that is wrong";
            right_product(&c.to_host()?, &a, &b, shape, hint)?;
            kernels::unchanged("a", &on_a, &bits(&a))?;
            kernels::unchanged("b", &on_b, &bits(&b))?;
            if shape == WHOLE {
                let seen = kernel.inspect(config, (&on_a, &on_b, &mut c, sides.0, sides.1, sides.2))?;
                by_fragments(&seen, source, shape)?;
            }
        }
        Ok(())
    })
}

/// Whether tensor cores did it, from fragments that were read without waste.
fn by_fragments(seen: &Inspection, source: &str, shape: Shape) -> Check {
    let (m, n, k) = shape;
    let (c, with, tiles) = (&seen.counters, named(shape), (m / 16 * (n / 8) * (k / 16)) as u64);
    // A line of the source, without its comment.
    let asks = source.lines().any(|line| line.split("//").next().unwrap_or("").contains("mma.sync.aligned.m16n8k16"));
    if !asks {
        return wrong(
            "it is right, and asks for no product of tensor cores",
            "`mma.sync.aligned.m16n8k16`, in `asm volatile`, as rung 04 does",
        );
    }
    let lanes = c.active_lanes_per_instruction();
    if lanes < 28.0 {
        return wrong(
            format!("with {with}: {lanes:.1} of 32 lanes are active in the average instruction"),
            "all lanes of the warp copy, and all hold a part of the fragments",
        );
    }
    // Six 8 × 8 matrices a step: four of a, two of b.
    let (served, least) = (c.shared_load_wavefronts, 6 * tiles);
    if c.shared_load_bank_conflicts > 0 {
        let what = format!(
            "with {with}: it is right, and {} of {served} wavefronts of reads are bank conflicts",
            c.shared_load_bank_conflicts
        );
        return wrong(
            what,
            "`ldmatrix` reads eight rows of 16 bytes at a time: in which banks do the eight rows begin?",
        );
    }
    if served < least {
        let what = format!(
            "with {with}: shared memory serves {served} wavefronts of reads, and the fragments alone need {least}"
        );
        return wrong(what, "the tiles go to shared memory first, and `ldmatrix` makes fragments of them");
    }
    if served > 8 * tiles {
        let what = format!(
            "with {with}: shared memory serves {served} wavefronts of reads, and {least} hold all fragments once"
        );
        return wrong(what, "how many 8 × 8 matrices does one step need, of a and of b?");
    }
    let sectors = 32 * tiles;
    if c.global_load_sectors > 2 * sectors {
        let what =
            format!("with {with}: {} sectors are loaded, where {sectors} hold each tile once", c.global_load_sectors);
        return wrong(what, "each value of a tile is loaded by one lane");
    }
    shared_out(seen, 0.5)
}

/// Checks the answer to: in a tile with rows of 64 bf16, whose 16-byte pieces are swizzled as in rung 04 (piece p of row r
/// lies where p XOR (r mod 8) would), in which bank does piece 3 of row 5 begin?
pub fn first_bank(answer: Option<u32>) -> Verdict {
    let known = [
        (12.0, "there it would begin without the swizzle"),
        (6.0, "that is the piece's new position in its row, and a piece covers four banks"),
        (48.0, "that counts numbers of 2 bytes, and a bank holds 4 bytes"),
        (0.0, "3 XOR 5 is no addition"),
        (184.0, "that is a word's number in the tile; banks repeat after 32"),
    ];
    let hint =
        "at which byte of the tile does it begin? A bank holds 4 bytes, and after 32 banks comes the first again";
    verdict("first_bank", || on_paper(answer.map(f64::from), 24.0, &known, "", hint))
}

/// A bf16 product on tensor cores whose result is less exact than it should be. Its source is hidden until the reason is named.
#[derive(Debug, Clone, Copy)]
pub struct ErrorSuspect;

const SUSPECT: &str = include_str!("tensor_suspect.cu");
/// Rows and columns of its result.
const SIDE: usize = 32;

impl ErrorSuspect {
    /// ‖result − exact‖ ÷ ‖exact‖ for sums of `k` products (a multiple of 16); the exact product is that of the numbers before they
    /// were rounded to bf16, or with `rounded_first` of those after it.
    ///
    /// # Errors
    /// Those of a launch in the simulator.
    pub fn error(self, k: usize, rounded_first: bool) -> Result<f64> {
        let round = |x: f32| if rounded_first { cpu::f32_from_bf16(cpu::bf16_from_f32(x)) } else { x };
        let make = |count, seed| cpu::random_f32(count, seed).into_iter().map(round).collect::<Vec<f32>>();
        let (a, b) = (make(SIDE * k, 3), make(k * SIDE, 4));
        let gpu = Gpu::simulated()?;
        let bits = |numbers: &[f32]| numbers.iter().map(|&x| cpu::bf16_from_f32(x)).collect::<Vec<u16>>();
        let (on_a, on_b, mut c) =
            (gpu.to_device(&bits(&a))?, gpu.to_device(&bits(&b))?, gpu.poison::<f32>(SIDE * SIDE)?);
        let tiles = (SIDE / 16) as u32;
        let config = LaunchConfig { grid: (tiles, tiles, 1), block: (32, 1, 1), shared_bytes: 0 };
        gpu.compile(SUSPECT)?.kernel("product")?.launch(config, (&on_a, &on_b, &mut c, SIDE as i32, k as i32))?;
        let (mut off, mut all) = (0.0, 0.0);
        for (at, &given) in c.to_host()?.iter().enumerate() {
            let exact: f64 = (0..k).map(|i| f64::from(a[at / SIDE * k + i]) * f64::from(b[i * SIDE + at % SIDE])).sum();
            off += (f64::from(given) - exact).powi(2);
            all += exact * exact;
        }
        Ok((off / all).sqrt())
    }

    /// The source, for who has found the reason; else nothing.
    pub fn source(self, fault: Fault) -> Option<&'static str> {
        (fault == Fault::RoundedSums).then_some(SUSPECT)
    }
}

/// Checks the diagnosis of [`ErrorSuspect`]: why its error is so large, and how many times as large it is at k = 1024 as at k = 64, with
/// random numbers.
pub fn error_suspect(fault: Fault, factor: Option<f64>) -> Verdict {
    kernels::verdict("error_suspect", SUSPECT, "product", mistake_hint, |_, _| {
        let percent = |k| ErrorSuspect.error(k, true).map(|error| format!("{:.2} %", 100.0 * error));
        let against = match fault {
            Fault::RoundedSums => {
                let right = ErrorSuspect.error(1024, false)? / ErrorSuspect.error(64, false)?;
                let known = [
                    (1.0 / right, "that is the other way round"),
                    (1.0, "it grows"),
                    (16.0, "that is how many times k grows"),
                ];
                return on_paper(factor, right, &known, "times", "`error(1024, false)? / error(64, false)?`");
            }
            Fault::Unknown => {
                return wrong(
                    "no reason is named yet",
                    "vary k, then what it is compared with (`rounded_first`): with which does the error grow?",
                );
            }
            Fault::RoundedInputs => {
                format!("against the product of the rounded numbers the error at k = 1024 still is {}", percent(1024)?)
            }
            Fault::Fragments | Fault::Edges | Fault::Race => {
                format!("at k = 16, against the product of the rounded numbers, the error is {}", percent(16)?)
            }
            other => format!("{other:?} would cost time, and the result would be exact"),
        };
        wrong(
            format!("the evidence speaks against it: {against}"),
            "what grows with k, and depends on the size of the sums?",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::expect;
    use crate::check::matmul::red;

    const TILE: &str = include_str!("tensor_tile.cu");

    #[test]
    fn mma_tile_knows_wrong_answers_and_cheats() {
        expect(
            mma_tile,
            TILE,
            &[
                ("x2.trans.shared", "x2.shared", "the PTX ISA draws"),
                ("[lane / 16 * 8]", "[0]", "the PTX ISA draws"),
                ("lane / 4 + i / 2 * 8", "lane / 4 + i % 2 * 8", "it should be"),
                ("a_tile[16][24]", "a_tile[16][16]", "bank conflicts"),
                ("a_tile[16][24]", "a_tile[16][20]", "16 bytes are read"),
                ("row0 + i / 16 < m && ", "", "out of bounds"),
                ("if (row < m && column < n) c", "if (column < n) c", "out of bounds"),
                ("__syncwarp(); // filled", "", "perhaps not written yet"),
                ("__syncwarp(); // used", "", "perhaps still reads"),
                ("float sum[4] = {};", "float sum[4] = {1.0f};", "it should be"),
                // A constant, NaN, a neighbour's memory.
                ("= sum[i];", "= 2.0f;", "it should be"),
                ("= sum[i];", "= __int_as_float(0x7fffffff);", "is NaN, which no number should give"),
                ("= sum[i];", "= c[row * n + column + 1];", "nothing has written"),
                // An input changed, where one warp is the whole launch.
                (
                    "= sum[i];",
                    "= sum[i]; if (gridDim.x + gridDim.y == 2 && row + column == 0) ((unsigned short *)a)[0] = 7;",
                    "the input `a` has changed",
                ),
            ],
        );
        let plain = "#include <cuda_bf16.h>
extern \"C\" __global__ void mma_tile(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c, int m, int n, int k) {
    // mma.sync.aligned.m16n8k16 stands in a comment alone
    for (int i = threadIdx.x; i < 128; i += 32) {
        int row = blockIdx.y * 16 + i / 8, column = blockIdx.x * 8 + i % 8;
        float sum = 0.0f;
        for (int j = 0; row < m && column < n && j < k; ++j) sum += float(a[row * k + j]) * float(b[j * n + column]);
        if (row < m && column < n) c[row * n + column] = sum;
    }
}";
        red(&mma_tile(plain), "no product of tensor cores");
        // The first warp has the tiles of all.
        let first = TILE.replace(
            "int lane = threadIdx.x, row0 = blockIdx.y * 16, column0 = blockIdx.x * 8;",
            "if (blockIdx.x + blockIdx.y > 0) { return; }\n    int lane = threadIdx.x;
    for (int row0 = 0; row0 < m; row0 += 16) for (int column0 = 0; column0 < n; column0 += 8) {",
        );
        red(&mma_tile(&format!("{first}}}")), "the work is not shared out");
        // The words in code that never runs.
        let dead = plain.replace("    for (int i", "    if (k < 0) asm volatile(\"// mma.sync\");\n    const char *words = \"mma.sync.aligned.m16n8k16\"; (void)words;\n    for (int i");
        red(&mma_tile(&dead), "");
    }

    #[test]
    fn the_bank_on_paper_has_one_answer() {
        assert!(first_bank(Some(24)).passed());
        for (answer, said) in [
            (None, "no number yet"),
            (Some(12), "without the swizzle"),
            (Some(6), "covers four banks"),
            (Some(48), "2 bytes"),
            (Some(0), "no addition"),
            (Some(184), "repeat after 32"),
            (Some(3), "is not it"),
        ] {
            red(&first_bank(answer), said);
        }
    }

    #[test]
    fn the_error_is_explained_by_varying_its_inputs() {
        let at = |k, first| ErrorSuspect.error(k, first).unwrap();
        assert!(at(16, true) < 0.003 && at(1024, true) > 2.0 * at(64, true) && at(1024, false) > 2.0 * at(64, false));
        let right = at(1024, false) / at(64, false);
        assert!(error_suspect(Fault::RoundedSums, Some(right)).passed());
        assert!(
            ErrorSuspect.source(Fault::RoundedInputs).is_none() && ErrorSuspect.source(Fault::RoundedSums).is_some()
        );
        for (fault, factor, said) in [
            (Fault::Unknown, None, "no reason is named"),
            (Fault::RoundedInputs, Some(right), "product of the rounded numbers"),
            (Fault::Fragments, Some(right), "at k = 16"),
            (Fault::Spills, Some(right), "would cost time"),
            (Fault::RoundedSums, None, "no number yet"),
            (Fault::RoundedSums, Some(1.0 / right), "the other way round"),
            (Fault::RoundedSums, Some(16.0), "how many times k grows"),
        ] {
            red(&error_suspect(fault, factor), said);
        }
    }
}
