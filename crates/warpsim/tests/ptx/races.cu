// Data races in shared memory and reads of what nobody wrote, each beside its right twin.
extern "C" __global__ void reverse(int* out, int barrier) {
    __shared__ int words[64];
    words[threadIdx.x] = threadIdx.x;
    if (barrier) __syncthreads();
    out[threadIdx.x] = words[63 - threadIdx.x];
}
// The tile is overwritten while others may still read it.
extern "C" __global__ void second_barrier(int* out, int barrier) {
    __shared__ int words[64];
    int sum = 0;
    for (int turn = 0; turn < 3; turn++) {
        words[threadIdx.x] = threadIdx.x + turn;
        __syncthreads();
        sum += words[threadIdx.x ^ 33];
        if (barrier) __syncthreads();
    }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void within_a_warp(int* out, int barrier) {
    __shared__ int words[32];
    words[threadIdx.x] = threadIdx.x;
    if (barrier) __syncwarp();
    out[threadIdx.x] = words[threadIdx.x ^ 1];
}
// All threads write one word: the same value, or their own.
extern "C" __global__ void one_word(int* out, int same) {
    __shared__ int word;
    word = same ? 7 : (int)threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = word;
}
// Neighbouring bytes of a word are different places; a sum in shared memory is atomic or not.
extern "C" __global__ void bytes(int* out, int) {
    __shared__ unsigned char text[64];
    text[threadIdx.x] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = text[63 - threadIdx.x];
}
extern "C" __global__ void counting(int* out, int atomic) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    if (atomic) atomicAdd(&sum, 1);
    else sum += 1;
    __syncthreads();
    out[threadIdx.x] = sum;
}
// A part of the array has no value.
extern "C" __global__ void half_written(int* out, int all) {
    __shared__ int words[64];
    if (threadIdx.x < 32 || all) words[threadIdx.x] = 1;
    __syncthreads();
    out[threadIdx.x] = words[63 - threadIdx.x];
}
extern "C" __global__ void copy(const short* in, short* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i];
}
