// idea: the next tiles travel from global to shared memory, past the registers, while this one is multiplied.
// changed: shared memory holds STAGES pairs of tiles in turn; one barrier a step; b is copied 16 bytes at a time.
// constants: as before, STAGES from the table. Where n or b's address forbids 16 bytes, b is copied by 4.
constexpr int THREADS = TILE_M * TILE_N / (ROWS * COLUMNS);
constexpr int LANES_M = 4, LANES_N = 8;

// Starts a copy to shared memory, of zeros when it is not inside the matrix, and does not wait for it.
template <int WIDTH> __device__ void copy_async(float *to, const float *from, bool inside) {
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 ::"r"(address), "l"(from), "n"(4 * WIDTH), "r"(inside ? 4 * WIDTH : 0) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS)
    matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ __align__(16) float a_tile[STAGES][TILE_K][TILE_M + 4];
    __shared__ __align__(16) float b_tile[STAGES][TILE_K][TILE_N];
    int row0 = blockIdx.y * TILE_M, column0 = blockIdx.x * TILE_N;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps_n = TILE_N / (LANES_N * COLUMNS);
    int lane_row = (lane >> 1 & 1) | (lane >> 3 & 2), lane_column = (lane & 1) | (lane >> 1 & 6);
    int thread_row = warp / warps_n * (LANES_M * ROWS) + lane_row * 4;
    int thread_column = warp % warps_n * (LANES_N * COLUMNS) + lane_column * 4;
    float sum[ROWS][COLUMNS] = {};
    bool wide = n % 4 == 0 && (size_t)b % 16 == 0;
    // Rows and columns beyond the matrix hold copies of the last ones, as nobody stores them; k beyond it holds zeros.
    auto fetch = [&](int step) {
        int k0 = step * TILE_K, stage = step % STAGES;
        for (int i = threadIdx.x, iteration = 0; iteration < TILE_M * TILE_K / THREADS; ++iteration, i += THREADS) {
            int row = min(row0 + i / TILE_K, m - 1), k_a = k0 + i % TILE_K;
            copy_async<1>(&a_tile[stage][i % TILE_K][i / TILE_K], a + (size_t)row * k + k_a, k_a < k);
        }
        for (int i = threadIdx.x, iteration = 0; wide && iteration < TILE_K * TILE_N / 4 / THREADS; ++iteration, i += THREADS) {
            int at = i % (TILE_N / 4) * 4, k_b = i / (TILE_N / 4);
            const float *from = b + (size_t)(k0 + k_b) * n + min(column0 + at, n - 4);
            copy_async<4>(&b_tile[stage][k_b][at], from, k0 + k_b < k);
        }
        for (int i = threadIdx.x, iteration = 0; !wide && iteration < TILE_K * TILE_N / THREADS; ++iteration, i += THREADS) {
            int at = i % TILE_N, k_b = i / TILE_N;
            const float *from = b + (size_t)(k0 + k_b) * n + min(column0 + at, n - 1);
            copy_async<1>(&b_tile[stage][k_b][at], from, k0 + k_b < k);
        }
        asm volatile("cp.async.commit_group;");
    };
    for (int step = 0; step < STAGES - 1; ++step) fetch(step);
    for (int step = 0; step * TILE_K < k; ++step) {
        // All fetches but the last STAGES - 2 are here; after the barrier everybody's, and the stage before is free.
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        fetch(step + STAGES - 1);
        int stage = step % STAGES;
#pragma unroll
        for (int i = 0; i < TILE_K; ++i) {
            float x[ROWS], y[COLUMNS];
            for (int r = 0; r < ROWS; r += 4) *(float4 *)&x[r] = *(float4 *)&a_tile[stage][i][thread_row + LANES_M * r];
            for (int s = 0; s < COLUMNS; s += 4) {
                *(float4 *)&y[s] = *(float4 *)&b_tile[stage][i][thread_column + LANES_N * s];
            }
            for (int r = 0; r < ROWS; ++r) {
                for (int s = 0; s < COLUMNS; ++s) sum[r][s] += x[r] * y[s];
            }
        }
    }
    for (int r = 0; r < ROWS; ++r) {
        for (int s = 0; s < COLUMNS; ++s) {
            int row = row0 + thread_row + LANES_M * (r - r % 4) + r % 4;
            int column = column0 + thread_column + LANES_N * (s - s % 4) + s % 4;
            if (row < m && column < n) c[(size_t)row * n + column] = sum[r][s];
        }
    }
}
