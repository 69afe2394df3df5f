// idea: the same additions are made by the first threads of the block, so whole warps work and whole warps are done.
// changed: which thread adds which pair.
// constants: THREADS, a power of two, is the block's size; from the table.
extern "C" __global__ void reduce(const float *a, float *partial, int n) {
    __shared__ float sums[THREADS];
    int thread = threadIdx.x;
    int i = blockIdx.x * THREADS + thread;
    // Beyond the array stand zeros, which add nothing.
    sums[thread] = i < n ? a[i] : 0.0f;
    __syncthreads();
    for (int distance = 1; distance < THREADS; distance *= 2) {
        // Thread 0 adds the first pair, thread 1 the second: neighbours in a warp, far apart in memory (bank conflicts).
        int first = 2 * distance * thread;
        if (first < THREADS) {
            sums[first] += sums[first + distance];
        }
        __syncthreads();
    }
    if (thread == 0) {
        partial[blockIdx.x] = sums[0];
    }
}
