// idea: the same additions are made by the first threads of the block, so whole warps work and whole warps are done.
// changed: which thread adds which pair.
// constants: THREADS, a power of two, is the block's size; from the table.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
#include <metal_stdlib>
using namespace metal;

kernel void reduce(device const float *a [[buffer(0)]], device float *partial [[buffer(1)]],
                   constant int &n [[buffer(2)]], uint block [[threadgroup_position_in_grid]],
                   uint index [[thread_position_in_threadgroup]]) {
    threadgroup float sums[THREADS];
    int thread_id = int(index);
    int i = int(block) * THREADS + thread_id;
    // Beyond the array stand zeros, which add nothing.
    sums[thread_id] = i < n ? a[i] : 0.0f;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int distance = 1; distance < THREADS; distance *= 2) {
        // Thread 0 adds the first pair, thread 1 the second: neighbours in a warp, far apart in memory (bank conflicts).
        int first = 2 * distance * thread_id;
        if (first < THREADS) {
            sums[first] += sums[first + distance];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (thread_id == 0) {
        partial[block] = sums[0];
    }
}
