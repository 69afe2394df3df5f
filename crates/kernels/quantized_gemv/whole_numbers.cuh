// Codes times x on the tensor cores as products of whole numbers of 8 bits, for the rungs that share it.
//
// Codes are whole numbers already. x becomes some: within a UNIT of columns all numbers of x count in the same power of two,
// chosen so that the largest has 22 bits; from 1/32768 of the largest on, a bf16 is exact in it. These whole numbers are
// three bytes with a sign each, x = 65536 · first + 256 · second + third, and each plane of bytes is a column of mma's other
// side, of which one was used so far. All products and the sums of a step are exact.
//
// A lane takes 16 bytes of codes of row lane / 4 and of the row eight below as they lie in memory, and four lanes side by
// side take a STEP. Where it is two groups, each has three columns of its own, which are zero for the other one.
#pragma once
#include "codes.cuh"

// Columns that a warp multiplies at a time, the groups among them, and what of x counts in one power of two.
constexpr int STEP = 4 * CODES_16, PARTS = GROUP < STEP ? STEP / GROUP : 1, UNIT = STEP / PARTS;
// x of so many columns is held as whole numbers at a time: SLICE steps.
constexpr int SLICE = 8192 / STEP, PLANES = 3;

// sum (16 × 8) += a (16 × 32) × b (32 × 8), of whole numbers.
__device__ void multiply(int (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
                 " {%0, %1, %2, %3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// A slice of x: the bytes as mma takes them, and what a unit's numbers count in.
struct Slice {
    // Of a step: the planes of the 16 bytes' columns, 8 bytes for a word of codes of 4 bits and 4 for one of 8 bits, by lane % 4.
    uint4 planes[SLICE][CODES_16 / 16][PLANES][4];
    float unit[SLICE][PARTS];

    // A warp makes whole numbers of a step's columns, COUNT a lane.
    __device__ void fill(int at, const bf16 *x, int step, int columns) {
        constexpr int COUNT = STEP / 32;
        int lane = threadIdx.x % 32, first = step * STEP + lane * COUNT;
        float own[COUNT], most = 0.0f;
#pragma unroll
        for (int i = 0; i < COUNT; i += 2) {
            u32 pair = first < columns ? *(const u32 *)(x + first + i) : 0;
            own[i] = low(pair), own[i + 1] = high(pair);
            most = fmaxf(most, fmaxf(fabsf(own[i]), fabsf(own[i + 1])));
        }
        bool finite = true;
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            finite = finite && fabsf(own[i]) < __int_as_float(0x7f800000);
        }
#pragma unroll
        for (int distance = 16 / PARTS; distance > 0; distance /= 2) {
            most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, distance));
        }
        // 2^e ≤ most < 2^(e + 1), by the bits of the exponent; times 2^(21 − e), all numbers are below 2^22.
        int exponent = max(__float_as_int(most) >> 23, 32);
        float larger = __int_as_float((127 + 21 + 127 - exponent) << 23);
        u32 bytes[COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            // The lower bytes have a sign as well: what that takes from them comes to the next byte.
            bytes[i] = (u32)(__float2int_rn(own[i] * larger) + 0x8080) ^ 0x8080;
        }
        // A code of 4 bits comes from the lower or the upper half of a byte, the even ones and the odd ones of eight.
        unsigned short *to = (unsigned short *)planes[at];
        int owner = lane / 8, byte = lane % 8 * COUNT;
#pragma unroll
        for (int plane = 0; plane < PLANES; ++plane) {
            // The first plane is the highest byte.
            int which = PLANES - 1 - plane, select = which | (4 + which) << 4;
            if (BITS == 4) {
                // Of 32 columns: which 16 bytes, and where in them.
                int half = byte / 16, inside = byte % 16 / 8 * 8 + byte % 8 / 2;
                unsigned short *piece = to + ((half * PLANES + plane) * 4 + owner) * 8 + inside / 2;
                piece[0] = __byte_perm(bytes[0], bytes[2 % COUNT], select);
                piece[2] = __byte_perm(bytes[1], bytes[3 % COUNT], select);
            } else {
                to[(plane * 4 + owner) * 8 + byte / 2] = __byte_perm(bytes[0], bytes[1], select);
            }
        }
        finite = __all_sync(0xffffffff, finite);
        if (lane % (32 / PARTS) == 0) {
            // Codes of 4 bits are multiplied as the upper halves of bytes, 16 times what they are. Of x that is not finite
            // nothing can be told.
            float counts = __int_as_float((exponent - 21 - (BITS == 4 ? 4 : 0)) << 23);
            unit[at][lane / (32 / PARTS)] = finite ? counts : __int_as_float(0x7fffffff);
        }
    }
};

