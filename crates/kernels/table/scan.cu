// idea: each tile's count becomes the sum of the counts before it: the row where its first kept row goes. One block does it.
// constants: THREADS of the block (whole warps), ITEMS that a thread takes in one iteration.
__device__ unsigned warp_scan(unsigned sum) {
    unsigned lane = threadIdx.x % 32;
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        unsigned left = __shfl_up_sync(0xffffffff, sum, distance);
        sum += lane >= distance ? left : 0;
    }
    return sum; // of this lane and those before it
}

extern "C" __global__ void __launch_bounds__(THREADS) scan(unsigned *counts, const unsigned *rows, unsigned *total) {
    __shared__ unsigned sums[32];
    unsigned tiles = (*rows + 1023) / 1024, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    unsigned before = 0; // the sum of earlier turns
    for (unsigned begin = 0; begin < tiles; begin += THREADS * ITEMS) {
        unsigned first = begin + threadIdx.x * ITEMS, own[ITEMS], sum = 0;
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            own[k] = first + k < tiles ? counts[first + k] : 0;
            sum += own[k];
        }
        unsigned through = warp_scan(sum);
        if (lane == 31) {
            sums[warp] = through;
        }
        __syncthreads();
        if (warp == 0) {
            unsigned of_warps = warp_scan(lane < THREADS / 32 ? sums[lane] : 0);
            sums[lane] = of_warps;
        }
        __syncthreads();
        unsigned at = before + through - sum + (warp > 0 ? sums[warp - 1] : 0);
#pragma unroll
        for (int k = 0; k < ITEMS; ++k) {
            if (first + k < tiles) {
                counts[first + k] = at;
            }
            at += own[k];
        }
        before += sums[31];
        __syncthreads(); // sums are used
    }
    if (threadIdx.x == 0) {
        *total = before;
    }
}
