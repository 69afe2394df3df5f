//! Exercises of lesson 12: pieces of a matrix multiplication, run in the simulator, which counts what shared memory serves.

use super::Verdict;
use super::kernels::{self, first_wrong, whole};
use super::verdict::{Check, none_wrong, wrong};
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::{AccessKind, Inspection, Space};
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

/// Side of the tiles of `tiled`, and of its blocks.
const TILE: usize = 16;
/// Side of the tiles of `four_rows`, whose blocks have a quarter as many rows of threads.
const WIDE: usize = 32;
/// Rows that a block of `thin` takes, and columns of its matrix.
const ROWS: usize = 128;
const COLUMNS: usize = 8;

/// Rows, columns and the length of the sums: whole tiles first, then sides that are none.
const SHAPES: [(usize, usize, usize); 5] = [(32, 32, 64), (1, 1, 1), (17, 33, 5), (33, 17, 40), (50, 70, 100)];

/// Checks a kernel `tiled(const float *a, const float *b, float *c, int m, int n, int k)`: a matrix product by tiles of 16 × 16 in
/// shared memory, launched with one thread an element.
pub fn tiled(source: &str) -> Verdict {
    kernels::verdict("tiled", source, "tiled", mistake_hint, |gpu, kernel| {
        for shape in SHAPES {
            let config = LaunchConfig::for_table(shape.0, shape.1, (TILE as u32, TILE as u32));
            let hint = "look at what the threads beyond an edge put into the tiles, and which of them may store";
            not_by_tiles(&product(gpu, kernel, config, shape, hint)?, shape)?;
        }
        Ok(())
    })
}

/// Where tiles do not save what they are there for, and a hint.
fn not_by_tiles(seen: &Inspection, (m, n, k): (usize, usize, usize)) -> Check {
    let c = &seen.counters;
    let blocks = m.div_ceil(TILE) * n.div_ceil(TILE);
    let (steps, warps) = (k.div_ceil(TILE), TILE * TILE / 32);
    // Each warp loads one number of a and one of b a step.
    let loads = (blocks * steps * warps * 2) as u64;
    if c.global_load_requests > loads {
        let what = format!(
            "with m, n, k = {m}, {n}, {k} warps load from global memory {} times, where {loads} are enough",
            c.global_load_requests
        );
        return wrong(what, "the inner loop is to read the tiles alone, as they lie in shared memory");
    }
    let barriers = (blocks * steps * warps * 2) as u64;
    if c.barriers > barriers {
        let what = format!(
            "with m, n, k = {m}, {n}, {k} warps arrive at barriers {} times, where {barriers} are enough",
            c.barriers
        );
        return wrong(
            what,
            "it is right. Two barriers a tile: one when it is filled, one when all have used it; none in the inner loop",
        );
    }
    Ok(())
}

/// Checks a kernel `thin(const float *a, const float *x, float *y, int m)` that computes y = a · x for a matrix of 8 columns, launched
/// with 256 threads for every 128 rows: each sector fetched once, 16 bytes a read of the tile, and no bank conflict.
pub fn thin(source: &str) -> Verdict {
    kernels::verdict("thin", source, "thin", mistake_hint, |gpu, kernel| {
        for m in [ROWS, 1, 31, 33, 300] {
            let (a, x) = (whole(m * COLUMNS, 1), whole(COLUMNS, 2));
            let (on_a, on_x, mut y) = (gpu.to_device(&a)?, gpu.to_device(&x)?, gpu.poison::<f32>(m)?);
            let config = LaunchConfig::new(m.div_ceil(ROWS) as u32, 256);
            // First as any launch: its mistakes come as an error.
            kernel.launch(config, (&on_a, &on_x, &mut y, m as i32))?;
            let dot = |row: &[f32]| row.iter().zip(&x).map(|(a, x)| a * x).sum();
            let expected: Vec<f32> = a.chunks(COLUMNS).map(dot).collect();
            let hint = "row r of column k is tile[k][r], where it is written and where it is read";
            none_wrong(first_wrong(&format!("m = {m}"), &y.to_host()?, &expected, |row| format!("row {row}")), hint)?;
            let seen = kernel.inspect(config, (&on_a, &on_x, &mut y, m as i32))?;
            wasteful(&seen, m)?;
        }
        Ok(())
    })
}

