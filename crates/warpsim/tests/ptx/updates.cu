// Updates of one word in two steps, and protocols that look like them.

// Wrong: each thread's sum may be lost.
extern "C" __global__ void across_blocks(float *sum, const float *x) {
    if (threadIdx.x == 0) { *(volatile float *)sum += x[blockIdx.x]; }
}

extern "C" __global__ void across_lanes(float *sum, const float *x) {
    volatile float *p = sum;
    *p += x[threadIdx.x];
}

extern "C" __global__ void in_shared(float *out, const float *x) {
    __shared__ float sum;
    if (threadIdx.x == 0) { sum = 0.0f; }
    __syncthreads();
    *(volatile float *)&sum += x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x == 0) { *out = sum; }
}

extern "C" __global__ void read_and_exchange(float *sum, const float *x) {
    float old = atomicAdd(sum, 0.0f);
    atomicExch(sum, old + x[blockIdx.x * blockDim.x + threadIdx.x]);
}

extern "C" __global__ void largest_of(int *most, const int *x) {
    int old = *(volatile int *)most;
    *(volatile int *)most = max(old, x[blockIdx.x * blockDim.x + threadIdx.x]);
}

extern "C" __global__ void looks_again(float *sum, const float *x) {
    float mine = x[blockIdx.x * blockDim.x + threadIdx.x], old;
    volatile float *p = sum;
    do {
        old = *p;
        *p = old + mine;
    } while (*p < old);
}

extern "C" __global__ void if_larger(int *most, const int *x) {
    int mine = x[blockIdx.x * blockDim.x + threadIdx.x];
    if (mine > *(volatile int *)most) { *(volatile int *)most = mine; }
}

// Right.
extern "C" __global__ void hands_on(int *turn, const int *x) {
    if (threadIdx.x == 0) {
        for (bool done = false; !done;) {
            if (*(volatile int *)turn >= (int)blockIdx.x) {
                __threadfence();
                *(volatile int *)turn = blockIdx.x + 1;
                done = true;
            }
        }
    }
}

extern "C" __global__ void locked(float *sum, const float *x, int *lock) {
    if (threadIdx.x == 0) {
        while (atomicCAS(lock, 0, 1) != 0) {}
        __threadfence();
        *(volatile float *)sum += x[blockIdx.x];
        __threadfence();
        atomicExch(lock, 0);
    }
}

extern "C" __global__ void locked_by_exchange(float *sum, const float *x, int *lock) {
    if (threadIdx.x == 0) {
        while (*(volatile int *)lock != 0 || atomicExch(lock, 1) != 0) {}
        __threadfence();
        *(volatile float *)sum += x[blockIdx.x];
        __threadfence();
        atomicExch(lock, 0);
    }
}

extern "C" __global__ void by_ticket(float *sum, const float *x, int *lock) {
    if (threadIdx.x == 0) {
        int mine = atomicAdd(&lock[0], 1);
        volatile int *serving = &lock[1];
        while (*serving != mine) {}
        __threadfence();
        *(volatile float *)sum += x[blockIdx.x];
        __threadfence();
        *serving = *serving + 1;
    }
}

extern "C" __global__ void look_back(float *sums, const float *x, int *flags) {
    if (threadIdx.x == 0) {
        int mine = atomicAdd(flags, 1);
        volatile float *values = sums;
        volatile int *ready = flags + 1;
        float before = 0.0f;
        if (mine > 0) {
            while (ready[mine - 1] == 0) {}
            before = values[mine - 1];
        }
        values[mine] = before + x[blockIdx.x];
        __threadfence();
        ready[mine] = 1;
    }
}

extern "C" __global__ void own_words(float *out, const float *x) {
    __shared__ float words[64];
    volatile float *w = words;
    w[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32) {
        float other = w[threadIdx.x + 32];
        w[threadIdx.x] = w[threadIdx.x] + other;
    }
    __syncthreads();
    out[threadIdx.x] = w[threadIdx.x];
}

extern "C" __global__ void one_by_one(float *out, const float *x) {
    __shared__ float sum;
    if (threadIdx.x == 0) { sum = 0.0f; }
    __syncthreads();
    for (int t = 0; t < blockDim.x; ++t) {
        if (threadIdx.x == t) { *(volatile float *)&sum += x[t]; }
        __syncthreads();
    }
    if (threadIdx.x == 0) { *out = sum; }
}

extern "C" __global__ void all_meet(float *out, const float *x, int *words) {
    volatile int *phase = &words[1];
    for (int step = 0; step < 3; ++step) {
        if (threadIdx.x == 0) {
            int now = *phase;
            __threadfence();
            if (atomicAdd(&words[0], 1) == gridDim.x - 1) {
                atomicExch(&words[0], 0);
                __threadfence();
                *phase = now + 1;
            } else {
                while (*phase == now) {}
            }
            __threadfence();
        }
        __syncthreads();
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x];
}

extern "C" __global__ void swapped(float *sum, const float *x) {
    float mine = x[blockIdx.x * blockDim.x + threadIdx.x];
    int *word = (int *)sum;
    int old = *(volatile int *)word, seen;
    do {
        seen = old;
        old = atomicCAS(word, seen, __float_as_int(__int_as_float(seen) + mine));
    } while (old != seen);
}

// Bounds of a shared variable.
extern "C" __global__ void neighbours(float *out, int rows) {
    __shared__ float tile[8][32];
    __shared__ float other[8][32];
    for (int row = 0; row < 8; ++row) { other[row][threadIdx.x] = 1.0f; }
    for (int row = 0; row < rows; ++row) { tile[row][threadIdx.x] = 2.0f; }
    __syncthreads();
    out[threadIdx.x] = tile[7][threadIdx.x] + other[7][threadIdx.x];
}

extern "C" __global__ void before_its_start(float *out, int back) {
    __shared__ float first[32];
    __shared__ float words[32];
    first[threadIdx.x] = 1.0f;
    words[threadIdx.x] = 2.0f;
    __syncthreads();
    float *p = threadIdx.x % 2 == 0 ? first : words;
    out[threadIdx.x] = words[(int)threadIdx.x - back] + p[threadIdx.x];
}
