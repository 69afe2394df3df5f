// idea: the tensor cores multiply: of a code, threads only make a bf16. And many short pieces of rows are in flight.
// changed: a block takes 16 · TILES rows; its warps take turns along them, DEPTH steps at once, and add up at the end.
// constants: as before (without ROWS), and WARPS, DEPTH, TILES.
#include "tensor.cuh"

// A lane takes 16 bytes of two rows, and four lanes side by side a STEP of both: 64 bytes. Of the 8 columns of the other
// side, one is x. Where a step is two groups, a second one is x, too: the first has zeros for the second group and the
// second for the first, so each group gets a sum of its own.
constexpr int STEP = 4 * CODES_16, PARTS = GROUP < STEP ? STEP / GROUP : 1;

// `at` counts a row's 16 bytes, `length` of them in all; it may be in the second half of a step that only has a first one.
__device__ Operand<4> load_x(const bf16 *all, int at, int length) {
    uint4 x[CODES_16 / 8];
    const uint4 *from = (const uint4 *)all + min(at, length - 1) * (CODES_16 / 8);
    // Where a step is one group, all columns are x and only the first counts; with two groups, each has one of its own.
    int lane = threadIdx.x % 32;
    bool zeros = PARTS > 1 && (at >= length || lane / 4 != lane % 4 * PARTS / 4);
#pragma unroll
    for (int i = 0; i < CODES_16 / 8; ++i) {
        x[i] = zeros ? make_uint4(0, 0, 0, 0) : from[i];
    }
    return Operand<4>(x);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows, int columns) {
    __shared__ float shared[WARPS][16 * TILES];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row0 = blockIdx.x * 16 * TILES;
    // In units of 16 bytes. Beyond the last row the last one is read again, and its result dropped.
    int length = columns / CODES_16;
    const uint4 *own[2 * TILES];
#pragma unroll
    for (int r = 0; r < 2 * TILES; ++r) {
        own[r] = (const uint4 *)codes + (size_t)min(row0 + 8 * r + lane / 4, rows - 1) * length + lane % 4;
    }
    float sums[2 * TILES] = {};
    for (int first = warp * DEPTH * 4; first < length; first += WARPS * DEPTH * 4) {
        u32 words[DEPTH][2 * TILES][4];
        bf16 scale[DEPTH][2 * TILES][PARTS];
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            int at = first + 4 * i;
            if (at < length) {
                bool there = PARTS == 1 || at + lane % 4 < length;
#pragma unroll
                for (int r = 0; r < 2 * TILES; ++r) {
                    uint4 loaded = there ? load_once(own[r] + at) : make_uint4(0, 0, 0, 0);
                    words[i][r][0] = loaded.x, words[i][r][1] = loaded.y, words[i][r][2] = loaded.z, words[i][r][3] = loaded.w;
#pragma unroll
                    for (int part = 0; part < PARTS; ++part) {
                        int group = min(at / 4 * STEP / GROUP + part, columns / GROUP - 1);
                        scale[i][r][part] = scales[(size_t)group * rows + min(row0 + 8 * r + lane / 4, rows - 1)];
                    }
                }
            }
        }
#pragma unroll
        for (int i = 0; i < DEPTH; ++i) {
            if (first + 4 * i < length) {
                Operand<4> operand = load_x(x, first + 4 * i + lane % 4, length);
#pragma unroll
                for (int r = 0; r < 2 * TILES; r += 2) {
                    float out[4];
                    operand.multiply(words[i][r], words[i][r + 1], out);
#pragma unroll
                    for (int part = 0; part < PARTS; ++part) {
                        sums[r] += out[part] * float(scale[i][r][part]);
                        sums[r + 1] += out[2 + part] * float(scale[i][r + 1][part]);
                    }
                }
            }
        }
    }
    // Columns 0 and 1 of the result are in every fourth lane.
#pragma unroll
    for (int r = 0; r < 2 * TILES; ++r) {
        if (lane % 4 == 0) {
            shared[warp][8 * r + lane / 4] = sums[r];
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
