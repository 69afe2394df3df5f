// Codes times x by the tensor cores, for the rungs that share it.
//
// mma multiplies 16 × 16 by 16 × 8 numbers, and a lane holds numbers of rows lane / 4 and the row eight below, whose columns
// it shares with three lanes beside it. In which order the columns come does not matter to a sum, as long as both sides
// agree: so a lane takes words of codes as they lie in memory. Which words a "row" is made of is each rung's own.
#pragma once
#include "codes.cuh"
#include "../matmul_bf16/ampere.cuh"

// bf16 from 16 to 31 are the whole numbers, the upper four bits of the mantissa count, and ^ makes code + 8 of two's
// complement: what has a sign comes as 24 + code, and the lower half of a byte as 16 + it. Nothing is subtracted here.
constexpr u32 SIGNED = 0x41c041c0, UNSIGNED = 0x41804180, MINUS = 0x80008000;

// Codes i and i + 4 of a word of 4 bits as two bf16. Of a word of 8 bits: the lower (i even) or upper half of bytes i / 2
// and i / 2 + 2; byte = lower + 16 · upper. Shift, select and ^ are two instructions.
template <int I>
__device__ u32 two_codes(u32 word) {
    u32 moved = I == 0 ? word << 3 : word >> (4 * I - 3);
    return (moved & 0x00780078) ^ (BITS == 4 || I % 2 == 1 ? SIGNED : UNSIGNED);
}

// The lane's numbers of x that go with so many words of codes.
template <int WORDS>
struct Operand {
    u32 x[WORDS * CODES / 2];
    // What the 24 and the 16 add to each product, with the other sign: it is the same for all rows.
    float offset[4], offset_upper[4];

    __device__ Operand(const uint4 (&loaded)[WORDS * CODES / 8]) : offset{}, offset_upper{} {
        // Pairs of x as the codes come: of 4 bits 0 and 4, 1 and 5 … of eight; of 8 bits 0 and 2, 1 and 3 of four.
#pragma unroll
        for (int i = 0; i < WORDS * CODES / 8; ++i) {
            uint4 eight = loaded[i];
            x[4 * i] = __byte_perm(eight.x, BITS == 4 ? eight.z : eight.y, 0x5410);
            x[4 * i + 1] = __byte_perm(eight.x, BITS == 4 ? eight.z : eight.y, 0x7632);
            x[4 * i + 2] = __byte_perm(BITS == 4 ? eight.y : eight.z, eight.w, 0x5410);
            x[4 * i + 3] = __byte_perm(BITS == 4 ? eight.y : eight.z, eight.w, 0x7632);
        }
        const u32 less = SIGNED ^ MINUS, less_lower = UNSIGNED ^ MINUS;
        u32 all[4] = {less, less, less, less}, all_lower[4] = {less_lower, less_lower, less_lower, less_lower};
#pragma unroll
        for (int i = 0; i < WORDS * CODES / 2; i += 2) {
            if (BITS == 4) {
                ::multiply(offset, all, x[i], x[i + 1]);
            } else {
                ::multiply(offset, all_lower, x[i], x[i + 1]);
                ::multiply(offset_upper, all, x[i], x[i + 1]);
            }
        }
    }

    // The 16 rows of codes, `above` of row lane / 4 and `below` of the row eight below, times the eight columns of x: of
    // the first row columns 2 (lane % 4) and the next, then of the second.
    __device__ void multiply(const u32 (&above)[WORDS], const u32 (&below)[WORDS], float (&out)[4]) const {
        float upper[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            out[i] = offset[i], upper[i] = offset_upper[i];
        }
#pragma unroll
        for (int w = 0; w < WORDS; ++w) {
            u32 a[4] = {two_codes<0>(above[w]), two_codes<0>(below[w]), two_codes<1>(above[w]), two_codes<1>(below[w])};
            u32 b[4] = {two_codes<2>(above[w]), two_codes<2>(below[w]), two_codes<3>(above[w]), two_codes<3>(below[w])};
            const u32 *own = x + w * CODES / 2;
            if (BITS == 4) {
                ::multiply(out, a, own[0], own[1]);
                ::multiply(out, b, own[2 % (CODES / 2)], own[3 % (CODES / 2)]);
            } else {
                u32 lower_halves[4] = {a[0], a[1], b[0], b[1]}, upper_halves[4] = {a[2], a[3], b[2], b[3]};
                ::multiply(out, lower_halves, own[0], own[1]);
                ::multiply(upper, upper_halves, own[0], own[1]);
            }
        }
        if (BITS == 8) {
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                out[i] += 16.0f * upper[i];
            }
        }
    }
};
