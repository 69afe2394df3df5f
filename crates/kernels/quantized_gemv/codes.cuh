// Weights of BITS bits (4 or 8) that share scales, as every kernel of this folder reads them:
//
//   codes   rows × columns whole numbers in two's complement, row behind row. CODES of a row lie in a word of 32 bits,
//           the first in its lowest bits: for 4 bits, the bytes of gpulab_nn's `pack_int4`.
//   scales  a bf16 for each GROUP neighbours of a row; the first group's of all rows, then the second's: (columns /
//           GROUP) × rows, as GPTQ stores them.
//
// The weight in (row, column) is code · scales[column / GROUP · rows + row]; there is no zero point. GROUP is a multiple of
// 64, and a row is whole groups: it begins at a multiple of 16 bytes.
#pragma once
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;
typedef unsigned int u32;

// Codes in a word, and in 16 bytes.
constexpr int CODES = 32 / BITS, CODES_16 = 128 / BITS;

// (word & mask) ^ with in one instruction; of the two operators with two constants the compiler makes two.
__device__ u32 select_xor(u32 word, u32 mask, u32 with) {
    u32 selected;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(selected) : "r"(word), "r"(mask), "r"(with));
    return selected;
}

// Code i of a word: shifted to the top and back, so that the sign comes along.
__device__ int code(u32 word, int i) {
    return (int)(word << (32 - BITS * (i + 1))) >> (32 - BITS);
}

// Weights are read once: they are not to push x and the scales out of the L1 cache.
__device__ uint4 load_once(const uint4 *from) {
    uint4 words;
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
                 : "l"(from));
    return words;
}

// A bf16 is the upper half of a float. Of a pair the first one lies in the lower half.
__device__ float low(u32 pair) {
    return __uint_as_float(pair << 16);
}
__device__ float high(u32 pair) {
    return __uint_as_float(pair & 0xffff0000u);
}

__device__ float warp_sum(float own) {
    for (int distance = 16; distance > 0; distance /= 2) {
        own += __shfl_xor_sync(0xffffffff, own, distance);
    }
    return own;
}
