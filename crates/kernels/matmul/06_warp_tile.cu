// idea: a warp has a tile of its own, its lanes stand 4 × 8, and the 16-byte reads of a warp touch each bank once.
// changed: a lane's rows and columns come in fours that lie apart; neighbours 8 columns apart met in the same banks.
// constants: as before; TILE_M is a multiple of 4 · ROWS, TILE_N of 8 · COLUMNS.
constexpr int THREADS = TILE_M * TILE_N / (ROWS * COLUMNS);
constexpr int LANES_M = 4, LANES_N = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
    matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ __align__(16) float a_tile[TILE_K][TILE_M + 4];
    __shared__ __align__(16) float b_tile[TILE_K][TILE_N];
    int row0 = blockIdx.y * TILE_M, column0 = blockIdx.x * TILE_N;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps_n = TILE_N / (LANES_N * COLUMNS);
    // Bits 1 and 4 of the lane's number are its row, bits 0, 2 and 3 its column. So lane ^ 1 reads the same of a, and
    // lane ^ 2 the same of b: only with such neighbours does the hardware serve 16 lanes at once.
    int lane_row = (lane >> 1 & 1) | (lane >> 3 & 2), lane_column = (lane & 1) | (lane >> 1 & 6);
    int thread_row = warp / warps_n * (LANES_M * ROWS) + lane_row * 4;
    int thread_column = warp % warps_n * (LANES_N * COLUMNS) + lane_column * 4;
    float sum[ROWS][COLUMNS] = {};
    for (int k0 = 0; k0 < k; k0 += TILE_K) {
        for (int i = threadIdx.x, iteration = 0; iteration < TILE_M * TILE_K / THREADS; ++iteration, i += THREADS) {
            int row = row0 + i / TILE_K, k_a = k0 + i % TILE_K;
            // Beyond the matrix stand zeros, which add nothing.
            a_tile[i % TILE_K][i / TILE_K] = (row < m && k_a < k) ? a[(size_t)row * k + k_a] : 0.0f;
        }
        for (int i = threadIdx.x, iteration = 0; iteration < TILE_K * TILE_N / THREADS; ++iteration, i += THREADS) {
            int k_b = k0 + i / TILE_N, column = column0 + i % TILE_N;
            b_tile[i / TILE_N][i % TILE_N] = (k_b < k && column < n) ? b[(size_t)k_b * n + column] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < TILE_K; ++i) {
            float x[ROWS], y[COLUMNS];
            for (int r = 0; r < ROWS; r += 4) *(float4 *)&x[r] = *(float4 *)&a_tile[i][thread_row + LANES_M * r];
            for (int s = 0; s < COLUMNS; s += 4) *(float4 *)&y[s] = *(float4 *)&b_tile[i][thread_column + LANES_N * s];
            for (int r = 0; r < ROWS; ++r) {
                for (int s = 0; s < COLUMNS; ++s) sum[r][s] += x[r] * y[s];
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS; ++r) {
        for (int s = 0; s < COLUMNS; ++s) {
            int row = row0 + thread_row + LANES_M * (r - r % 4) + r % 4;
            int column = column0 + thread_column + LANES_N * (s - s % 4) + s % 4;
            if (row < m && column < n) c[(size_t)row * n + column] = sum[r][s];
        }
    }
}
