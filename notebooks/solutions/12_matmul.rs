// Solutions of lesson 12: each section replaces the exercise cell of that name.

// exercise: tiled
const TILED: &str = r#"extern "C" __global__ void tiled(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float a_tile[16][16], b_tile[16][16];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 16 + y, column = blockIdx.x * 16 + x;
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += 16) {
        a_tile[y][x] = row < m && k0 + x < k ? a[row * k + k0 + x] : 0.0f;
        b_tile[y][x] = k0 + y < k && column < n ? b[(k0 + y) * n + column] : 0.0f;
        __syncthreads(); // both tiles are filled
        for (int i = 0; i < 16; ++i) { sum += a_tile[y][i] * b_tile[i][x]; }
        __syncthreads(); // nobody reads them any more
    }
    if (row < m && column < n) { c[row * n + column] = sum; }
}"#;

// exercise: thin
const THIN: &str = r#"extern "C" __global__ void thin(const float *a, const float *x, float *y, int m) {
    // Rows of 132: column k begins 4 banks behind column k - 1, and 4 rows fill the gap.
    __shared__ __align__(16) float tile[8][132];
    int row0 = blockIdx.x * 128, r = threadIdx.x * 4;
    for (int i = threadIdx.x; i < 128 * 8; i += 256)
        tile[i % 8][i / 8] = row0 + i / 8 < m ? a[row0 * 8 + i] : 0.0f;
    __syncthreads();
    if (threadIdx.x >= 32) { return; }
    float sum[4] = {};
    for (int k = 0; k < 8; ++k) {
        float4 four = *(float4 *)&tile[k][r];
        sum[0] += four.x * x[k], sum[1] += four.y * x[k], sum[2] += four.z * x[k], sum[3] += four.w * x[k];
    }
    for (int j = 0; j < 4; ++j) { if (row0 + r + j < m) { y[row0 + r + j] = sum[j]; } }
}"#;

// exercise: four_rows
const FOUR_ROWS: &str = r#"extern "C" __global__ void four_rows(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float a_tile[32][32], b_tile[32][32];
    int x = threadIdx.x, y = threadIdx.y, row = blockIdx.y * 32 + y, column = blockIdx.x * 32 + x;
    float sum[4] = {};
    for (int k0 = 0; k0 < k; k0 += 32) {
        for (int r = 0; r < 32; r += 8) {
            a_tile[y + r][x] = row + r < m && k0 + x < k ? a[(row + r) * k + k0 + x] : 0.0f;
            b_tile[y + r][x] = k0 + y + r < k && column < n ? b[(k0 + y + r) * n + column] : 0.0f;
        }
        __syncthreads();
        for (int i = 0; i < 32; ++i) {
            float value = b_tile[i][x]; // read once, used four times
            for (int r = 0; r < 4; ++r) { sum[r] += a_tile[y + 8 * r][i] * value; }
        }
        __syncthreads();
    }
    for (int r = 0; r < 4; ++r) {
        if (row + 8 * r < m && column < n) { c[(row + 8 * r) * n + column] = sum[r]; }
    }
}"#;
