// Rows of WIDTH numbers in bf16, a warp each: what the norms share. Sums of columns that blocks leave are added up later, in
// their order, so that no result depends on who came first.
#pragma once
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// 16 bytes: eight neighbours.
struct __align__(16) Eight {
    unsigned int pairs[4];

    __device__ float operator[](int i) const {
        return __uint_as_float(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xffff0000);
    }
};

__device__ __forceinline__ Eight load_8(const bf16 *from) {
    Eight eight;
    *(uint4 *)&eight = *(const uint4 *)from;
    return eight;
}

// Rounds, and gives back what was stored.
__device__ __forceinline__ Eight store_8(bf16 *to, const float (&numbers)[8]) {
    Eight eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(numbers[2 * i], numbers[2 * i + 1]);
        eight.pairs[i] = *(unsigned int *)&pair;
    }
    *(uint4 *)to = *(uint4 *)&eight;
    return eight;
}

__device__ __forceinline__ void load_floats(float (&to)[8], const float *from) {
    *(float4 *)&to[0] = *(const float4 *)&from[0];
    *(float4 *)&to[4] = *(const float4 *)&from[4];
}

__device__ __forceinline__ float warp_sum(float own) {
#pragma unroll
    for (int distance = 16; distance > 0; distance /= 2) {
        own += __shfl_xor_sync(~0u, own, distance);
    }
    return own;
}

// The block's sum, in each of its threads.
template <int WARPS>
__device__ float block_sum(float own) {
    __shared__ float sums[WARPS];
    own = warp_sum(own);
    __syncthreads();
    if (threadIdx.x % 32 == 0) {
        sums[threadIdx.x / 32] = own;
    }
    __syncthreads();
    float all = 0.0f;
    for (int warp = 0; warp < WARPS; ++warp) {
        all += sums[warp];
    }
    return all;
}

#ifdef WIDTH
// Eights of a row that a lane holds: 32 lanes take 256 numbers at a time.
const int EIGHTS = (WIDTH + 255) / 256;

// Where a lane's eight begins, and whether the row is that long.
__device__ __forceinline__ int column_of(int eight) {
    return (eight * 32 + threadIdx.x % 32) * 8;
}
__device__ __forceinline__ bool inside(int eight) {
    return WIDTH % 256 == 0 || column_of(eight) < WIDTH;
}
#endif
