// idea: a block adds its elements in shared memory, pair by pair, then pairs of pairs: log2(THREADS) steps, no atomics.
// changed: a block leaves one partial sum; the same kernel is launched on the partial sums until one is left.
// constants: THREADS, a power of two, is the block's size; from the table.
extern "C" __global__ void reduce(const float *a, float *partial, int n) {
    __shared__ float sums[THREADS];
    int thread = threadIdx.x;
    int i = blockIdx.x * THREADS + thread;
    // Beyond the array stand zeros, which add nothing.
    sums[thread] = i < n ? a[i] : 0.0f;
    __syncthreads();
    for (int distance = 1; distance < THREADS; distance *= 2) {
        // Every second thread of a warp works, then every fourth: the others wait in the same warp.
        if (thread % (2 * distance) == 0) {
            sums[thread] += sums[thread + distance];
        }
        __syncthreads();
    }
    if (thread == 0) {
        partial[blockIdx.x] = sums[0];
    }
}
