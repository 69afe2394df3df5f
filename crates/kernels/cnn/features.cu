// idea: both convolutions, ReLU and max-pool of an image in one block: nothing between image and pooled map leaves it.
// constants: PRECISION (see tensor.cuh). 384 threads: a warp computes 24 windows of the pooled map, 32 of the channels.
#include "first_convolution.cuh"

// Pixels in shared memory: 36 words each, 28 to a row. Then the 8 windows of a tile lie in different banks.
enum { PIXEL = C1 + 4, ROW = 28 * PIXEL, GROUPS = 3, COLUMNS = 4 };

// pooled [batch, 9216]; which: the window's largest pixel (0 to 3), or 4 where ReLU lets nothing through.
extern "C" __global__ __launch_bounds__(384, 1) void features(
    const unsigned char *pixels, const u32 *order, u32 *state, float *scale, const float *w, const float *packed,
    float *pooled, unsigned char *which, int batch, int training
) {
    extern __shared__ __align__(16) float memory[];
    float *filter = memory, *a1 = filter + PACKED, *image = a1 + SIDE1 * ROW;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;

    if (training && blockIdx.x == 0 && threadIdx.x == 0) {
        // What the step before left. Where a gradient was no finite number it updated nothing; with a loss scale that is
        // halved then, and without one BAD stays, so that no later step changes anything.
        bool scaled = scale[1] > 0.0f;
        if (state[BAD] != 0) {
            state[STEP] -= 1;
            if (scaled) {
                scale[0] *= 0.5f;
                state[BAD] = 0;
                state[GOOD] = 0;
                state[SKIPPED] += 1;
            }
        } else if (scaled && ++state[GOOD] >= (u32)scale[1]) {
            scale[0] *= 2.0f;
            state[GOOD] = 0;
        }
    }
    for (int i = threadIdx.x * 4; i < PACKED; i += blockDim.x * 4) {
        copy_16(filter + i, packed + i, true);
    }
    copies_commit();

    for (int item = blockIdx.x; item < batch; item += gridDim.x) {
        load_image(image, pixels + (size_t)order[state[SEEN] + item] * (IMAGE * IMAGE));
        __syncthreads();
        first_convolution(image, w, [&](int y, int x, float value) { a1[y * ROW + x * PIXEL + lane] = value; });
        copies_wait<0>();
        __syncthreads();

        // The four pixels of window g are rows g and g + 8 of two tiles: the largest is found without another thread.
        const float *corner[GROUPS];
#pragma unroll
        for (int i = 0; i < GROUPS; ++i) {
            int window = (warp / 2 * GROUPS + i) * 8 + g;
            corner[i] = a1 + window / POOLED * (2 * ROW) + window % POOLED * (2 * PIXEL) + 2 * t;
        }
        float sum[GROUPS][2][COLUMNS][4] = {};
#pragma unroll 1
        for (int tap = 0; tap < 9; ++tap) {
            int at = tap / 3 * ROW + tap % 3 * PIXEL;
            const float *b = filter + tap * (C1 * C2) + warp % 2 * (COLUMNS * 64) + lane * 2;
#pragma unroll
            for (int k = 0; k < C1; k += 8, b += C2 / 8 * 64) {
                Operand<2> column[COLUMNS];
#pragma unroll
                for (int n = 0; n < COLUMNS; ++n) {
                    float2 both = *(const float2 *)(b + n * 64);
                    column[n] = column_of_b(both.x, both.y);
                }
#pragma unroll
                for (int i = 0; i < GROUPS; ++i) {
#pragma unroll
                    for (int y = 0; y < 2; ++y) {
                        const float *from = corner[i] + at + k + y * ROW;
                        float2 left = *(const float2 *)from, right = *(const float2 *)(from + PIXEL);
                        Operand<4> a = rows_of_a(left.x, right.x, left.y, right.y);
#pragma unroll
                        for (int n = 0; n < COLUMNS; ++n) {
                            multiply_add(sum[i][y][n], a, column[n]);
                        }
                    }
                }
            }
        }

#pragma unroll
        for (int n = 0; n < COLUMNS; ++n) {
#pragma unroll
            for (int of_two = 0; of_two < 2; ++of_two) {
                int channel = (warp % 2 * COLUMNS + n) * 8 + 2 * t + of_two;
                float bias = w[CONV2_BIAS + channel];
#pragma unroll
                for (int i = 0; i < GROUPS; ++i) {
                    float of[4] = {sum[i][0][n][of_two], sum[i][0][n][of_two + 2], sum[i][1][n][of_two], sum[i][1][n][of_two + 2]};
                    float most = of[0];
                    int largest = 0;
#pragma unroll
                    for (int pixel = 1; pixel < 4; ++pixel) {
                        // NaN wins, and is seen later on.
                        if (!(of[pixel] <= most)) {
                            most = of[pixel];
                            largest = pixel;
                        }
                    }
                    most += bias;
                    size_t to = (size_t)item * FEATURES + channel * WINDOWS + (warp / 2 * GROUPS + i) * 8 + g;
                    pooled[to] = most <= 0.0f ? 0.0f : most;
                    which[to] = most <= 0.0f ? 4 : largest;
                }
            }
        }
        // The next image's channels go where this one's are still read.
        __syncthreads();
    }
}