// What a lane holds of a step: codes, and the scales of its group.
struct Codes {
    u32 words[2 * TILES][4];
    bf16 scales[2 * TILES];

    __device__ void load(const u32 *codes, const bf16 *all_scales, int step, int row0, int rows, int columns) {
        int lane = threadIdx.x % 32, length = columns / CODES_16, at = 4 * step + lane % 4;
        bool there = PARTS == 1 || at < length;
        // Beyond the last row the last one is read again, and its result dropped.
        int last = rows - 1 - row0;
        const uint4 *from = (const uint4 *)codes + (size_t)row0 * length + (there ? at : 0);
        // In columns 2 (lane % 4) and the next of the result are planes of this group.
        int group = PARTS == 1 ? step * STEP / GROUP : min(step * PARTS + lane % 4 / 2, columns / GROUP - 1);
        const bf16 *of_group = all_scales + (size_t)group * rows + row0;
#pragma unroll
        for (int r = 0; r < 2 * TILES; ++r) {
            int row = min(8 * r + lane / 4, last);
            uint4 loaded = there ? load_once(from + (size_t)row * length) : make_uint4(0, 0, 0, 0);
            words[r][0] = loaded.x, words[r][1] = loaded.y, words[r][2] = loaded.z, words[r][3] = loaded.w;
            scales[r] = of_group[row];
        }
    }

    // sums[r] += row r's codes times x of the step, in the lanes that hold a plane: of the group's two lanes the first has
    // 65536 · first + 256 · second, the other one the third.
    __device__ void multiply(const Slice &slice, int at, float (&sums)[2 * TILES]) const {
        int lane = threadIdx.x % 32, column = lane / 4;
        // Columns 3 and 7 hold what nobody asks for.
        bool own = PARTS == 1 || lane % 4 / 2 == column / 4;
        u32 b[CODES_16 / 4];
#pragma unroll
        for (int h = 0; h < CODES_16 / 16; ++h) {
            uint4 loaded = slice.planes[at][h][min(column % 4, PLANES - 1)][lane % 4];
            b[4 * h] = own ? loaded.x : 0, b[4 * h + 1] = own ? loaded.y : 0;
            b[4 * h + 2] = own ? loaded.z : 0, b[4 * h + 3] = own ? loaded.w : 0;
        }
        bool first = lane % 2 == 0;
        // Two bytes' planes in one sum: it counts in 256 then.
        int times = first ? 256 : 1, second = first ? 1 : 0;
        float counts = slice.unit[at][PARTS == 1 ? 0 : lane % 4 / 2] * (first ? 256.0f : 1.0f);
#pragma unroll
        for (int r = 0; r < 2 * TILES; r += 2) {
            int sum[4] = {};
            if (BITS == 4) {
#pragma unroll
                for (int w = 0; w < 4; ++w) {
                    // A code in the upper half of a byte is the byte's value: 16 · code, sign and all.
                    ::multiply(sum, words[r][w] << 4 & 0xf0f0f0f0, words[r + 1][w] << 4 & 0xf0f0f0f0,
                               words[r][w] & 0xf0f0f0f0, words[r + 1][w] & 0xf0f0f0f0, b[2 * w % (CODES_16 / 4)],
                               b[(2 * w + 1) % (CODES_16 / 4)]);
                }
            } else {
#pragma unroll
                for (int w = 0; w < 4; w += 2) {
                    ::multiply(sum, words[r][w], words[r + 1][w], words[r][w + 1], words[r + 1][w + 1], b[w], b[w + 1]);
                }
            }
            sums[r] += (float)(sum[0] * times + sum[1] * second) * (counts * float(scales[r]));
            sums[r + 1] += (float)(sum[2] * times + sum[3] * second) * (counts * float(scales[r + 1]));
        }
    }
};

// Adds up what lanes and warps have of each row, in a fixed order, and writes it.
__device__ void finish(const float (&sums)[2 * TILES], bf16 *y, int row0, int rows) {
    __shared__ float shared[WARPS][16 * TILES];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int r = 0; r < 2 * TILES; ++r) {
        // With one group, the columns from the fourth on are nobody's.
        float sum = sums[r] + __shfl_down_sync(0xffffffff, sums[r], 1);
        sum += PARTS == 1 ? 0.0f : __shfl_down_sync(0xffffffff, sum, 2);
        if (lane % 4 == 0) {
            shared[warp][8 * r + lane / 4] = sum;
        }
    }
    __syncthreads();
    int row = row0 + threadIdx.x;
    if (threadIdx.x < 16 * TILES && row < rows) {
        float sum = 0.0f;
        for (int from = 0; from < WARPS; ++from) {
            sum += shared[from][threadIdx.x];
        }
        y[row] = sum;
    }
}
