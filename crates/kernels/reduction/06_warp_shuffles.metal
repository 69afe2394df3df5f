// idea: the threads of a warp hand their sums over in registers, with no shared memory and no barrier.
// changed: a tree of shuffles in each warp, then one over the warps' sums, in place of the tree in shared memory.
// constants: THREADS, a power of two from 32 to 1024, is the block's size; from the table.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
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

kernel void reduce(device const float *a [[buffer(0)]], device float *partial [[buffer(1)]],
                   constant int &n [[buffer(2)]], uint block [[threadgroup_position_in_grid]],
                   uint index [[thread_position_in_threadgroup]]) {
    threadgroup float sums[THREADS / 32];
    int thread_id = int(index);
    int i = int(block) * (2 * THREADS) + thread_id;
    // Beyond the array stand zeros, which add nothing.
    float sum = (i < n ? a[i] : 0.0f) + (i + THREADS < n ? a[i + THREADS] : 0.0f);
    sum = block_sum(sum, sums, thread_id);
    if (thread_id == 0) {
        partial[block] = sum;
    }
}
