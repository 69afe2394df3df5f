// Planted data races in global memory: between blocks, which nothing orders, and within one. No tool of NVIDIA's
// looks for these. The line of an access that races is marked.
#define KERNEL extern "C" __global__ void
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
KERNEL same_cell(int* out) {
    if (threadIdx.x == 0) out[0] = blockIdx.x;  // every block
}
KERNEL other_block(int* words, int* out) {
    int i = INDEX;
    words[i] = i;
    __syncthreads();
    out[i] = words[i ^ blockDim.x];  // the neighbouring block's
}
KERNEL scratch(int* words, int* out) {
    int i = INDEX;
    words[i] = 2 * i;
    out[i] = words[i ^ 33];  // another warp's, no barrier
}
KERNEL plain_histogram(const int* in, int* bins, int n) {
    int i = INDEX;
    if (i < n) bins[in[i]] += 1;  // no atomic
}
KERNEL in_place(float* a, int n) {
    int i = INDEX;
    if (i > 0 && i < n - 1) a[i] = a[i - 1] + a[i + 1];  // neighbours overwrite what this reads
}
KERNEL no_fence(const int* in, int* partial, int* out, int* done) {
    int t = threadIdx.x;
    if (t == 0) {
        partial[blockIdx.x] = in[blockIdx.x];
        if (atomicAdd(done, 1) == gridDim.x - 1) {  // no __threadfence() before
            int sum = 0;
            for (int b = 0; b < gridDim.x; b++) sum += partial[b];  // may come before the writes
            out[0] = sum;
        }
    }
}
KERNEL mixed_add(int* sum) {
    if (threadIdx.x == 0) {
        if (blockIdx.x % 2) atomicAdd(sum, 1);
        else sum[0] += 1;  // not atomic
    }
}
KERNEL read_too_early(const int* in, int* sum, int* out) {
    int i = INDEX;
    atomicAdd(sum, in[i]);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = sum[0];  // other blocks still add
}
KERNEL overlapping_tiles(float* out) {
    int i = blockIdx.x * (blockDim.x - 2) + threadIdx.x;
    out[i] = blockIdx.x + threadIdx.x;  // two blocks write the seam
}
KERNEL plain_lock(int* lock, int* sum) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        sum[0] += 1;  // no fence between this and the lock
        atomicExch(lock, 0);
    }
}
KERNEL one_byte(unsigned char* text) {
    text[4 * blockIdx.x + (threadIdx.x >> 1)] = threadIdx.x;  // pairs of threads, one byte
}
