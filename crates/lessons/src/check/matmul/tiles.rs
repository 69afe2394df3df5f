//! Lesson 12a: a tiled product from a blank page, a limit on paper, and a slow kernel to diagnose.

use super::{Fault, Shape, mistake_hint, multiplied, named, on_paper};
use crate::check::Verdict;
use crate::check::kernels::{self, shared_out, whole};
use crate::check::verdict::{Check, verdict, wrong};
use gpulab::error::Result;
use gpulab::gpu::Gpu;
use gpulab::inspect::{Counters, Inspection};
use gpulab::launch::LaunchConfig;

/// Side of the tile of `c` that a block computes.
const TILE: usize = 64;
/// Whole tiles, at which the counters are judged; then sides that are none.
const WHOLE: Shape = (128, 128, 64);
const SHAPES: [Shape; 6] = [WHOLE, (1, 1, 1), (17, 33, 5), (63, 65, 64), (65, 130, 40), (130, 70, 100)];
/// Wavefronts of shared memory for each multiply-add of a warp: 0.5 with 4 × 4 elements per thread.
const MOST_WAVEFRONTS: f64 = 0.6;

/// Checks a kernel `product(const float *a, const float *b, float *c, int m, int n, int k)`, launched with blocks of 16 × 16
/// threads, a block for each 64 × 64 elements of c: right, without a finding, each tile fetched once, at most 0.6 wavefronts
/// of shared memory a multiply-add, and the work shared among the threads.
pub fn product(source: &str) -> Verdict {
    kernels::verdict("product", source, "product", mistake_hint, |gpu, kernel| {
        for shape in SHAPES {
            let blocks = |side: usize| side.div_ceil(TILE) as u32;
            let config =
                LaunchConfig { grid: (blocks(shape.1), blocks(shape.0), 1), block: (16, 16, 1), shared_bytes: 0 };
            let hint =
                "do one element by hand: which block and thread compute it, and which words of the tiles do they read?";
            let seen = multiplied(gpu, kernel, config, shape, hint)?;
            if shape == WHOLE {
                wasteful(&seen, shape)?;
            }
        }
        Ok(())
    })
}

/// What the counters say against a right product.
fn wasteful(seen: &Inspection, shape: Shape) -> Check {
    let (m, n, k) = shape;
    let (c, with) = (&seen.counters, named(shape));
    let lanes = c.active_lanes_per_instruction();
    if lanes < 24.0 {
        let what =
            format!("with {with}: it is right, and {lanes:.1} of 32 lanes are active in the average instruction");
        return wrong(what, "every thread of the block has its own elements to compute");
    }
    if c.local_load_requests > 0 {
        let what = format!("with {with}: warps load from local memory {} times", c.local_load_requests);
        return wrong(
            what,
            "an array lies in registers only where the compiler knows each index: which loops must it unroll?",
        );
    }
    let needed = (m.div_ceil(TILE) * n.div_ceil(TILE) * 2 * TILE * k / 8) as u64;
    if c.global_load_sectors > 2 * needed {
        let (loads, with) = (c.global_load_sectors, with);
        let what = format!(
            "with {with}: it is right, and loads {loads} sectors of a and b, where {needed} hold each tile once"
        );
        return wrong(
            what,
            "the table of counters of your launch (`inspect`) says which line loads most: is each value fetched once a block?",
        );
    }
    let stores = (m * n / 8) as u64;
    if c.global_store_sectors > 4 * stores {
        let what = format!("with {with}: stores of c touch {} sectors, where {stores} hold it", c.global_store_sectors);
        return wrong(what, "each element is stored once, by lanes that are neighbours in a row of c");
    }
    let each = c.shared_load_wavefronts as f64 / (m * n * k / 32) as f64;
    if each > MOST_WAVEFRONTS {
        let conflicts = c.shared_load_bank_conflicts as f64 / (m * n * k / 32) as f64;
        let what = format!(
            "with {with}: it is right, and shared memory serves {each:.2} wavefronts per multiply-add, {conflicts:.2} of them \
             conflicts; {MOST_WAVEFRONTS} are allowed"
        );
        let hint = if conflicts > 0.1 {
            "draw the banks of the line that reads most (`inspect(…)?.banks(\"…\")`): which lanes meet?"
        } else {
            "how many values does a thread read for each multiply-add, and how many could it keep?"
        };
        return wrong(what, hint);
    }
    shared_out(seen, 0.5)
}

