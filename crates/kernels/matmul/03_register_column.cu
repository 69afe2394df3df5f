// idea: a thread computes ROWS elements of one column, so a value of b, once read, serves ROWS multiply-adds.
// changed: tiles are no squares: TILE_M × TILE_K of a, TILE_K × TILE_N of b; the threads copy them element by element, a stride of the block apart.
// constants: TILE_M, TILE_N, TILE_K, ROWS from the table; a block has TILE_M · TILE_N ÷ ROWS threads in a line.
constexpr int THREADS = TILE_M * TILE_N / ROWS;

extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float a_tile[TILE_M][TILE_K];
    __shared__ float b_tile[TILE_K][TILE_N];
    int row0 = blockIdx.y * TILE_M, column0 = blockIdx.x * TILE_N;
    int thread_row = threadIdx.x / TILE_N * ROWS;
    int thread_column = threadIdx.x % TILE_N;
    float sum[ROWS] = {};
    for (int k0 = 0; k0 < k; k0 += TILE_K) {
        for (int i = threadIdx.x, iteration = 0; iteration < TILE_M * TILE_K / THREADS; ++iteration, i += THREADS) {
            int row = row0 + i / TILE_K, k_a = k0 + i % TILE_K;
            // Beyond the matrix stand zeros, which add nothing.
            a_tile[i / TILE_K][i % TILE_K] = (row < m && k_a < k) ? a[(size_t)row * k + k_a] : 0.0f;
        }
        for (int i = threadIdx.x, iteration = 0; iteration < TILE_K * TILE_N / THREADS; ++iteration, i += THREADS) {
            int k_b = k0 + i / TILE_N, column = column0 + i % TILE_N;
            b_tile[i / TILE_N][i % TILE_N] = (k_b < k && column < n) ? b[(size_t)k_b * n + column] : 0.0f;
        }
        __syncthreads();
        for (int i = 0; i < TILE_K; ++i) {
            float y = b_tile[i][thread_column];
            for (int r = 0; r < ROWS; ++r) {
                sum[r] += a_tile[thread_row + r][i] * y;
            }
        }
        __syncthreads();
    }
    for (int r = 0; r < ROWS; ++r) {
        int row = row0 + thread_row + r, column = column0 + thread_column;
        if (row < m && column < n) {
            c[(size_t)row * n + column] = sum[r];
        }
    }
}
