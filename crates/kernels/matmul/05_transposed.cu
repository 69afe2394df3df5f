// idea: a's tile lies transposed in shared memory, so a thread reads its values of a, too, 16 bytes at a time.
// changed: a_tile is [k][row], its rows 4 longer, so that its writes fall into different banks; reads are float4.
// constants: as before; ROWS, COLUMNS are multiples of 4.
constexpr int THREADS = TILE_M * TILE_N / (ROWS * COLUMNS);

extern "C" __global__ void __launch_bounds__(THREADS)
    matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ __align__(16) float a_tile[TILE_K][TILE_M + 4];
    __shared__ __align__(16) float b_tile[TILE_K][TILE_N];
    int row0 = blockIdx.y * TILE_M, column0 = blockIdx.x * TILE_N;
    int thread_row = threadIdx.x / (TILE_N / COLUMNS) * ROWS;
    int thread_column = threadIdx.x % (TILE_N / COLUMNS) * COLUMNS;
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
            for (int r = 0; r < ROWS; r += 4) *(float4 *)&x[r] = *(float4 *)&a_tile[i][thread_row + r];
            for (int s = 0; s < COLUMNS; s += 4) *(float4 *)&y[s] = *(float4 *)&b_tile[i][thread_column + s];
            for (int r = 0; r < ROWS; ++r) {
                for (int s = 0; s < COLUMNS; ++s) sum[r][s] += x[r] * y[s];
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS; ++r) {
        for (int s = 0; s < COLUMNS; ++s) {
            int row = row0 + thread_row + r, column = column0 + thread_column + s;
            if (row < m && column < n) c[(size_t)row * n + column] = sum[r][s];
        }
    }
}
