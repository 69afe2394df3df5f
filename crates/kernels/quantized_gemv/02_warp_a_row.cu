// idea: a warp for each row: neighbouring lanes read neighbouring 16 bytes, so no byte of a sector is fetched in vain.
// changed: a lane reads 16 bytes at a time and every 32nd of them; the lanes' sums meet by shuffles.
// constants: as before.
#include "codes.cuh"

extern "C" __global__ void quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows,
                                          int columns) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row >= rows) {
        return;
    }
    const uint4 *own = (const uint4 *)codes + (size_t)row * (columns / CODES_16);
    float sum = 0.0f;
    for (int at = lane; at < columns / CODES_16; at += 32) {
        uint4 loaded = load_once(own + at);
        u32 words[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
        const u32 *pairs = (const u32 *)(x + at * CODES_16);
        float part = 0.0f;
#pragma unroll
        for (int i = 0; i < CODES_16; i += 2) {
            u32 pair = pairs[i / 2];
            part += code(words[i / CODES], i % CODES) * low(pair);
            part += code(words[i / CODES], i % CODES + 1) * high(pair);
        }
        sum += part * float(scales[(size_t)(at * CODES_16 / GROUP) * rows + row]);
    }
    sum = warp_sum(sum);
    if (lane == 0) {
        y[row] = sum;
    }
}
