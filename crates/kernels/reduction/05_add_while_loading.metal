// idea: a thread adds two elements as it loads them: half as many blocks, barriers and partial sums.
// changed: the line that loads; a block handles 2 × THREADS elements.
// constants: THREADS, a power of two, is the block's size; from the table.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
#include <metal_stdlib>
using namespace metal;

kernel void reduce(device const float *a [[buffer(0)]], device float *partial [[buffer(1)]],
                   constant int &n [[buffer(2)]], uint block [[threadgroup_position_in_grid]],
                   uint index [[thread_position_in_threadgroup]]) {
    threadgroup float sums[THREADS];
    int thread_id = int(index);
    int i = int(block) * (2 * THREADS) + thread_id;
    // Beyond the array stand zeros, which add nothing.
    sums[thread_id] = (i < n ? a[i] : 0.0f) + (i + THREADS < n ? a[i + THREADS] : 0.0f);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int distance = THREADS / 2; distance > 0; distance /= 2) {
        // Neighbouring threads read neighbouring words: each bank is asked once.
        if (thread_id < distance) {
            sums[thread_id] += sums[thread_id + distance];
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (thread_id == 0) {
        partial[block] = sums[0];
    }
}