/// Sectors that lie apart, conflicts, and reads that are not wide.
fn wasteful(seen: &Inspection, m: usize) -> Check {
    let c = &seen.counters;
    let of_a = |line: &&gpulab::inspect::Access| line.space == Space::Global && line.variable == "a";
    if let Some(load) = seen.accesses.iter().filter(of_a).find(|load| load.sectors > 4) {
        let what = format!("with m = {m} one load of `a` touches {} sectors, where 4 would do", load.sectors);
        return wrong(
            what,
            "let the lanes read neighbours of `a`, as they did: the conflict is in the shape of the tile",
        );
    }
    let (loads, stores) = (c.shared_load_bank_conflicts, c.shared_store_bank_conflicts);
    if loads + stores > 0 {
        let what =
            format!("with m = {m} there are {stores} bank conflicts of stores to shared memory, and {loads} of loads");
        if stores == 0 {
            let hint = "now the lanes meet where they read: keep tile[k][r] and the `float4` as they were, and change the \
                        length of the tile's rows alone";
            return wrong(what, hint);
        }
        let hint = "word w lies in bank w % 32. A warp stores 4 rows of 8 columns, at word k * (length of a row) + r: \
                    which length puts k = 0 to 7, r = 0 to 3 into 32 banks? It must stay a multiple of 4";
        return wrong(what, hint);
    }
    let narrow = |read: &&gpulab::inspect::Access| {
        read.space == Space::Shared && read.kind == AccessKind::Load && read.bytes < 16
    };
    if let Some(read) = seen.accesses.iter().find(narrow) {
        let what = format!("no conflicts, but a lane reads {} bytes of the tile at a time, not 16", read.bytes);
        return wrong(
            what,
            "keep the `float4`: four times fewer instructions, and the rows' length can serve both sides",
        );
    }
    Ok(())
}

/// Checks a kernel `four_rows(const float *a, const float *b, float *c, int m, int n, int k)`: a matrix product by tiles of 32 × 32,
/// launched with blocks of 32 × 8 threads, four elements a thread; at most 5 reads of shared memory for 4 multiply-adds.
pub fn four_rows(source: &str) -> Verdict {
    kernels::verdict("four_rows", source, "four_rows", mistake_hint, |gpu, kernel| {
        for shape in SHAPES {
            let mut config = LaunchConfig::for_table(shape.0, shape.1, (WIDE as u32, WIDE as u32));
            config.block = (WIDE as u32, WIDE as u32 / 4, 1);
            let hint = "a thread has four sums, of rows that are its own: are the rows of its sums those it stores to?";
            too_many_reads(&product(gpu, kernel, config, shape, hint)?, shape)?;
        }
        Ok(())
    })
}

/// More reads a multiply-add than four sums a thread need. Only whole tiles are judged.
fn too_many_reads(seen: &Inspection, (m, n, k): (usize, usize, usize)) -> Check {
    if [m, n, k].iter().any(|side| !side.is_multiple_of(WIDE)) {
        return Ok(());
    }
    let c = &seen.counters;
    if c.local_load_requests > 0 {
        let what =
            format!("warps load from local memory {} times: the sums do not lie in registers", c.local_load_requests);
        return wrong(
            what,
            "an array lies in registers only where each index is known to the compiler: unroll the loop over it",
        );
    }
    let needed = (m * n * k / WIDE / WIDE * 2) as u64;
    let loads = seen.counters.global_load_requests;
    if loads > needed {
        let what = format!("warps load from global memory {loads} times, where {needed} are enough");
        return wrong(
            what,
            "each value is to be loaded once a block: one walk over k in place of four, with four sums in registers, and the inner loop reads the tiles alone",
        );
    }
    let (reads, multiplied) = (c.shared_load_wavefronts, (m * n * k / 32) as u64);
    // 5 for 4, and a little for a kernel that reads ahead.
    let each = reads as f64 / multiplied as f64;
    if each > 1.3 && c.shared_load_bank_conflicts > 0 {
        let what = format!(
            "{each:.2} turns of shared memory a multiply-add, {} of them conflicts",
            c.shared_load_bank_conflicts
        );
        return wrong(
            what,
            "lanes of a warp that read different rows of a tile meet in one bank: let them read one row, or make the rows longer",
        );
    }
    if each > 1.3 {
        let what = format!("it is right, and reads shared memory {each:.2} times a multiply-add; 1.25 is to be had");
        return wrong(
            what,
            "one walk over k in place of four, with four sums in registers: for each i a thread reads its value of b once, and uses it four times",
        );
    }
    Ok(())
}

