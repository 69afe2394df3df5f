// One mistake a kernel, and kernels that look like mistakes and are none.
extern "C" __global__ void shared_overrun(int* out) {
    __shared__ int words[32];
    words[threadIdx.x + 1] = threadIdx.x;
    __syncthreads();
    out[threadIdx.x] = words[threadIdx.x];
}
extern "C" __global__ void misaligned(const char* in, int* out) {
    out[threadIdx.x] = *(const int*)(in + 4 * threadIdx.x + 2);
}
extern "C" __global__ void negative_index(const int* in, int* out) {
    out[threadIdx.x] = in[(int)threadIdx.x - 1];
}
extern "C" __global__ void null_pointer(int* out) {
    if (threadIdx.x == 7) *(volatile int*)nullptr = 1;
    out[threadIdx.x] = 1;
}
extern "C" __global__ void half_a_barrier(int* out) {
    if (threadIdx.x < 16) __syncthreads();
    out[threadIdx.x] = 1;
}
extern "C" __global__ void crossed_barriers(int* out) {
    if (threadIdx.x < 32) asm volatile("bar.sync 1;");
    else asm volatile("bar.sync 2;");
    out[threadIdx.x] = 1;
}
extern "C" __global__ void half_a_shuffle(int* out) {
    int x = threadIdx.x;
    if (threadIdx.x < 16) x = __shfl_down_sync(0xffffffffu, x, 1);
    out[threadIdx.x] = x;
}
extern "C" __global__ void endless(volatile int* out) {
    while (out[0] == 0) {}
    out[1] = 1;
}
extern "C" __global__ void trapped(int* out) {
    if (threadIdx.x == 3 && blockIdx.x == 2) __trap();
    out[0] = 1;
}
// Right: the threads that return count as arrived, alone or in an inner condition.
extern "C" __global__ void early_return(int* out, int n) {
    __shared__ int words[64];
    if (threadIdx.x < 40) {
        if ((int)threadIdx.x >= n) return;
        words[threadIdx.x] = threadIdx.x;
    } else {
        words[threadIdx.x] = -1;
    }
    __syncthreads();
    out[threadIdx.x] = words[63 - threadIdx.x < 40 ? 0 : 63 - threadIdx.x] + (int)threadIdx.x;
}
// Right: each half shuffles among its own lanes.
extern "C" __global__ void halves_shuffle(int* out) {
    int x = threadIdx.x;
    if (threadIdx.x < 16) x = __shfl_xor_sync(0x0000ffffu, x, 1);
    else x = __shfl_xor_sync(0xffff0000u, x, 2);
    out[threadIdx.x] = x;
}
// Right: one warp waits for what another writes.
extern "C" __global__ void spinning(volatile int* flag, int* out) {
    if (threadIdx.x == 0) {
        while (flag[0] == 0) {}
        out[0] = flag[1];
    }
    if (threadIdx.x == 32) {
        flag[1] = 5;
        __threadfence();
        flag[0] = 1;
    }
}
// Right: named barriers for parts of the block, one side only arrives.
extern "C" __global__ void producer_consumer(int* out) {
    __shared__ int words[32];
    if (threadIdx.x < 32) {
        words[threadIdx.x] = threadIdx.x * 3;
        asm volatile("bar.arrive 1, 64;");
    } else {
        asm volatile("bar.sync 1, 64;");
        out[threadIdx.x - 32] = words[63 - threadIdx.x];
    }
}
// The mask names lanes that have ended: a guard before the shuffle.
extern "C" __global__ void ended_shuffle(int* out, int n) {
    int x = threadIdx.x;
    if (x >= n) return;
    out[x] = __shfl_down_sync(0xffffffffu, x, 16);
}
