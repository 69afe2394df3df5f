// idea: a thread computes ROWS elements of one column, so a value of b, once read, serves ROWS multiply-adds.
// changed: tiles are no squares: TILE_M × TILE_K of a, TILE_K × TILE_N of b; the threads copy them element by element, a stride of the block apart.
// constants: TILE_M, TILE_N, TILE_K, ROWS from the table; a block has TILE_M · TILE_N ÷ ROWS threads in a line.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
#include <metal_stdlib>
using namespace metal;

constant constexpr int THREADS = TILE_M * TILE_N / ROWS;

[[max_total_threads_per_threadgroup(THREADS)]]
kernel void matmul(device const float *a [[buffer(0)]], device const float *b [[buffer(1)]],
                   device float *c [[buffer(2)]], constant int &m [[buffer(3)]], constant int &n [[buffer(4)]],
                   constant int &k [[buffer(5)]], uint2 block [[threadgroup_position_in_grid]],
                   uint index [[thread_position_in_threadgroup]]) {
    threadgroup float a_tile[TILE_M][TILE_K];
    threadgroup float b_tile[TILE_K][TILE_N];
    int row0 = int(block.y) * TILE_M, column0 = int(block.x) * TILE_N, thread_id = int(index);
    int thread_row = thread_id / TILE_N * ROWS;
    int thread_column = thread_id % TILE_N;
    float sum[ROWS] = {};
    for (int k0 = 0; k0 < k; k0 += TILE_K) {
        for (int i = thread_id, iteration = 0; iteration < TILE_M * TILE_K / THREADS; ++iteration, i += THREADS) {
            int row = row0 + i / TILE_K, k_a = k0 + i % TILE_K;
            // Beyond the matrix stand zeros, which add nothing.
            a_tile[i / TILE_K][i % TILE_K] = (row < m && k_a < k) ? a[(size_t)row * k + k_a] : 0.0f;
        }
        for (int i = thread_id, iteration = 0; iteration < TILE_K * TILE_N / THREADS; ++iteration, i += THREADS) {
            int k_b = k0 + i / TILE_N, column = column0 + i % TILE_N;
            b_tile[i / TILE_N][i % TILE_N] = (k_b < k && column < n) ? b[(size_t)k_b * n + column] : 0.0f;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int i = 0; i < TILE_K; ++i) {
            float y = b_tile[i][thread_column];
            for (int r = 0; r < ROWS; ++r) {
                sum[r] += a_tile[thread_row + r][i] * y;
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (int r = 0; r < ROWS; ++r) {
        int row = row0 + thread_row + r, column = column0 + thread_column;
        if (row < m && column < n) {
            c[(size_t)row * n + column] = sum[r];
        }
    }
}
