// Lanes of a warp that meet from different places of the program, and lanes that wait for each other.
#define FULL 0xffffffffu
// Each arm of a branch has its own shuffle, vote, match and reduction; all 32 lanes take part in each.
extern "C" __global__ void arms(const int* in, int* out) {
    int lane = threadIdx.x, x = in[lane], v, w, b, m;
    if (lane % 3 == 0) {
        v = __shfl_xor_sync(FULL, x, 1);
        w = __reduce_add_sync(FULL, x);
        b = __ballot_sync(FULL, x > 50);
        m = __match_any_sync(FULL, x % 4);
    } else if (lane % 3 == 1) {
        v = __shfl_xor_sync(FULL, x * 10, 1) + 1;
        w = __reduce_add_sync(FULL, 2 * x) + 1;
        b = __ballot_sync(FULL, x < 20);
        m = __match_any_sync(FULL, x % 4) + 1;
    } else {
        v = __shfl_xor_sync(FULL, x * 100, 1) + 2;
        w = __reduce_add_sync(FULL, 3 * x) + 2;
        b = __ballot_sync(FULL, 1);
        m = __match_any_sync(FULL, 7) + 2;
    }
    __syncwarp();
    out[lane] = v;
    out[32 + lane] = w;
    out[64 + lane] = b;
    out[96 + lane] = m;
    __syncthreads();
    out[128 + lane] = __shfl_sync(FULL, v, (lane + 5) % 32);
}
// Lanes that return late, from within a loop, are not waited for.
extern "C" __global__ void late_return(const int* in, int* out) {
    int lane = threadIdx.x, x = in[lane];
    if (lane >= 8) {
        int s = 0;
        for (int i = 0; i < lane; i++) s += in[i] * i;
        out[lane] = s;
        return;
    }
    for (int offset = 4; offset > 0; offset /= 2) x += __shfl_xor_sync(FULL, x, offset);
    out[lane] = x;
}
// A value goes round the warp, lane after lane, each at its own turn of a loop.
extern "C" __global__ void pairs(const int* in, int* out) {
    int lane = threadIdx.x, x = in[lane];
    unsigned pair = 3u << (lane & ~1);
    for (int i = 0; i < lane / 2 + 1; i++) {
        if (lane & 1) x += __shfl_xor_sync(pair, x, 1);
        else x -= __shfl_xor_sync(pair, x, 1);
    }
    out[lane] = x;
}
// A lock that the lanes of a warp take one after the other: the plainest form, which needs lanes to run on their own.
extern "C" __global__ void spin_lock(int* lock, volatile int* count, int* out) {
    while (atomicCAS(lock, 0, 1) != 0) {}
    __threadfence();
    int mine = count[0];
    count[0] = mine + 1;
    __threadfence();
    atomicExch(lock, 0);
    out[blockIdx.x * blockDim.x + threadIdx.x] = mine;
}
// Lane 0 waits for what lane 1 writes.
extern "C" __global__ void flag(int* out) {
    __shared__ volatile int ready;
    if (threadIdx.x == 0) ready = 0;
    __syncwarp();
    if (threadIdx.x == 0) {
        while (ready == 0) {}
        out[0] = ready;
    } else if (threadIdx.x == 1) {
        ready = 7;
    }
}
// Wrong: half of the lanes wait for a shuffle, half at a barrier.
extern "C" __global__ void never(int* out) {
    int x = threadIdx.x;
    if (threadIdx.x < 16) x = __shfl_xor_sync(FULL, x, 16);
    else __syncthreads();
    out[threadIdx.x] = x;
}
// Wrong: the masks do not agree.
extern "C" __global__ void masks(int* out) {
    out[threadIdx.x] = __shfl_xor_sync(threadIdx.x & 1 ? FULL : 0x55555555u, threadIdx.x, 2);
}
// Wrong: a lane that its mask does not name.
extern "C" __global__ void outsider(int* out) {
    out[threadIdx.x] = __ballot_sync(0xfffffffeu, threadIdx.x > 3);
}
