// Planted mistakes with barriers. Those that hang are never launched on a GPU.
#define KERNEL extern "C" __global__ void
KERNEL half_a_barrier(int* out) {
    if (threadIdx.x < 16) {
        out[threadIdx.x] = 1;
        __syncthreads();  // half of the warp
    }
    out[threadIdx.x + 32] = 1;
}
KERNEL odd_lanes(int* out) {
    __shared__ int words[64];
    words[threadIdx.x] = threadIdx.x;
    if (threadIdx.x % 2) {
        __syncthreads();  // one arm
        out[threadIdx.x] = words[threadIdx.x - 1];
    } else {
        __syncthreads();  // the other arm
        out[threadIdx.x] = words[threadIdx.x];
    }
}
KERNEL half_a_shuffle(int* out) {
    int x = threadIdx.x;
    if (threadIdx.x < 16) x = __shfl_down_sync(0xffffffffu, x, 1);  // the mask names all lanes
    out[threadIdx.x] = x;
}
KERNEL wrong_members(int* out) {
    __shared__ int words[32];
    words[threadIdx.x] = threadIdx.x;
    __syncwarp(0x0000ffffu);  // the upper lanes are not in the mask
    out[threadIdx.x] = words[threadIdx.x & 16];
}
KERNEL crossed(int* out) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1;");  // never meets barrier 2
    else asm volatile("bar.sync 2;");
    out[threadIdx.x] = 1;
}
KERNEL too_few(int* out) {
    asm volatile("bar.sync 1, 128;");  // the block has 64 threads
    out[threadIdx.x] = 1;
}
KERNEL endless(volatile int* out) {
    while (out[0] == 0) {}  // nobody sets it
    out[1] = 1;
}
KERNEL never_unlocked(int* lock, int* out) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}  // the block before never unlocks
        out[blockIdx.x] = 1;
    }
}
