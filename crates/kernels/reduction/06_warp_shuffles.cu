// idea: the threads of a warp hand their sums over in registers, with no shared memory and no barrier.
// changed: a tree of shuffles in each warp, then one over the warps' sums, in place of the tree in shared memory.
// constants: THREADS, a power of two from 32 to 1024, is the block's size; from the table.
__device__ float warp_sum(float sum) {
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, distance);
    }
    return sum; // in lane 0
}

// The block's sum, in thread 0.
__device__ float block_sum(float sum) {
    __shared__ float sums[THREADS / 32];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0.0f);
    }
    return sum;
}

extern "C" __global__ void reduce(const float *a, float *partial, int n) {
    int thread = threadIdx.x;
    int i = blockIdx.x * (2 * THREADS) + thread;
    // Beyond the array stand zeros, which add nothing.
    float sum = (i < n ? a[i] : 0.0f) + (i + THREADS < n ? a[i + THREADS] : 0.0f);
    sum = block_sum(sum);
    if (thread == 0) {
        partial[blockIdx.x] = sum;
    }
}
