// Waits for other blocks: those that depend on the order in which blocks start, and those that do not.
#define KERNEL extern "C" __global__ void
#define READY (1ull << 32)

// The last block by number waits for all others: right only if those have started.
__device__ volatile unsigned long long words[64];
KERNEL last_waits(const int* in, int* out) {
    __shared__ int sum;
    if (threadIdx.x == 0) sum = 0;
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    if (blockIdx.x < gridDim.x - 1) {
        if (threadIdx.x == 0) words[blockIdx.x] = READY | (unsigned)sum;
        return;
    }
    for (int i = threadIdx.x; i < gridDim.x - 1; i += blockDim.x) {
        unsigned long long word;
        do {
            word = words[i];
        } while (word < READY);
        words[i] = 0;
        atomicAdd(&sum, (int)word);
    }
    __syncthreads();
    if (threadIdx.x == 0) out[0] = sum;
}

// The same, with a ticket in place of the number.
__device__ unsigned tickets;
KERNEL last_ticket_waits(const int* in, int* out) {
    __shared__ int sum, ticket;
    if (threadIdx.x == 0) sum = 0, ticket = atomicInc(&tickets, gridDim.x - 1);
    __syncthreads();
    atomicAdd(&sum, in[blockIdx.x * blockDim.x + threadIdx.x]);
    __syncthreads();
    if (ticket < gridDim.x - 1) {
        if (threadIdx.x == 0) words[ticket] = READY | (unsigned)sum;
        return;
    }
    for (int i = threadIdx.x; i < gridDim.x - 1; i += blockDim.x) {
        unsigned long long word;
        do {
            word = words[i];
        } while (word < READY);
        words[i] = 0;
        atomicAdd(&sum, (int)word);
    }
    __syncthreads();
    if (threadIdx.x == 0) out[0] = sum;
}

// Each block goes on with what the block before it, by number, leaves in `out`.
__device__ volatile unsigned stands[64];
KERNEL chain(int* out) {
    if (threadIdx.x == 0 && blockIdx.x > 0) {
        while (stands[blockIdx.x - 1] == 0) {}
        __threadfence();
        stands[blockIdx.x - 1] = 0;
    }
    __syncthreads();
    out[threadIdx.x] = 2 * (blockIdx.x > 0 ? __ldcg(&out[threadIdx.x]) : 0) + blockIdx.x;
    __syncthreads();
    __threadfence();
    if (threadIdx.x == 0 && blockIdx.x < gridDim.x - 1) stands[blockIdx.x] = 1;
}

// A barrier of the whole grid, which needs all blocks at the same time; then each reads what another wrote.
KERNEL grid_barrier(unsigned* arrived, int* values, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    values[i] = 3 * i;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        unsigned seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
        } while (seen < gridDim.x);
    }
    __syncthreads();
    out[i] = values[n - 1 - i];
}

// The same without the wait: a race.
KERNEL no_barrier(int* values, int* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, n = gridDim.x * blockDim.x;
    values[i] = 3 * i;
    out[i] = values[n - 1 - i];
}

// A lock that each block takes and gives back: right in any order.
KERNEL lock(int* lock, volatile int* count) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        count[0] = count[0] + 1;
        __threadfence();
        atomicExch(lock, 0);
    }
}

// A lock that nobody gives back.
KERNEL kept_lock(int* lock) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
    }
}

// It waits for a number of steps, and looks at a word meanwhile: slow, and no wait.
KERNEL bounded(volatile int* flag, int* out) {
    int steps = 0;
    while (flag[0] == 0 && steps < 30000) steps++;
    out[threadIdx.x] = steps;
}
