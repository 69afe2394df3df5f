// idea: larger tiles where a product has enough of them: a thread computes 8 × 16 again, 6 reads for 128 multiply-adds.
// changed: what is left over is cut together with a whole turn's tiles, so that few blocks meet in a tile.
// constants: tiles of 128 × 256 and 8 along k, in four stages; one block to a multiprocessor.
// The next x is read with the first columns of a step along k, not the second: there are four groups now.
constexpr int THREADS = TILE_M * TILE_N / (ROWS * COLUMNS);
constexpr int LANES_M = 4, LANES_N = 8;
// Rows of a, and of b, that all threads copy at once: a by 8 along k (32 bytes of a row, and a warp writes 32 banks).
constexpr int A_ROWS = THREADS / 8, B_ROWS = THREADS / (TILE_N / 4);

struct __align__(16) Stage {
    float a[TILE_K][TILE_M + 4];
    float b[TILE_K][TILE_N];
};

// Set when the first part of a tile stands in c; taken back by the next block, which adds to it.
__device__ volatile unsigned stands[MAX_BLOCKS];
// Blocks start in any order, so each takes a ticket: lower ones run or have ended. The count goes back to 0 by itself.
__device__ unsigned tickets;
__shared__ unsigned ticket;

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

// Adds what stands in c already to four sums. (Not from L1, which does not see what other multiprocessors write.)
__device__ void add_four(const float *from, float *sums, int left, bool wide) {
    float4 old = wide && left > 0 ? __ldcg((const float4 *)from) : float4();
    sums[0] += old.x, sums[1] += old.y, sums[2] += old.z, sums[3] += old.w;
    for (int j = 0; j < 4; ++j) {
        if (!wide && j < left) sums[j] += __ldcg(from + j);
    }
}

// Computes the steps [first, last) of one tile of c. WIDE: b and c may be copied 16 bytes at a time.
template <bool WIDE>
__device__ void multiply(const float *a, const float *b, float *c, int m, int n, int k, int tile, int first, int last) {
    extern __shared__ Stage stages[];
    int tiles_n = (n + TILE_N - 1) / TILE_N;
    int row0 = tile / tiles_n * TILE_M, column0 = tile % tiles_n * TILE_N;
    int depth = min(last * TILE_K, k) - first * TILE_K;
    a += (size_t)first * TILE_K, b += (size_t)first * TILE_K * n;
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
    auto fetch = [&](int step) {
        Stage &to = stages[step % STAGES];
        int left = depth - step * TILE_K;
        for (int r = 0; r < TILE_M / A_ROWS; ++r) {
            for (int i = 0; i < TILE_K; i += 8) {
                copy_async<1>(&to.a[a_k + i][a_row + r * A_ROWS], from_a[r] + i, a_k + i < left);
            }
            from_a[r] += TILE_K;
        }
        for (int i = 0; i < TILE_K; i += B_ROWS, from_b += (size_t)B_ROWS * n) {
            if (WIDE) copy_async<4>(&to.b[b_k + i][b_column], from_b + min(column0 + b_column, n - 4), b_k + i < left);
            for (int j = 0; !WIDE && j < 4; ++j) {
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
    // Until all threads are done with the tile before this one.
    __syncthreads();
    for (int step = 0; step < STAGES - 1; ++step) fetch(step);
    arrived(0);
    for (int step = 0; step < last - first; ++step) {
#pragma unroll
        for (int at = 0; at < TILE_K * COLUMNS; at += 4) {
            int i = at / COLUMNS, next = at + 4;
            if (next < TILE_K * COLUMNS) read_y(step, next / COLUMNS, next % COLUMNS);
            else arrived(step + 1);
            if (at % COLUMNS == 0 && i + 1 < TILE_K) read_x(step, i + 1);
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
    auto each_four = [&](auto visit) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
#pragma unroll
            for (int s = 0; s < COLUMNS; s += 4) {
                int row = row0 + thread_row + LANES_M * (r - r % 4) + r % 4;
                int column = column0 + thread_column + LANES_N * s;
                if (row < m) visit(c + (size_t)row * n + column, &sum[r][s], n - column);
            }
        }
    };
    // The block with the ticket before leaves its part of this tile first of all.
    if (first > 0 && threadIdx.x == 0) {
        while (stands[ticket - 1] == 0) {}
        __threadfence();
        stands[ticket - 1] = 0;
    }
    __syncthreads();
    if (first > 0) each_four([&](float *from, float *sums, int left) { add_four(from, sums, left, WIDE); });
    each_four([&](float *to, float *sums, int left) { store_four(to, sums, left, WIDE, zero); });
    __syncthreads();
    __threadfence();
    if (last * TILE_K < k && threadIdx.x == 0) stands[ticket] = 1;
}

template <bool WIDE> __device__ void all_tiles(const float *a, const float *b, float *c, int m, int n, int k) {
    int tiles = (m + TILE_M - 1) / TILE_M * ((n + TILE_N - 1) / TILE_N), steps = max((k + TILE_K - 1) / TILE_K, 1);
    // The steps of the tiles that are left over, and of one turn of the grid, are shared out evenly: more than a tile's for each block,
    // so that no more than two meet in a tile. Then whole turns go tile by tile.
    int left = tiles % gridDim.x, rest = left > 0 && tiles > gridDim.x ? left + gridDim.x : left;
    int block = ticket, whole = block + rest;
    long long all = (long long)rest * steps, sharers = min(all, (long long)gridDim.x);
    int begin = block < sharers ? all * block / sharers : 0, end = block < sharers ? all * (block + 1) / sharers : 0;
    while (begin < end || whole < tiles) {
        // Its last part first: that is the beginning of a tile, and the next block waits for it.
        bool share = begin < end;
        int tile = share ? (end - 1) / steps : whole, first = share ? max(begin - tile * steps, 0) : 0;
        multiply<WIDE>(a, b, c, m, n, k, tile, first, share ? end - tile * steps : steps);
        share ? end = tile * steps + first : whole += gridDim.x;
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    if (threadIdx.x == 0) ticket = atomicInc(&tickets, gridDim.x - 1);
    __syncthreads();
    if (n % 4 == 0 && ((size_t)b | (size_t)c) % 16 == 0) {
        all_tiles<true>(a, b, c, m, n, k);
    } else {
        all_tiles<false>(a, b, c, m, n, k);
    }
}