/// Checks the answer to: a block computes a tile of 64 × 64 in fp32, and each step along k fetches its part of a and of b from
/// device memory, which gives 4.8 TB/s. How many TFLOP/s does that memory permit at most?
pub fn memory_limit(answer: Option<f64>) -> Verdict {
    let right = 4.8 * (2.0 * 64.0 * 64.0) / ((64.0 + 64.0) * 4.0);
    let known = [
        (right / 2.0, "a multiply-add is two operations"),
        (right * 2.0, "both matrices are fetched"),
        (right * 4.0, "memory counts bytes, and a float has 4"),
        (right / 64.0, "each value that is fetched is used by more than one thread"),
        (4.8 / 4.0, "each value that is fetched is used by more than one multiply-add"),
    ];
    verdict("memory_limit", || {
        on_paper(
            answer,
            right,
            &known,
            "TFLOP/s",
            "operations of one step along k ÷ bytes that this step fetches, times bytes a second",
        )
    })
}

/// A product by tiles of 64 × 64 that is right and slow. Its source is hidden until [`tile_suspect`] is answered.
#[derive(Debug, Clone, Copy)]
pub struct TileSuspect;

const SUSPECT: &str = include_str!("tiles_suspect.cu");

impl TileSuspect {
    /// What a launch at that size does, by the counters alone: lines and names stay hidden.
    ///
    /// # Errors
    /// Those of a launch in the simulator.
    pub fn counters(self, m: usize, n: usize, k: usize) -> Result<Counters> {
        let gpu = Gpu::simulated()?;
        let (a, b) = (gpu.to_device(&whole(m * k, 1))?, gpu.to_device(&whole(k * n, 2))?);
        let mut c = gpu.poison::<f32>(m * n)?;
        let blocks = |side: usize| side.div_ceil(TILE) as u32;
        let config = LaunchConfig { grid: (blocks(n), blocks(m), 1), block: (16, 16, 1), shared_bytes: 0 };
        let kernel = gpu.compile(SUSPECT)?.kernel("product")?;
        Ok(kernel.inspect(config, (&a, &b, &mut c, m as i32, n as i32, k as i32))?.counters)
    }

    /// The source, for who has found the fault; else nothing.
    pub fn source(self, fault: Fault) -> Option<&'static str> {
        (fault == Fault::Spills).then_some(SUSPECT)
    }
}

