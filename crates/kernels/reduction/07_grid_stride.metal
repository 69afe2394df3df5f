// idea: as many blocks as the GPU holds at a time walk over the array, with VECTORS loads of 16 bytes in flight a thread.
// changed: the loop over tiles; what a thread loads of a tile is added in pairs, so that little is rounded away.
// constants: THREADS per block, BLOCKS on an SM at a time, VECTORS (a power of two) loads per thread; from the table.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
// How many run at a time Metal does not tell: BLOCKS counts for 32 cores.
#include <metal_stdlib>
using namespace metal;

float warp_sum(float sum) {
    for (ushort distance = 16; distance > 0; distance /= 2) {
        sum += simd_shuffle_down(sum, distance);
    }
    return sum; // in lane 0
}

// The block's sum, in thread 0. Metal lets kernels alone declare threadgroup memory, so it is handed in.
float block_sum(float sum, threadgroup float *sums, int thread_id) {
    sum = warp_sum(sum);
    if (thread_id % 32 == 0) {
        sums[thread_id / 32] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (thread_id < 32) {
        sum = warp_sum(thread_id < THREADS / 32 ? sums[thread_id] : 0.0f);
    }
    return sum;
}

[[max_total_threads_per_threadgroup(THREADS)]] kernel void
reduce(device const float *a [[buffer(0)]], device float *partial [[buffer(1)]], constant int &n [[buffer(2)]],
       uint block [[threadgroup_position_in_grid]], uint blocks [[threadgroups_per_grid]],
       uint index [[thread_position_in_threadgroup]]) {
    threadgroup float sums[THREADS / 32];
    int thread_id = int(index);
    const int TILE = 4 * THREADS * VECTORS;
    int tiles = n / TILE;
    float own = 0.0f, chain = 0.0f;
    int iterations = 0;
    for (int tile = int(block); tile < tiles; tile += int(blocks)) {
        device const float4 *a4 = (device const float4 *)(a + tile * TILE);
        float x[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            float4 four = a4[v * THREADS + thread_id];
            x[v] = (four.x + four.y) + (four.z + four.w);
        }
#pragma unroll
        for (int half_way = VECTORS / 2; half_way > 0; half_way /= 2) {
#pragma unroll
            for (int v = 0; v < half_way; ++v) {
                x[v] += x[v + half_way];
            }
        }
        chain += x[0];
        // The longer a chain of additions, the more it rounds away.
        if (++iterations % 16 == 0) {
            own += chain;
            chain = 0.0f;
        }
    }
    float sum = own + chain;
    // What fills no tile.
    for (int i = tiles * TILE + int(block) * THREADS + thread_id; i < n; i += int(blocks) * THREADS) {
        sum += a[i];
    }
    sum = block_sum(sum, sums, thread_id);
    if (thread_id == 0) {
        partial[block] = sum;
    }
}
