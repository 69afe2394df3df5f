// idea: one pass adds up x and x² of three columns, exactly, as whole numbers; a second one subtracts the mean and divides.
// constants: THREADS per block; the blocks walk over the rows, four at a time.
typedef unsigned long long u64;

__device__ u64 warp_sum(u64 sum) {
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, distance);
    }
    return sum; // in lane 0
}

__device__ void add(u64 &sum, u64 &squares, const unsigned *x, unsigned i, unsigned n) {
    if (i + 4 <= n) {
        uint4 four = *(const uint4 *)(x + i);
        sum += (u64)four.x + four.y + four.z + four.w;
        squares += (u64)four.x * four.x + (u64)four.y * four.y + (u64)four.z * four.z + (u64)four.w * four.w;
    } else {
        for (; i < n; ++i) {
            sum += x[i];
            squares += (u64)x[i] * x[i];
        }
    }
}

// Adds to sums: of a, of a², of b, … They must be 0 before. Squares of numbers up to 10⁵ fit for 10⁹ rows.
extern "C" __global__ void __launch_bounds__(THREADS)
moments(const unsigned *a, const unsigned *b, const unsigned *c, const unsigned *rows, u64 *sums) {
    unsigned n = *rows;
    u64 own[6] = {};
    for (unsigned i = 4 * (blockIdx.x * THREADS + threadIdx.x); i < n; i += 4 * gridDim.x * THREADS) {
        add(own[0], own[1], a, i, n);
        add(own[2], own[3], b, i, n);
        add(own[4], own[5], c, i, n);
    }
    __shared__ u64 of_warps[6][THREADS / 32];
    for (int k = 0; k < 6; ++k) {
        u64 sum = warp_sum(own[k]);
        if (threadIdx.x % 32 == 0) {
            of_warps[k][threadIdx.x / 32] = sum;
        }
    }
    __syncthreads();
    if (threadIdx.x < 6) {
        u64 sum = 0;
        for (int w = 0; w < THREADS / 32; ++w) {
            sum += of_warps[threadIdx.x][w];
        }
        atomicAdd(&sums[threadIdx.x], sum);
    }
}

// Mean and 1 ÷ standard deviation of column k. A column of one value has no spread: all its results are 0.
__device__ float2 mean_and_scale(const u64 *sums, int k, unsigned n) {
    double sum = (double)sums[2 * k], squares = (double)sums[2 * k + 1];
    double mean = n > 0 ? sum / n : 0.0, variance = n > 1 ? (squares - sum * mean) / (n - 1) : 0.0;
    return make_float2((float)mean, variance > 0.0 ? (float)(1.0 / sqrt(variance)) : 0.0f);
}

__device__ void standardise(const unsigned *x, float *out, float2 by, unsigned i, unsigned n) {
    if (i + 4 <= n) {
        uint4 four = *(const uint4 *)(x + i);
        *(float4 *)(out + i) = make_float4(((float)four.x - by.x) * by.y, ((float)four.y - by.x) * by.y,
                                           ((float)four.z - by.x) * by.y, ((float)four.w - by.x) * by.y);
    } else {
        for (; i < n; ++i) {
            out[i] = ((float)x[i] - by.x) * by.y;
        }
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
scale(const unsigned *a, const unsigned *b, const unsigned *c, const unsigned *rows, const u64 *sums, float *a_out,
      float *b_out, float *c_out) {
    unsigned n = *rows;
    __shared__ float2 by[3];
    if (threadIdx.x < 3) {
        by[threadIdx.x] = mean_and_scale(sums, threadIdx.x, n);
    }
    __syncthreads();
    for (unsigned i = 4 * (blockIdx.x * THREADS + threadIdx.x); i < n; i += 4 * gridDim.x * THREADS) {
        standardise(a, a_out, by[0], i, n);
        standardise(b, b_out, by[1], i, n);
        standardise(c, c_out, by[2], i, n);
    }
}
