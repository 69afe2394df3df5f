// idea: pairs are taken from the two halves of the array, so a warp's 32 words lie in 32 banks.
// changed: the distance begins with half the block and shrinks.
// constants: THREADS, a power of two, is the block's size; from the table.
extern "C" __global__ void reduce(const float *a, float *partial, int n) {
    __shared__ float sums[THREADS];
    int thread = threadIdx.x;
    int i = blockIdx.x * THREADS + thread;
    // Beyond the array stand zeros, which add nothing.
    sums[thread] = i < n ? a[i] : 0.0f;
    __syncthreads();
    for (int distance = THREADS / 2; distance > 0; distance /= 2) {
        // Neighbouring threads read neighbouring words: each bank is asked once.
        if (thread < distance) {
            sums[thread] += sums[thread + distance];
        }
        __syncthreads();
    }
    if (thread == 0) {
        partial[blockIdx.x] = sums[0];
    }
}
