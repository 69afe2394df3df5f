// idea: a block loads TILE × TILE pieces of a and of b into shared memory, where each value is used TILE times.
// changed: the loop over k runs tile by tile; each tile is read from global memory once a block.
// constants: TILE comes from the launch and equals the block's side; 32 makes a block of 1024 threads.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
#include <metal_stdlib>
using namespace metal;

[[max_total_threads_per_threadgroup(TILE * TILE)]]
kernel void matmul(device const float *a [[buffer(0)]], device const float *b [[buffer(1)]],
                   device float *c [[buffer(2)]], constant int &m [[buffer(3)]], constant int &n [[buffer(4)]],
                   constant int &k [[buffer(5)]], uint2 block [[threadgroup_position_in_grid]],
                   uint2 thread_id [[thread_position_in_threadgroup]]) {
    threadgroup float a_tile[TILE][TILE];
    threadgroup float b_tile[TILE][TILE];
    int x = int(thread_id.x), y = int(thread_id.y);
    int column = int(block.x) * TILE + x;
    int row = int(block.y) * TILE + y;
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += TILE) {
        int k_a = k0 + x;
        int k_b = k0 + y;
        // Beyond the matrix stand zeros, which add nothing.
        a_tile[y][x] = (row < m && k_a < k) ? a[(size_t)row * k + k_a] : 0.0f;
        b_tile[y][x] = (k_b < k && column < n) ? b[(size_t)k_b * n + column] : 0.0f;
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int i = 0; i < TILE; ++i) {
            sum += a_tile[y][i] * b_tile[i][x];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (row < m && column < n) {
        c[(size_t)row * n + column] = sum;
    }
}
