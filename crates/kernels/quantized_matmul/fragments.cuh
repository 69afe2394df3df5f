// Weights of 4 bits for products with several vectors: codes, scales and groups mean what they mean in
// quantized_gemv/codes.cuh, but the codes lie as the tensor cores take them.
//
//   fragments  16 rows × 64 columns of codes are 512 bytes, 16 for each lane of a warp: word w of a lane has its eight codes
//              of columns 16w to 16w + 15, which mma.m16n8k16 wants there as its operand a. Codes i and i + 4 of a word are
//              register i: row lane / 4 (i odd: eight below), columns 2 (lane % 4) and the next (i ≥ 2: eight on). These 512
//              bytes for all columns of 16 rows come first, then those of the next 16 rows; rows are filled up with zeros.
//   scales     (columns / GROUP) × rows, as there.
//
// One load of 16 bytes per lane, 512 in a row for a warp, then feeds four mma without a shuffle or a detour.
#pragma once
#include "../matmul_bf16/ampere.cuh"

// Rows of x that are multiplied at a time, and the columns of 8 that mma counts them in.
constexpr int EIGHTS = BATCH / 8;

// (word & mask) ^ with in one instruction; of the two operators with two constants the compiler makes two.
__device__ u32 select_xor(u32 word, u32 mask, u32 with) {
    u32 selected;
    asm("lop3.b32 %0, %1, %2, %3, 0x6a;" : "=r"(selected) : "r"(word), "r"(mask), "r"(with));
    return selected;
}

// Codes i and i + 4 of a word as two bf16. From 128 to 255, bf16 are the whole numbers, the last four bits count: ^ 8 makes
// code + 8 of two's complement, so the codes come as 136 + code. Shift, select and ^ are two instructions.
template <int I>
__device__ u32 two_codes(u32 word) {
    const u32 offset = 0x43084308;
    u32 moved = select_xor(word >> 4 * I, 0x000f000f, offset);
    __nv_bfloat162 both = __hsub2(*(__nv_bfloat162 *)&moved, *(const __nv_bfloat162 *)&offset);
    return *(u32 *)&both;
}

__device__ void unpack(u32 word, u32 (&a)[4]) {
    a[0] = two_codes<0>(word);
    a[1] = two_codes<1>(word);
    a[2] = two_codes<2>(word);
    a[3] = two_codes<3>(word);
}

// The sums of 16 rows with BATCH vectors: of rows lane / 4 (i < 2) and eight below, with vectors 2 (lane % 4) and the next.
typedef float Sums[EIGHTS][4];

// sums += part · the scales of the two rows.
__device__ void add_scaled(Sums &sums, const Sums &part, float upper, float lower) {
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        sums[e][0] += part[e][0] * upper;
        sums[e][1] += part[e][1] * upper;
        sums[e][2] += part[e][2] * lower;
        sums[e][3] += part[e][3] * lower;
    }
}
