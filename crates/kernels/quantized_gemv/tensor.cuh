// Sixteen rows of codes times x by the tensor cores, for the rungs that share it.
//
// mma multiplies 16 × 16 by 16 × 8 numbers. In which order the sixteen columns come does not matter to a sum, as long as
// both sides agree: so a lane takes 16 bytes of row lane / 4 and of the row eight below as they lie in memory, and four
// lanes side by side take a STEP. Of the 8 columns of the other side, one is x. Where a step is two groups, a second one
// is x, too: the first has zeros for the second group and the second for the first, so each group gets a sum of its own.
#pragma once
#include "codes.cuh"
#include "../matmul_bf16/ampere.cuh"

// Columns that a warp multiplies at a time, and the groups among them.
constexpr int STEP = 4 * CODES_16, PARTS = GROUP < STEP ? STEP / GROUP : 1;

// bf16 from 16 to 31 are the whole numbers, the upper four bits of the mantissa count, and ^ makes code + 8 of two's
// complement: what has a sign comes as 24 + code, and the lower half of a byte as 16 + it. Nothing is subtracted here.
constexpr u32 SIGNED = 0x41c041c0, UNSIGNED = 0x41804180, MINUS = 0x80008000;

// Codes i and i + 4 of a word of 4 bits as two bf16. Of a word of 8 bits: the lower (i even) or upper half of bytes i / 2
// and i / 2 + 2; byte = lower + 16 · upper. Shift, select and ^ are two instructions.
template <int I>
__device__ u32 two_codes(u32 word) {
    u32 moved = I == 0 ? word << 3 : word >> (4 * I - 3);
    return select_xor(moved, 0x00780078, BITS == 4 || I % 2 == 1 ? SIGNED : UNSIGNED);
}

// The lane's numbers of x that go with a step. `at` counts a row's 16 bytes, `length` of them in all; it may be in the
// second half of a step that only has a first one.
struct Vector {
    uint4 x[CODES_16 / 8];

    __device__ void load(const bf16 *all, int at, int length) {
        const uint4 *from = (const uint4 *)all + min(at, length - 1) * (CODES_16 / 8);
#pragma unroll
        for (int i = 0; i < CODES_16 / 8; ++i) {
            x[i] = from[i];
        }
        // Of the other side's columns, all are x and only the first counts; with two groups, each has a column of its own.
        int lane = threadIdx.x % 32;
        if (PARTS > 1 && (at >= length || lane / 4 != lane % 4 * PARTS / 4)) {
#pragma unroll
            for (int i = 0; i < CODES_16 / 8; ++i) {
                x[i] = make_uint4(0, 0, 0, 0);
            }
        }
    }
};

// The scales of a step's groups for two rows, eight apart; beyond the last row those of the last one.
struct Scales {
    bf16 scale[2][PARTS];

    __device__ void load(const bf16 *scales, int step, int row, int rows, int columns) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            int group = PARTS == 1 ? step * STEP / GROUP : min(step * PARTS + part, columns / GROUP - 1);
            const bf16 *of_group = scales + (size_t)group * rows;
            scale[0][part] = of_group[min(row, rows - 1)];
            scale[1][part] = of_group[min(row + 8, rows - 1)];
        }
    }
};

// Of COUNT tiles of 16 rows: sums[tile][0] += row lane / 4 of the step's codes times x, sums[tile][1] += the row eight
// below; in every fourth lane. `words` has both rows of the first tile, then those of the next.
template <int COUNT>
__device__ void multiply_step(const uint4 (&words)[2 * COUNT], const Vector &vector, const Scales (&scales)[COUNT],
                              float (&sums)[COUNT][2]) {
    // Pairs of x as the codes come: of 4 bits 0 and 4, 1 and 5 … of eight; of 8 bits 0 and 2, 1 and 3 of four.
    u32 x[CODES_16 / 2];
#pragma unroll
    for (int i = 0; i < CODES_16 / 8; ++i) {
        uint4 eight = vector.x[i];
        x[4 * i] = __byte_perm(eight.x, BITS == 4 ? eight.z : eight.y, 0x5410);
        x[4 * i + 1] = __byte_perm(eight.x, BITS == 4 ? eight.z : eight.y, 0x7632);
        x[4 * i + 2] = __byte_perm(BITS == 4 ? eight.y : eight.z, eight.w, 0x5410);
        x[4 * i + 3] = __byte_perm(BITS == 4 ? eight.y : eight.z, eight.w, 0x7632);
    }
    // What the 24 and the 16 would add is taken off beforehand, once for all rows: that, too, is a product with x.
    const u32 less = SIGNED ^ MINUS, less_unsigned = UNSIGNED ^ MINUS;
    u32 all[4] = {less, less, less, less}, all_unsigned[4] = {less_unsigned, less_unsigned, less_unsigned, less_unsigned};
    float offset[4] = {}, offset_upper[4] = {};
#pragma unroll
    for (int i = 0; i < CODES_16 / 2; i += 2) {
        if (BITS == 4) {
            multiply(offset, all, x[i], x[i + 1]);
        } else {
            multiply(offset, all_unsigned, x[i], x[i + 1]);
            multiply(offset_upper, all, x[i], x[i + 1]);
        }
    }
#pragma unroll
    for (int tile = 0; tile < COUNT; ++tile) {
        uint4 upper = words[2 * tile], lower = words[2 * tile + 1];
        u32 above[4] = {upper.x, upper.y, upper.z, upper.w}, below[4] = {lower.x, lower.y, lower.z, lower.w};
        float first[4], second[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            first[i] = offset[i], second[i] = offset_upper[i];
        }
#pragma unroll
        for (int w = 0; w < 4; ++w) {
            u32 a[4] = {two_codes<0>(above[w]), two_codes<0>(below[w]), two_codes<1>(above[w]), two_codes<1>(below[w])};
            u32 b[4] = {two_codes<2>(above[w]), two_codes<2>(below[w]), two_codes<3>(above[w]), two_codes<3>(below[w])};
            if (BITS == 4) {
                multiply(first, a, x[4 * w % (CODES_16 / 2)], x[(4 * w + 1) % (CODES_16 / 2)]);
                multiply(first, b, x[(4 * w + 2) % (CODES_16 / 2)], x[(4 * w + 3) % (CODES_16 / 2)]);
            } else {
                u32 lower_halves[4] = {a[0], a[1], b[0], b[1]}, upper_halves[4] = {a[2], a[3], b[2], b[3]};
                multiply(first, lower_halves, x[2 * w], x[2 * w + 1]);
                multiply(second, upper_halves, x[2 * w], x[2 * w + 1]);
            }
        }
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
#pragma unroll
            for (int r = 0; r < 2; ++r) {
                float sum = BITS == 4 ? first[2 * r + part] : first[2 * r + part] + 16.0f * second[2 * r + part];
                sums[tile][r] += sum * float(scales[tile].scale[r][part]);
            }
        }
    }
}
