// Sums: a tree in shared memory, then shuffles in one warp, then one atomic a block.
extern "C" __global__ void sum_float(const float* in, float* total, int n) {
    __shared__ float part[256];
    float s = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) s += in[i];
    part[threadIdx.x] = s;
    __syncthreads();
    for (int width = blockDim.x / 2; width >= 32; width /= 2) {
        if (threadIdx.x < width) part[threadIdx.x] += part[threadIdx.x + width];
        __syncthreads();
    }
    if (threadIdx.x < 32) {
        s = part[threadIdx.x];
        for (int width = 16; width > 0; width /= 2) s += __shfl_down_sync(0xffffffffu, s, width);
        if (threadIdx.x == 0) atomicAdd(total, s);
    }
}
extern "C" __global__ void sum_int(const int* in, int* total, int n) {
    extern __shared__ int dynamic[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    dynamic[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int width = blockDim.x / 2; width > 0; width /= 2) {
        if (threadIdx.x < width) dynamic[threadIdx.x] += dynamic[threadIdx.x + width];
        __syncthreads();
    }
    if (threadIdx.x == 0) atomicAdd(total, dynamic[0]);
}
// Takes a number per thread; the result of the atomic is used.
extern "C" __global__ void tickets(unsigned int* next, unsigned int* taken, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) taken[i] = atomicAdd(next, 1u);
}
extern "C" __global__ void histogram(const unsigned char* in, unsigned int* counts, int n) {
    __shared__ unsigned int local[256];
    for (int i = threadIdx.x; i < 256; i += blockDim.x) local[i] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[in[i]], 1u);
    __syncthreads();
    for (int i = threadIdx.x; i < 256; i += blockDim.x) atomicAdd(&counts[i], local[i]);
}
