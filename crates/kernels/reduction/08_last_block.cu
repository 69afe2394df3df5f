// idea: one launch: the block that finishes last adds the partial sums, so no second kernel starts and ends.
// changed: the end; a counter in memory tells a block whether it is the last. The sum is partial[0].
// constants: THREADS per block, BLOCKS on an SM at a time, VECTORS (a power of two) loads per thread; from the table.
//
// The counter is the module's, so two launches at the same time (on two streams) would disturb each other.
__device__ unsigned int finished = 0;

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
    int thread = threadIdx.x;
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
    sum = block_sum(sum);
    __shared__ bool last;
    if (thread == 0) {
        partial[blockIdx.x] = sum;
        // Whoever sees the count sees the partial sum. The count goes back to 0 by itself, ready for the next launch.
        __threadfence();
        last = atomicInc(&finished, gridDim.x - 1) == gridDim.x - 1;
        __threadfence();
    }
    __syncthreads();
    if (last) {
        sum = 0.0f;
        for (int i = thread; i < gridDim.x; i += THREADS) {
            // From L2, where the other blocks' writes are: this SM's L1 may hold an older value.
            sum += __ldcg(&partial[i]);
        }
        sum = block_sum(sum);
        if (thread == 0) {
            partial[0] = sum;
        }
    }
}