/// Checks the diagnosis of [`TileSuspect`] at m = n = 128, k = 64: what makes it slow, and its requests to local memory
/// (loads and stores) for each multiply-add of a warp, or whatever number shows the fault that is named.
pub fn tile_suspect(fault: Fault, number: Option<f64>) -> Verdict {
    kernels::verdict("tile_suspect", SUSPECT, "product", mistake_hint, |_, _| {
        let c = TileSuspect.counters(WHOLE.0, WHOLE.1, WHOLE.2)?;
        let each = |count: u64| count as f64 / (WHOLE.0 * WHOLE.1 * WHOLE.2 / 32) as f64;
        let against = match fault {
            Fault::Spills => {
                let right = each(c.local_load_requests + c.local_store_requests);
                let hint =
                    "loads and stores of local memory together, for each of the m · n · k ÷ 32 multiply-adds of warps";
                let known = [
                    (each(c.local_load_requests), "stores count as well"),
                    (right / 32.0, "a warp's instruction does 32 multiply-adds"),
                    (right * 32.0, "a warp's instruction does 32 multiply-adds, not one"),
                ];
                return on_paper(number, right, &known, "requests per multiply-add", hint);
            }
            Fault::Unknown => {
                return wrong(
                    "no fault is named yet",
                    "compare its counters with those of a good product of the same shape",
                );
            }
            Fault::BankConflicts => format!(
                "its conflicts are {:.3} wavefronts per multiply-add, of {:.3} in all",
                each(c.shared_load_bank_conflicts),
                each(c.shared_load_wavefronts)
            ),
            Fault::LanesApart => {
                format!(
                    "its loads touch {:.1} sectors a request",
                    c.global_load_sectors as f64 / c.global_load_requests as f64
                )
            }
            Fault::Barriers => format!(
                "warps arrive at barriers {} times, for {} multiply-adds",
                c.barriers,
                WHOLE.0 * WHOLE.1 * WHOLE.2 / 32
            ),
            Fault::Race | Fault::Edges => {
                "its result is right at every size, and the simulator finds no race".to_string()
            }
            other => format!("{other:?} is no fault of this kernel: it is right, in fp32, and a block for each tile"),
        };
        wrong(
            format!("the evidence speaks against it: {against}"),
            "which of its counters is furthest from a good kernel's?",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::expect;
    use crate::check::matmul::red;

    const PRODUCT: &str = include_str!("tiles_product.cu");

    #[test]
    fn product_knows_wrong_answers_and_cheats() {
        let inner = "float y = b_tile[i][x + 16 * s];";
        expect(
            product,
            PRODUCT,
            &[
                ("__syncthreads(); // filled", "", "perhaps not written yet"),
                ("__syncthreads(); // used", "", "perhaps still reads"),
                ("__syncthreads(); // used", "if (x < 8) __syncthreads();", "every thread of the block must come by"),
                (
                    "row < m && k0 + i % 16 < k ? a[row * k + k0 + i % 16] : 0.0f",
                    "a[row * k + k0 + i % 16]",
                    "out of bounds",
                ),
                ("row0 + y + 16 * r < m && ", "", "out of bounds"),
                ("sum[r][s]; } // store", "sum[s][r]; } // store", "row 0, column 16 is"),
                (
                    inner,
                    "float y = k0 + i < k && column0 + x + 16 * s < n ? b[(k0 + i) * n + column0 + x + 16 * s] : 0.0f;",
                    "hold each tile once",
                ),
                ("b_tile[i][x + 16 * s]", "b_tile[i][4 * x + s]", "row 0, column 1 is"),
                ("int x = threadIdx.x, y = threadIdx.y;", "int x = threadIdx.y, y = threadIdx.x;", "conflicts"),
                ("void product", "void products", "keep its name and its parameters"),
                // Constants, NaN, a neighbour's memory, and one thread that does all.
                ("= sum[r][s]; } // store", "= 1.0f; } // store", "it should be"),
                (
                    "= sum[r][s]; } // store",
                    "= __int_as_float(0x7fffffff); } // store",
                    "is NaN, which no number should give",
                ),
                ("= sum[r][s]; } // store", "= a[m * k + row0]; } // store", "out of bounds"),
                // An input changed, where one block is the whole launch.
                (
                    "= sum[r][s]; } // store",
                    "= sum[r][s]; if (gridDim.x + gridDim.y == 2 && row0 + y + 16 * r + column0 + x + 16 * s == 0) ((float *)a)[0] = 9.0f; } // store",
                    "the kernel changed `a` or `b`",
                ),
            ],
        );
        let alone =
            "extern \"C\" __global__ void product(const float *a, const float *b, float *c, int m, int n, int k) {
    if (threadIdx.x || threadIdx.y) { return; }
    for (int row = blockIdx.y * 64; row < m && row < blockIdx.y * 64 + 64; ++row)
        for (int column = blockIdx.x * 64; column < n && column < blockIdx.x * 64 + 64; ++column) {
            float sum = 0.0f;
            for (int i = 0; i < k; ++i) { sum += a[row * k + i] * b[i * n + column]; }
            c[row * n + column] = sum;
        }
}";
        red(&product(alone), "of 32 lanes are active");
        // The first block has the tiles of all.
        let first = PRODUCT
            .replace("int x = threadIdx.x,", "if (blockIdx.x + blockIdx.y > 0) { return; }\n    int x = threadIdx.x,")
            .replace(
                ", row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;",
                ";\n    for (int row0 = 0; row0 < m; row0 += 64) for (int column0 = 0; column0 < n; column0 += 64) {",
            );
        red(&product(&format!("{first}}}")), "the work is not shared out");
        // One row of four elements per thread: half of the reuse.
        let narrow = PRODUCT.replace(
            "for (int r = 0; r < 4; ++r) x4[r]",
            "for (int s = 0; s < 4; ++s) for (int r = 0; r < 4; ++r) x4[r]",
        );
        assert!(
            product(&narrow).passed() || product(&narrow).text().contains("wavefronts"),
            "{}",
            product(&narrow).text()
        );
    }

    #[test]
    fn other_shapes_of_a_right_product_pass() {
        // Rows of a transposed, read 16 bytes at a time, with the rows 4 longer.
        let wide =
            "extern \"C\" __global__ void product(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ __align__(16) float a_tile[16][68], b_tile[16][64];
    int thread = threadIdx.y * 16 + threadIdx.x, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    int r0 = threadIdx.y * 4, s0 = threadIdx.x * 4;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int i = thread; i < 1024; i += 256) {
            int row = row0 + i / 16, column = column0 + i % 64;
            a_tile[i % 16][i / 16] = row < m && k0 + i % 16 < k ? a[row * k + k0 + i % 16] : 0.0f;
            b_tile[i / 64][i % 64] = k0 + i / 64 < k && column < n ? b[(k0 + i / 64) * n + column] : 0.0f;
        }
        __syncthreads();
        for (int i = 0; i < 16; ++i) {
            float4 x = *(float4 *)&a_tile[i][r0], y = *(float4 *)&b_tile[i][s0];
            float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
            for (int r = 0; r < 4; ++r) for (int s = 0; s < 4; ++s) sum[r][s] += xs[r] * ys[s];
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; ++r) for (int s = 0; s < 4; ++s)
        if (row0 + r0 + r < m && column0 + s0 + s < n) c[(row0 + r0 + r) * n + column0 + s0 + s] = sum[r][s];
}";
        assert!(product(wide).passed(), "{}", product(wide).text());
    }

    #[test]
    fn the_limit_on_paper_has_one_answer() {
        assert!(memory_limit(Some(76.8)).passed() && memory_limit(Some(77.0)).passed());
        for (answer, said) in [
            (None, "no number yet"),
            (Some(38.4), "two operations"),
            (Some(153.6), "both matrices"),
            (Some(307.2), "a float has 4"),
            (Some(1.2), "more than one"),
            (Some(67.0), "is not it"),
            (Some(f64::NAN), "is not it"),
        ] {
            red(&memory_limit(answer), said);
        }
        // What a wrong number leaves out is a hint, and the way to the right one another.
        let shown = memory_limit(Some(38.4));
        let hint = shown.clone().hint();
        assert!(!shown.shown().contains("two operations"), "{}", shown.shown());
        assert!(hint.text().contains("two operations") && !hint.text().contains("step along k"), "{}", hint.text());
        assert!(hint.hint().text().contains("step along k"));
    }

    #[test]
    fn the_suspect_is_named_by_its_counters() {
        let c = TileSuspect.counters(128, 128, 64).unwrap();
        let right = (c.local_load_requests + c.local_store_requests) as f64 / (128.0 * 128.0 * 64.0 / 32.0);
        assert!(right > 0.5, "{right}");
        assert!(
            tile_suspect(Fault::Spills, Some(right)).passed(),
            "{}",
            tile_suspect(Fault::Spills, Some(right)).text()
        );
        assert!(TileSuspect.source(Fault::Spills).is_some() && TileSuspect.source(Fault::BankConflicts).is_none());
        for (fault, number, said) in [
            (Fault::Unknown, None, "no fault is named"),
            (Fault::BankConflicts, None, "its conflicts are"),
            (Fault::LanesApart, None, "sectors a request"),
            (Fault::Barriers, None, "arrive at barriers"),
            (Fault::Race, None, "right at every size"),
            (Fault::RoundedSums, None, "no fault of this kernel"),
            (Fault::Spills, None, "no number yet"),
            (Fault::Spills, Some(32.0 * right), "not one"),
            (Fault::Spills, Some(f64::INFINITY), "is not it"),
        ] {
            red(&tile_suspect(fault, number), said);
        }
    }
}
