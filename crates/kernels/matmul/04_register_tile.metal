// idea: a thread computes ROWS × COLUMNS elements: ROWS + COLUMNS reads serve ROWS · COLUMNS multiply-adds.
// changed: a thread holds several columns too, and keeps its values of a and b in registers for one step along k.
// constants: TILE_M, TILE_N, TILE_K, ROWS, COLUMNS from the table; each divides what it is to divide.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
#include <metal_stdlib>
using namespace metal;

constant constexpr int THREADS = TILE_M * TILE_N / (ROWS * COLUMNS);

[[max_total_threads_per_threadgroup(THREADS)]]
kernel void matmul(device const float *a [[buffer(0)]], device const float *b [[buffer(1)]],
                   device float *c [[buffer(2)]], constant int &m [[buffer(3)]], constant int &n [[buffer(4)]],
                   constant int &k [[buffer(5)]], uint2 block [[threadgroup_position_in_grid]],
                   uint index [[thread_position_in_threadgroup]]) {
    threadgroup float a_tile[TILE_M][TILE_K];
    threadgroup float b_tile[TILE_K][TILE_N];
    int row0 = int(block.y) * TILE_M, column0 = int(block.x) * TILE_N, thread_id = int(index);
    int thread_row = thread_id / (TILE_N / COLUMNS) * ROWS;
    int thread_column = thread_id % (TILE_N / COLUMNS) * COLUMNS;
    float sum[ROWS][COLUMNS] = {};
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
#pragma unroll
        for (int i = 0; i < TILE_K; ++i) {
            float x[ROWS], y[COLUMNS];
            for (int r = 0; r < ROWS; ++r) x[r] = a_tile[thread_row + r][i];
            for (int s = 0; s < COLUMNS; ++s) y[s] = b_tile[i][thread_column + s];
            for (int r = 0; r < ROWS; ++r) {
                for (int s = 0; s < COLUMNS; ++s) sum[r][s] += x[r] * y[s];
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    for (int r = 0; r < ROWS; ++r) {
        for (int s = 0; s < COLUMNS; ++s) {
            int row = row0 + thread_row + r, column = column0 + thread_column + s;
            if (row < m && column < n) c[(size_t)row * n + column] = sum[r][s];
        }
    }
}
