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

// Codes i and i + 4 of a word of 4 bits as two bf16. Of a word of 8 bits: the lower (i even) or upper half of bytes i / 2
// and i / 2 + 2; byte = lower + 16 · upper.
template <int I>
__device__ u32 two_codes(u32 word) {
    // bf16 from 128 to 255 are the whole numbers, the last four bits count. ^ 8 makes code + 8 of two's complement, so what
    // has a sign comes as 136 + code, and the lower half of a byte as 128 + it. Shift, select and ^ are two instructions.
    const u32 offset = BITS == 4 || I % 2 == 1 ? 0x43084308 : 0x43004300;
    u32 moved = ((word >> 4 * I) & 0x000f000f) ^ offset;
    __nv_bfloat162 both = __hsub2(*(__nv_bfloat162 *)&moved, *(const __nv_bfloat162 *)&offset);
    return *(u32 *)&both;
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

// sums[0] += row lane / 4 of the step's codes times x, sums[1] += the row eight below; in every fourth lane.
__device__ void multiply_step(uint4 upper, uint4 lower, const Vector &vector, const Scales &scales, float (&sums)[2]) {
    u32 above[4] = {upper.x, upper.y, upper.z, upper.w}, below[4] = {lower.x, lower.y, lower.z, lower.w};
    float first[4] = {}, second[4] = {};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        u32 a[4] = {two_codes<0>(above[w]), two_codes<0>(below[w]), two_codes<1>(above[w]), two_codes<1>(below[w])};
        u32 b[4] = {two_codes<2>(above[w]), two_codes<2>(below[w]), two_codes<3>(above[w]), two_codes<3>(below[w])};
        if (BITS == 4) {
            // Eight numbers of x: 0 and 4, 1 and 5 …, as the codes come.
            uint4 x = vector.x[w];
            multiply(first, a, __byte_perm(x.x, x.z, 0x5410), __byte_perm(x.x, x.z, 0x7632));
            multiply(first, b, __byte_perm(x.y, x.w, 0x5410), __byte_perm(x.y, x.w, 0x7632));
        } else {
            // Four numbers of x, times the lower halves, and times the upper ones.
            uint4 x = vector.x[w / 2];
            u32 front = w % 2 == 0 ? x.x : x.z, back = w % 2 == 0 ? x.y : x.w;
            u32 x02 = __byte_perm(front, back, 0x5410), x13 = __byte_perm(front, back, 0x7632);
            u32 lower_halves[4] = {a[0], a[1], b[0], b[1]}, upper_halves[4] = {a[2], a[3], b[2], b[3]};
            multiply(first, lower_halves, x02, x13);
            multiply(second, upper_halves, x02, x13);
        }
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
            float sum = BITS == 4 ? first[2 * r + part] : first[2 * r + part] + 16.0f * second[2 * r + part];
            sums[r] += sum * float(scales.scale[r][part]);
        }
    }
}
