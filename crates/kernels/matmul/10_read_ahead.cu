// idea: a thread reads its next values of a and b from shared memory while it multiplies the ones before (read-ahead).
// changed: x and four of y exist twice; the barrier comes before a tile's last multiply-adds, when the next is read.
// constants: smaller tiles again, so that three blocks share a multiprocessor. COLUMNS is a multiple of 8.
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

// Writes four neighbours of c, of which `left` lie within the matrix. A 16-byte store takes four registers in a row; as
// the compiler cannot know that `zero` is zero, it copies the sums there, and is free to keep them where multiply-adds
// find their three operands in different banks.
__device__ void store_four(float *to, const float *sums, int left, bool wide, float zero) {
    float four[4] = {sums[0] + zero, sums[1] + zero, sums[2] + zero, sums[3] + zero};
    if (wide && left > 0) *(float4 *)to = make_float4(four[0], four[1], four[2], four[3]);
    for (int j = 0; j < 4; ++j) {
        if (!wide && j < left) to[j] = four[j];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
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
    float zero = __int_as_float(k >> 31);
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
    float x[2][ROWS], y[2][4];
    auto read_x = [&](int step, int i) {
        const float *from = &stages[step % STAGES].a[i][thread_row];
        for (int r = 0; r < ROWS; r += 4) *(float4 *)&x[i % 2][r] = *(const float4 *)&from[LANES_M * r];
    };
    auto read_y = [&](int step, int i, int s) {
        *(float4 *)y[s / 4 % 2] = *(const float4 *)&stages[step % STAGES].b[i][thread_column + LANES_N * s];
    };
    // All fetches but the last STAGES - 2 are here; after the barrier everybody's, and the stage before is free.
    auto arrived = [&](int step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        read_x(step, 0);
        read_y(step, 0, 0);
    };
    for (int step = 0; step < STAGES - 1; ++step) fetch(step);
    arrived(0);
    for (int step = 0; step * TILE_K < k; ++step) {
#pragma unroll
        for (int at = 0; at < TILE_K * COLUMNS; at += 4) {
            int i = at / COLUMNS, next = at + 4;
            if (next < TILE_K * COLUMNS) read_y(step, next / COLUMNS, next % COLUMNS);
            else arrived(step + 1);
            if (at % COLUMNS == 4 && i + 1 < TILE_K) read_x(step, i + 1);
            if (at == 0) fetch(step + STAGES - 1);
            // Registers lie in two banks, each of which gives one value a cycle; a multiply-add has three operands. Two
            // are left to read if one is the y of the instruction before, or, at a turn, its x.
            for (int s = at % COLUMNS; s < at % COLUMNS + 4; ++s) {
                for (int t = 0; t < ROWS; ++t) {
                    int r = s % 2 == 0 ? t : ROWS - 1 - t;
                    sum[r][s] += x[i % 2][r] * y[s / 4 % 2][s % 4];
                }
            }
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
        for (int s = 0; s < COLUMNS; s += 4) {
            int row = row0 + thread_row + LANES_M * (r - r % 4) + r % 4, column = column0 + thread_column + LANES_N * s;
            if (row < m) store_four(c + (size_t)row * n + column, &sum[r][s], n - column, wide, zero);
        }
    }
}
