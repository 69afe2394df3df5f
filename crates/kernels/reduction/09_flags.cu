// idea: a partial sum travels with its own flag in one word of 8 bytes, so nobody waits for a fence and a counter.
// changed: the end; a ticket tells who starts last, and that block waits for every other block's word.
// constants: as before; MOST_BLOCKS words are set aside, which the grid must not exceed; from the table.
//
// Blocks start in any order: only a block with a lower ticket is sure to run, or to have ended. (Words and tickets are the
// module's, so two launches at the same time, on two streams, would disturb each other.)
__device__ unsigned int tickets = 0;
__device__ volatile unsigned long long words[MOST_BLOCKS];

__device__ float warp_sum(float sum) {
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, distance);
    }
    return sum; // in lane 0
}

// The block's sum, in thread 0.
__device__ float block_sum(float sum) {
    __shared__ float sums[THREADS / 32];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < THREADS / 32 ? sums[threadIdx.x] : 0.0f);
    }
    __syncthreads(); // sums may be used again
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) reduce(const float *a, float *partial, int n) {
    int thread = threadIdx.x, last = gridDim.x - 1;
    // The count goes back to 0 by itself, ready for the next launch. Nobody needs it before the end.
    int ticket = thread == 0 ? atomicInc(&tickets, last) : 0;
    const int TILE = 4 * THREADS * VECTORS;
    int tiles = n / TILE;
    float own = 0.0f, chain = 0.0f;
    int iterations = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const float4 *a4 = (const float4 *)(a + tile * TILE);
        float x[VECTORS];
#pragma unroll
        for (int v = 0; v < VECTORS; ++v) {
            // Each element is used once: the caches need not keep it.
            float4 four = __ldcs(&a4[v * THREADS + thread]);
            x[v] = (four.x + four.y) + (four.z + four.w);
        }
#pragma unroll
        for (int half = VECTORS / 2; half > 0; half /= 2) {
#pragma unroll
            for (int v = 0; v < half; ++v) {
                x[v] += x[v + half];
            }
        }
        chain += x[0];
        // The longer a chain of additions, the more it rounds away.
        if (++iterations % 16 == 0) {
            own += chain;
            chain = 0.0f;
        }
    }
    float sum = own + chain;
    // What fills no tile.
    for (int i = tiles * TILE + blockIdx.x * THREADS + thread; i < n; i += gridDim.x * THREADS) {
        sum += a[i];
    }
    __shared__ bool adds;
    if (thread == 0) {
        adds = ticket == last;
    }
    sum = block_sum(sum); // its barriers show `adds` to all threads
    const unsigned long long READY = 1ull << 32;
    if (!adds) {
        if (thread == 0) {
            words[ticket] = READY | __float_as_uint(sum);
        }
        return;
    }
    float others = 0.0f;
    for (int i = thread; i < last; i += THREADS) {
        unsigned long long word;
        do {
            word = words[i];
        } while (word < READY);
        words[i] = 0; // for the next launch
        others += __uint_as_float((unsigned int)word);
    }
    others = block_sum(others);
    if (thread == 0) {
        partial[0] = sum + others;
    }
}
