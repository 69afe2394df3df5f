// idea: a thread computes 8 × 16 elements, not 8 × 8: 6 reads of shared memory serve 128 multiply-adds, where 4 served 64.
// changed: shared memory is dynamic, as more than 48 KB must be; addresses move along k; c is written in fours.
// constants: as before. TILE_K is a multiple of 8, THREADS of TILE_N ÷ 4; shared memory: STAGES · sizeof(Stage).
constexpr int THREADS = TILE_M * TILE_N / (ROWS * COLUMNS);
constexpr int LANES_M = 4, LANES_N = 8;
// Rows of a, and of b, that all threads copy at once: a by 8 along k (32 bytes of a row, and a warp writes 32 banks).
constexpr int A_ROWS = THREADS / 8, B_ROWS = THREADS / (TILE_N / 4);

struct __align__(16) Stage {
    float a[TILE_K][TILE_M + 4];
    float b[TILE_K][TILE_N];
};

// Starts a copy to shared memory, of zeros when it is not inside the matrix, and does not wait for it.
template <int WIDTH> __device__ void copy_async(float *to, const float *from, bool inside) {
    unsigned address = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 ::"r"(address), "l"(from), "n"(4 * WIDTH), "r"(inside ? 4 * WIDTH : 0) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS)
    matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    extern __shared__ Stage stages[];
    int row0 = blockIdx.y * TILE_M, column0 = blockIdx.x * TILE_N;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps_n = TILE_N / (LANES_N * COLUMNS);
    int lane_row = (lane >> 1 & 1) | (lane >> 3 & 2), lane_column = (lane & 1) | (lane >> 1 & 6);
    int thread_row = warp / warps_n * (LANES_M * ROWS) + lane_row * 4;
    int thread_column = warp % warps_n * (LANES_N * COLUMNS) + lane_column * 4;
    float sum[ROWS][COLUMNS] = {};
    // Rows and columns beyond the matrix hold copies of the last ones, as nobody stores them; k beyond it holds zeros.
    int a_k = threadIdx.x % 8, a_row = threadIdx.x / 8;
    int b_k = threadIdx.x / (TILE_N / 4), b_column = threadIdx.x % (TILE_N / 4) * 4;
    const float *from_a[TILE_M / A_ROWS], *from_b = b + (size_t)b_k * n;
    for (int r = 0; r < TILE_M / A_ROWS; ++r) from_a[r] = a + (size_t)min(row0 + a_row + r * A_ROWS, m - 1) * k + a_k;
    bool wide = n % 4 == 0 && ((size_t)b | (size_t)c) % 16 == 0;
    auto fetch = [&](int step) {
        Stage &to = stages[step % STAGES];
        int left = k - step * TILE_K;
        for (int r = 0; r < TILE_M / A_ROWS; ++r) {
            for (int i = 0; i < TILE_K; i += 8) {
                copy_async<1>(&to.a[a_k + i][a_row + r * A_ROWS], from_a[r] + i, a_k + i < left);
            }
            from_a[r] += TILE_K;
        }
        for (int i = 0; i < TILE_K; i += B_ROWS, from_b += (size_t)B_ROWS * n) {
            if (wide) copy_async<4>(&to.b[b_k + i][b_column], from_b + min(column0 + b_column, n - 4), b_k + i < left);
            for (int j = 0; !wide && j < 4; ++j) {
                int column = min(column0 + b_column + j, n - 1);
                copy_async<1>(&to.b[b_k + i][b_column + j], from_b + column, b_k + i < left);
            }
        }
        asm volatile("cp.async.commit_group;");
    };
    for (int step = 0; step < STAGES - 1; ++step) fetch(step);
    for (int step = 0; step * TILE_K < k; ++step) {
        // All fetches but the last STAGES - 2 are here; after the barrier everybody's, and the stage before is free.
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        fetch(step + STAGES - 1);
        Stage &tile = stages[step % STAGES];
#pragma unroll
        for (int i = 0; i < TILE_K; ++i) {
            float x[ROWS], y[COLUMNS];
            for (int r = 0; r < ROWS; r += 4) *(float4 *)&x[r] = *(float4 *)&tile.a[i][thread_row + LANES_M * r];
            for (int s = 0; s < COLUMNS; s += 4) *(float4 *)&y[s] = *(float4 *)&tile.b[i][thread_column + LANES_N * s];
            for (int r = 0; r < ROWS; ++r) {
                for (int s = 0; s < COLUMNS; ++s) sum[r][s] += x[r] * y[s];
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int s = 0; s < COLUMNS; s += 4) {
            int row = row0 + thread_row + LANES_M * (r - r % 4) + r % 4, column = column0 + thread_column + LANES_N * s;
            float *to = c + (size_t)row * n + column;
            if (wide && row < m && column < n) *(float4 *)to = *(float4 *)&sum[r][s];
            for (int j = 0; j < 4; ++j) if (!wide && row < m && column + j < n) to[j] = sum[r][s + j];
        }
    }
}
