// Right: kernels whose threads order their accesses by more than a barrier of the block.
#define KERNEL extern "C" __global__ void
#define INDEX (blockIdx.x * blockDim.x + threadIdx.x)
KERNEL lock(int* lock, volatile int* sum) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        sum[0] = sum[0] + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}
// The same with plain accesses between the fences.
KERNEL plain_in_lock(int* lock, int* sum) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        sum[0] += blockIdx.x;
        __threadfence();
        atomicExch(lock, 0);
    }
}
// One warp waits for what another writes.
KERNEL flag(volatile int* ready, int* value, int* out) {
    if (threadIdx.x == 0) {
        while (ready[0] == 0) {}
        __threadfence();
        out[0] = value[0];
    }
    if (threadIdx.x == 32) {
        value[0] = 5;
        __threadfence();
        ready[0] = 1;
    }
}
// All threads of the block wrote; one of them speaks for the block.
KERNEL last_sum(const float* in, float* partial, float* out, unsigned* done) {
    __shared__ bool last;
    partial[INDEX] = 2 * in[INDEX];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) last = atomicAdd(done, 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    float sum = 0;
    for (int i = threadIdx.x; i < gridDim.x * blockDim.x; i += blockDim.x) sum += partial[i];
    atomicAdd(out, sum);
}
KERNEL scratch(int* words, int* out) {
    int i = INDEX;
    words[i] = 2 * i;
    __syncthreads();
    out[i] = words[i ^ 33];
}
KERNEL same_value(const int* in, int* found, int n) {
    __shared__ int here;
    if (threadIdx.x == 0) here = 0;
    __syncthreads();
    int i = INDEX;
    if (i < n && in[i] == 7) here = 1;
    __syncthreads();
    if (threadIdx.x == 0 && here) atomicMax(found, 1);
}
// Any thread may find it; all write the same.
KERNEL any_thread(const int* in, int* found, int n) {
    int i = INDEX;
    if (i < n && in[i] % 3 == 0) *found = 1;
}
KERNEL exchange_in_warp(int* out) {
    __shared__ int words[32];
    int t = threadIdx.x;
    words[t] = t * 3;
    __syncwarp();
    int other = words[t ^ 1];
    __syncwarp();
    words[t] = other + 1;
    __syncwarp();
    out[t] = words[31 - t];
}
KERNEL halves_shuffle(int* out) {
    int x = threadIdx.x;
    if (threadIdx.x < 16) x = __shfl_xor_sync(0x0000ffffu, x, 1);
    else x = __shfl_xor_sync(0xffff0000u, x, 2);
    out[threadIdx.x] = x;
}
KERNEL vectors(const float4* in, float4* out, int n) {
    int i = INDEX;
    if (i < n) {
        float4 v = in[i];
        out[i] = make_float4(v.w, v.z, v.y, v.x);
    }
}
KERNEL local_table(const int* in, int* out, int n) {
    int table[16];
    for (int k = 0; k < 16; k++) table[k] = in[k] * n;
    out[threadIdx.x] = table[in[threadIdx.x] & 15];
}
KERNEL whole_barrier(const int* in, int* out, int n) {
    int i = INDEX, more = 1, turns = 0;
    while (__syncthreads_or(more)) {
        more = i < n && in[i] > ++turns;
    }
    out[i] = turns;
}
// A producer only arrives at the barrier; the consumers wait there.
KERNEL producer(int* out) {
    __shared__ int words[32];
    if (threadIdx.x < 32) {
        words[threadIdx.x] = threadIdx.x * 3;
        asm volatile("bar.arrive 1, 64;" ::: "memory");
    } else {
        asm volatile("bar.sync 1, 64;" ::: "memory");
        out[threadIdx.x - 32] = words[63 - threadIdx.x];
    }
}
// The loop of NVIDIA's guide starts from a plain read; the compare-and-swap checks it.
KERNEL own_atomic(const float* in, float* most, int n) {
    int i = INDEX;
    if (i >= n) return;
    int* word = (int*)most;
    int old = *word, seen;
    do {
        seen = old;
        if (__int_as_float(seen) >= in[i]) break;
        old = atomicCAS(word, seen, __float_as_int(in[i]));
    } while (old != seen);
}
// NVIDIA's sample of a sum in one launch: partial sums are plain, and the last block does not fence again.
KERNEL sample_sum(const int* in, int* partial, int* out, unsigned* done) {
    __shared__ bool last;
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[INDEX]);
    __syncthreads();
    if (threadIdx.x == 0) {
        partial[blockIdx.x] = sum;
        __threadfence();
        last = atomicInc(done, gridDim.x) == gridDim.x - 1;
    }
    __syncthreads();
    if (last && threadIdx.x < gridDim.x) atomicAdd(out, partial[threadIdx.x]);
}
// Each block waits for the one before it, and passes the sum on.
KERNEL chained(const int* in, int* sums, volatile int* ready) {
    if (threadIdx.x == 0) {
        int before = 0;
        if (blockIdx.x > 0) {
            while (ready[blockIdx.x - 1] == 0) {}
            __threadfence();
            before = sums[blockIdx.x - 1];
        }
        sums[blockIdx.x] = before + in[blockIdx.x];
        __threadfence();
        ready[blockIdx.x] = 1;
    }
}
KERNEL async_copy(const int* in, int* out) {
    __shared__ int tile[128];
    unsigned to = (unsigned)__cvta_generic_to_shared(&tile[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(in + INDEX) : "memory");
    asm volatile("cp.async.commit_group;" ::: "memory");
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    __syncthreads();
    out[INDEX] = tile[127 - threadIdx.x];
}
