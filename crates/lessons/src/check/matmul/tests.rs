//! Right kernels pass, and each wrong one is told what is wrong with it.

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
            ("tile[k][r] = row0 + r < m ? a[row0 * 8 + i]", "tile[k][r] = row0 + r < m ? a[row0 * 8 + r]", "row 0 is"),
            ("if (row0 + r + j < m) ", "", "past the end"),
        ],
    );
    let lanes = THIN.replace("int r = i / 8, k = i % 8;", apart).replace("a[row0 * 8 + i]", "a[(row0 + r) * 8 + k]");
    assert!(thin(&lanes).text().contains("one load of `a` touches 32 sectors"), "{}", thin(&lanes).text());
    // Not transposed, the conflict is in the reads.
    let rows = THIN
        .replace("[8][132]", "[128][8]")
        .replace("tile[k][r] =", "tile[r][k] =")
        .replace("*(float4 *)&tile[k][r]", "make_float4(tile[r][k], tile[r + 1][k], tile[r + 2][k], tile[r + 3][k])");
    assert!(thin(&rows).text().contains("the lanes meet where they read"), "{}", thin(&rows).text());
    // Right, without conflicts, and four times as many reads.
    let narrow = THIN
        .replace("int r = threadIdx.x * 4;", "int r = threadIdx.x;")
        .replace("*(float4 *)&tile[k][r]", "make_float4(tile[k][r], tile[k][r + 32], tile[k][r + 64], tile[k][r + 96])")
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
