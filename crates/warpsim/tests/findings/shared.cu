// Planted data races in shared memory. Each kernel makes one; the line of the access that comes second is marked.
#define KERNEL extern "C" __global__ void
KERNEL reverse(int* out) {
    __shared__ int words[128];
    words[threadIdx.x] = threadIdx.x;
    out[threadIdx.x] = words[127 - threadIdx.x];  // no barrier since the write
}
KERNEL next_tile(const int* in, int* out) {
    __shared__ int tile[128];
    int sum = 0;
    for (int turn = 0; turn < 3; turn++) {
        tile[threadIdx.x] = in[turn * 128 + threadIdx.x];  // others may still read the last tile
        __syncthreads();
        sum += tile[threadIdx.x ^ 97];
    }
    out[threadIdx.x] = sum;
}
KERNEL within_a_warp(int* out) {
    __shared__ int words[32];
    words[threadIdx.x] = threadIdx.x * 3;
    out[threadIdx.x] = words[threadIdx.x ^ 1];  // no __syncwarp()
}
KERNEL one_word(int* out) {
    __shared__ int word;
    word = threadIdx.x;  // all threads, each another value
    __syncthreads();
    out[threadIdx.x] = word;
}
KERNEL counting(int* out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    sum += 1;  // no atomic
    __syncthreads();
    out[threadIdx.x] = sum;
}
KERNEL tree(const int* in, int* out) {
    __shared__ int sums[128];
    int t = threadIdx.x;
    sums[t] = in[t];
    __syncthreads();
    for (int half = 64; half > 0; half /= 2) {
        if (t < half) sums[t] += sums[t + half];  // no barrier in the loop
    }
    if (t == 0) out[0] = sums[0];
}
KERNEL scan(const int* in, int* out) {
    __shared__ int sums[128];
    int t = threadIdx.x;
    sums[t] = in[t];
    __syncthreads();
    for (int step = 1; step < 128; step *= 2) {
        if (t >= step) sums[t] += sums[t - step];  // read and overwritten in one go
        __syncthreads();
    }
    out[t] = sums[t];
}
KERNEL late_zero(const int* in, int* out) {
    __shared__ int bins[32];
    if (threadIdx.x < 32) bins[threadIdx.x] = 0;
    atomicAdd(&bins[in[threadIdx.x] & 31], 1);  // the bins of another warp may not be zero yet
    __syncthreads();
    if (threadIdx.x < 32) out[threadIdx.x] = bins[threadIdx.x];
}
KERNEL one_byte(int* out) {
    __shared__ unsigned char text[128];
    text[threadIdx.x] = threadIdx.x;
    __syncthreads();
    text[threadIdx.x & 63] += 1 + threadIdx.x;  // two threads, one byte
    __syncthreads();
    out[threadIdx.x] = text[threadIdx.x];
}
KERNEL halo(const float* in, float* out) {
    __shared__ float tile[130];
    int t = threadIdx.x, i = blockIdx.x * 128 + t;
    tile[t + 1] = in[i + 1];
    if (t == 0) tile[0] = in[i];
    if (t == 127) tile[129] = in[i + 2];
    out[i] = tile[t] + tile[t + 1] + tile[t + 2];  // no barrier after the halo
}
KERNEL result_too_early(const int* in, int* out) {
    __shared__ int most;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    atomicMax(&most, in[threadIdx.x]);
    if (threadIdx.x == 0) out[0] = most;  // others may not have added theirs
}
KERNEL async_copy(const int* in, int* out) {
    __shared__ int tile[128];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + threadIdx.x) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    out[threadIdx.x] = tile[127 - threadIdx.x];  // waits for its own copy, and not for the others'
}
