// idea: bits become floats without a conversion, which the hardware is slow at; and a warp has several rows' loads in flight.
// changed: ROWS rows a warp, so x is unpacked once for all of them; a code is put into the lowest bits of 2^23.
// constants: as before, and ROWS.
#include "codes.cuh"

// A float from 2^23 on counts in ones: n < 2^23 in its lowest bits makes 2^23 + n. Codes of 4 bits stay at their place in
// the word, and come as code · 16^place: who sums them up takes each place for itself, and divides at the end.
constexpr int PLACES = BITS == 4 ? 4 : 1;

// Code i of a word, times 16^(i % PLACES).
__device__ float placed(u32 word, int i) {
    const float WHOLE = 8388608.0f; // 2^23, bits 0x4b000000
    if (BITS == 8) {
        // ^ makes code + 128 of two's complement; one instruction puts the byte below the three others.
        return __uint_as_float(__byte_perm(word ^ 0x80808080u, 0x4b000000u, 0x7540 | i)) - (WHOLE + 128.0f);
    }
    int shift = 4 * (i % PLACES);
    // Of the upper half's codes the places are the same: the word is shifted once for four of them.
    u32 half = i < PLACES ? word : word >> 16;
    // Select and ^ are one instruction (lop3): code + 8 in the lowest bits of 2^23.
    return __uint_as_float(select_xor(half, 15u << shift, 0x4b000000u | 8u << shift)) - (WHOLE + (8 << shift));
}

extern "C" __global__ void quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows,
                                          int columns) {
    int row0 = (blockIdx.x * blockDim.x + threadIdx.x) / 32 * ROWS;
    int lane = threadIdx.x % 32;
    if (row0 >= rows) {
        return;
    }
    int length = columns / CODES_16;
    const uint4 *own[ROWS];
    float sum[ROWS];
    for (int r = 0; r < ROWS; ++r) {
        // Beyond the last row the last one is read again, and its result dropped.
        own[r] = (const uint4 *)codes + (size_t)min(row0 + r, rows - 1) * length;
        sum[r] = 0.0f;
    }
    for (int at = lane; at < length; at += 32) {
        u32 words[ROWS][4];
        float scale[ROWS];
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            uint4 loaded = load_once(own[r] + at);
            words[r][0] = loaded.x, words[r][1] = loaded.y, words[r][2] = loaded.z, words[r][3] = loaded.w;
            scale[r] = scales[(size_t)(at * CODES_16 / GROUP) * rows + min(row0 + r, rows - 1)];
        }
        float part[ROWS][PLACES] = {};
        const uint4 *eights = (const uint4 *)(x + at * CODES_16);
#pragma unroll
        for (int i = 0; i < CODES_16; i += 8) {
            uint4 eight = eights[i / 8];
            u32 pairs[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
            for (int j = 0; j < 8; ++j) {
                float factor = j % 2 == 0 ? low(pairs[j / 2]) : high(pairs[j / 2]);
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    part[r][j % PLACES] += placed(words[r][(i + j) / CODES], (i + j) % CODES) * factor;
                }
            }
        }
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            float all = part[r][0];
#pragma unroll
            for (int place = 1; place < PLACES; ++place) {
                all += part[r][place] * (1.0f / (1 << 4 * place));
            }
            sum[r] += all * scale[r];
        }
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        float all = warp_sum(sum[r]);
        if (lane == 0 && row0 + r < rows) {
            y[row0 + r] = all;
        }
    }
}