/// What a launch did that multiplied two matrices, or what is wrong with its result.
fn product(
    gpu: &Gpu,
    kernel: &Kernel,
    config: LaunchConfig,
    (m, n, k): (usize, usize, usize),
    hint: &'static str,
) -> Check<Inspection> {
    let (a, b) = (whole(m * k, 1), whole(k * n, 2));
    let (on_a, on_b, mut c) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.poison::<f32>(m * n)?);
    let sides = (m as i32, n as i32, k as i32);
    // First as any launch: its mistakes come as an error.
    kernel.launch(config, (&on_a, &on_b, &mut c, sides.0, sides.1, sides.2))?;
    let given = c.to_host()?;
    let seen = kernel.inspect(config, (&on_a, &on_b, &mut c, sides.0, sides.1, sides.2))?;
    let at = |at: usize| (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
    let expected: Vec<f32> = (0..m * n).map(at).collect();
    let place = |at: usize| format!("row {}, column {}", at / n, at % n);
    none_wrong(first_wrong(&format!("m, n, k = {m}, {n}, {k}"), &given, &expected, place), hint)?;
    Ok(seen)
}

/// What to ask oneself about the first mistake of threads that share tiles.
fn mistake_hint(error: &Error) -> &'static str {
    let is = |kinds: &[Kind]| kernels::first_is(error, kinds);
    if is(&[Kind::SharedRace]) && reads_too_early(error) {
        "a thread reads what another one has perhaps not written yet: all must have filled the tiles before anyone reads them. \
         Where must they wait for each other?"
    } else if is(&[Kind::SharedRace]) {
        "a thread writes where another one perhaps still reads: a tile is filled, then used by all, and only then filled \
         anew. Where must they wait for each other?"
    } else if is(&[Kind::UninitialisedRead]) {
        "another thread of the block writes that word of the tile: all must have written before anyone reads, and none \
         may `return` before: one whose element does not exist puts a zero there"
    } else if is(&[Kind::BarrierDivergence, Kind::Deadlock]) {
        "every thread of the block must come by the barrier, also one whose element does not exist"
    } else if is(&[Kind::GlobalRace]) {
        "two threads write one element of the result: which rows are this thread's, and which its neighbour's?"
    } else if is(&[Kind::Misaligned]) {
        "16 bytes are read at multiples of 16: so a row of the tile has a length that is a multiple of 4 floats"
    } else {
        "do the sum for that block and thread by hand: which element is its own, and does it exist?"
    }
}

