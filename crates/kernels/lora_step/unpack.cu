// idea: a matrix of four bits (NF4, scales of 8 bits) becomes bf16 where a product needs it, its adapters' B behind each row.
// constants: THREADS of a block.
#include "../gpt_step/rows.cuh"

// What four bits stand for, then what a scale's 8 bits (E4M3) stand for.
const int CODES = 16;

// A thread takes eight numbers of a row. Blocks of 64 weights share a scale: mean + of_group · levels, never below 0.
extern "C" __global__ void __launch_bounds__(THREADS)
    lora_unpack(const unsigned char *codes, const unsigned char *scales, const float *of_group, const float *levels,
                const bf16 *weights, bf16 *to, int codes_at, int scales_at, int group_at, float mean, int b_at, int to_at,
                int columns, int lows, int rows) {
    int eights = (columns + lows) / 8;
    int at = blockIdx.x * THREADS + threadIdx.x;
    int row = at / eights, column = at % eights * 8;
    if (row >= rows) {
        return;
    }
    bf16 *out = to + to_at + (size_t)row * (columns + lows) + column;
    if (column >= columns) {
        *(uint4 *)out = *(const uint4 *)&weights[b_at + (size_t)row * lows + column - columns];
        return;
    }
    int first = row * columns + column;
    int block = first / 64;
    float scale = fmaxf(mean + of_group[group_at + block / 256] * levels[CODES + scales[scales_at + block]], 0.0f);
    unsigned int four = *(const unsigned int *)&codes[codes_at + first / 2];
    float x[8];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        unsigned int two = four >> 8 * i & 255;
        x[2 * i] = scale * levels[two >> 4];
        x[2 * i + 1] = scale * levels[two & 15];
    }
    store_8(out, x);
}