/// Whether a race is one of a thread that reads what another wrote. The others are of threads that write too early.
fn reads_too_early(error: &Error) -> bool {
    let Error::Mistakes { shown, .. } = error else { return false };
    shown.iter().flat_map(|mistake| &mistake.what).any(|what| what.starts_with("reads"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::expect;

    const TILED: &str =
        "extern \"C\" __global__ void tiled(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float a_tile[16][16];
    __shared__ float b_tile[16][16];
    int x = threadIdx.x, y = threadIdx.y;
    int row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += 16) {
        a_tile[y][x] = row < m && k0 + x < k ? a[row * k + k0 + x] : 0.0f;
        b_tile[y][x] = k0 + y < k && column < n ? b[(k0 + y) * n + column] : 0.0f;
        __syncthreads(); // filled
        for (int i = 0; i < 16; ++i) { sum += a_tile[y][i] * b_tile[i][x]; }
        __syncthreads(); // used
    }
    if (row < m && column < n) { c[row * n + column] = sum; }
}";

    const THIN: &str = "extern \"C\" __global__ void thin(const float *a, const float *x, float *y, int m) {
    __shared__ __align__(16) float tile[8][132];
    int row0 = blockIdx.x * 128;
    for (int i = threadIdx.x; i < 128 * 8; i += 256) {
        int r = i / 8, k = i % 8;
        tile[k][r] = row0 + r < m ? a[row0 * 8 + i] : 0.0f;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        int r = threadIdx.x * 4;
        float sum[4] = {};
        for (int k = 0; k < 8; ++k) {
            float4 four = *(float4 *)&tile[k][r];
            sum[0] += four.x * x[k], sum[1] += four.y * x[k], sum[2] += four.z * x[k], sum[3] += four.w * x[k];
        }
        for (int j = 0; j < 4; ++j) { if (row0 + r + j < m) { y[row0 + r + j] = sum[j]; } }
    }
}";

    const FOUR_ROWS: &str =
        "extern \"C\" __global__ void four_rows(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float a_tile[32][32];
    __shared__ float b_tile[32][32];
    int x = threadIdx.x, y = threadIdx.y * 4;
    int row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
    float sum[4] = {};
    for (int k0 = 0; k0 < k; k0 += 32) {
        for (int r = 0; r < 4; ++r) {
            a_tile[y + r][x] = row + r < m && k0 + x < k ? a[(row + r) * k + k0 + x] : 0.0f;
            b_tile[y + r][x] = k0 + y + r < k && column < n ? b[(k0 + y + r) * n + column] : 0.0f;
        }
        __syncthreads(); // filled
        for (int i = 0; i < 32; ++i) {
            float value = b_tile[i][x];
            for (int r = 0; r < 4; ++r) { sum[r] += a_tile[y + r][i] * value; }
        }
        __syncthreads(); // used
    }
    for (int r = 0; r < 4; ++r) {
        if (row + r < m && column < n) { c[(row + r) * n + column] = sum[r]; }
    }
}";

    #[test]
    fn tiled_knows_its_mistakes() {
        let read = "sum += a_tile[y][i] * b_tile[i][x];";
        expect(
            tiled,
            TILED,
            &[
                ("__syncthreads(); // filled", "", "all must have filled the tiles"),
                ("__syncthreads(); // used", "", "and only then filled anew"),
                ("__syncthreads(); // used", "if (x < 8) __syncthreads();", "every thread of the block must come by"),
                (read, "sum += a_tile[y][i] * b_tile[i][x]; __syncthreads();", "none in the inner loop"),
                (
                    read,
                    "if (row < m && column < n && k0 + i < k) sum += a[row * k + k0 + i] * b_tile[i][x];",
                    "read the tiles alone",
                ),
                ("row < m && k0 + x < k ? a[row * k + k0 + x] : 0.0f", "a[row * k + k0 + x]", "past the end"),
                ("if (row < m && column < n)", "if (row < m && column < n - 1)", "threads beyond an edge"),
                ("b_tile[i][x]", "b_tile[x][i]", "row 0, column 0 is"),
                (
                    "    float sum = 0.0f;",
                    "    float sum = 0.0f;\n    if (row >= m || column >= n) return;",
                    "none may `return` before",
                ),
                ("void tiled", "void tile", "keep its name and its parameters"),
            ],
        );
    }

    #[test]
    fn thin_counts_conflicts_and_wide_reads() {
        let apart = "int r = i % 128, k = i / 128;";
        expect(
            thin,
            THIN,
            &[
                ("[132]", "[128]", "bank conflicts of stores"),
                ("[132]", "[136]", "bank conflicts of stores"),
                ("[132]", "[129]", "a multiple of 4 floats"),
                ("__syncthreads();", "", "Where must they wait"),
                (
                    "tile[k][r] = row0 + r < m ? a[row0 * 8 + i]",
                    "tile[k][r] = row0 + r < m ? a[row0 * 8 + r]",
                    "row 0 is",
                ),
                ("if (row0 + r + j < m) ", "", "past the end"),
            ],
        );
        let lanes =
            THIN.replace("int r = i / 8, k = i % 8;", apart).replace("a[row0 * 8 + i]", "a[(row0 + r) * 8 + k]");
        assert!(thin(&lanes).text().contains("one load of `a` touches 32 sectors"), "{}", thin(&lanes).text());
        // Not transposed, the conflict is in the reads.
        let rows = THIN.replace("[8][132]", "[128][8]").replace("tile[k][r] =", "tile[r][k] =").replace(
            "*(float4 *)&tile[k][r]",
            "make_float4(tile[r][k], tile[r + 1][k], tile[r + 2][k], tile[r + 3][k])",
        );
        assert!(thin(&rows).text().contains("the lanes meet where they read"), "{}", thin(&rows).text());
        // Right, without conflicts, and four times as many reads.
        let narrow = THIN
            .replace("int r = threadIdx.x * 4;", "int r = threadIdx.x;")
            .replace(
                "*(float4 *)&tile[k][r]",
                "make_float4(tile[k][r], tile[k][r + 32], tile[k][r + 64], tile[k][r + 96])",
            )
            .replace("row0 + r + j", "row0 + r + 32 * j");
        assert!(thin(&narrow).text().contains("4 bytes of the tile at a time"));
    }

    /// Four walks over k, an element each: as shipped.
    const FOUR_WALKS: &str =
        "extern \"C\" __global__ void four_rows(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float a_tile[8][32], b_tile[32][32];
    int x = threadIdx.x, y = threadIdx.y, column = blockIdx.x * 32 + x;
    for (int row = blockIdx.y * 32 + y, walk = 0; walk < 4; ++walk, row += 8) {
        float sum = 0.0f;
        for (int k0 = 0; k0 < k; k0 += 32) {
            a_tile[y][x] = row < m && k0 + x < k ? a[row * k + k0 + x] : 0.0f;
            for (int r = y; r < 32; r += 8) b_tile[r][x] = k0 + r < k && column < n ? b[(k0 + r) * n + column] : 0.0f;
            __syncthreads();
            for (int i = 0; i < 32; ++i) sum += a_tile[y][i] * b_tile[i][x];
            __syncthreads();
        }
        if (row < m && column < n) c[row * n + column] = sum;
    }
}";

    #[test]
    fn four_rows_counts_reads() {
        let value = "float value = b_tile[i][x];";
        let sums = "for (int r = 0; r < 4; ++r) { sum[r] += a_tile[y + r][i] * value; }";
        expect(
            four_rows,
            FOUR_ROWS,
            &[
                ("__syncthreads(); // filled", "", "all must have filled the tiles"),
                ("__syncthreads(); // used", "", "and only then filled anew"),
                (
                    value,
                    "float value = k0 + i < k && column < n ? b[(k0 + i) * n + column] : 0.0f;",
                    "reads the tiles alone",
                ),
                (
                    sums,
                    "#pragma unroll 1\n for (int r = 0; r < 4; ++r) { sum[r] += a_tile[y + r][i] * value; }",
                    "registers",
                ),
                ("= sum[r]; }", "= sum[0]; }", "are the rows of its sums"),
                ("a_tile[y + r][i] * value", "a_tile[y][i] * value", "are the rows of its sums"),
                ("row + r < m && column < n) {", "column < n) {", "past the end"),
            ],
        );
        let text = four_rows(FOUR_WALKS).text();
        assert!(text.contains("2.00 times a multiply-add") || text.contains("load from global memory"), "{text}");
        // A value of a for two columns, and of b for two rows: 4 reads for 4.
        let two = FOUR_ROWS
        .replace("y = threadIdx.y * 4;", "y = threadIdx.y * 4, x2 = x % 16, y2 = x / 16 * 2 + y;")
        .replace("float value = b_tile[i][x];", "float left = b_tile[i][x2], right = b_tile[i][x2 + 16];")
        .replace(
            "for (int r = 0; r < 4; ++r) { sum[r] += a_tile[y + r][i] * value; }",
            "for (int r = 0; r < 2; ++r) { float u = a_tile[y2 + r][i]; sum[r] += u * left; sum[r + 2] += u * right; }",
        )
        .replace(
            "if (row + r < m && column < n) { c[(row + r) * n + column] = sum[r]; }",
            "int at = row - y + y2 + r % 2, to = column - x + x2 + r / 2 * 16; if (at < m && to < n) c[at * n + to] = sum[r];",
        );
        // The two rows of a that a warp reads at once lie in one bank, or apart.
        assert!(four_rows(&two).text().contains("conflicts"), "{}", four_rows(&two).text());
        let apart = two.replace("a_tile[32][32]", "a_tile[32][33]");
        assert!(four_rows(&apart).passed(), "{}", four_rows(&apart).text());
    }
}
