// idea: both convolutions, ReLU and max-pool of an image in one block: nothing between image and pooled map leaves it.
// constants: PRECISION (see tensor.cuh). 576 threads: each of 18 warps computes 8 windows of the pooled map, all channels.
#include "network.cuh"
#include "tensor.cuh"

// Pixels in shared memory: 36 words each, 28 to a row. Then the 8 windows of a warp lie in different banks.
enum { PIXEL = C1 + 4, ROW = 28 * PIXEL };

// The 32 channels of the first convolution and its ReLU, a lane for each; warps share the rows.
__device__ void first_convolution(float *a1, const float *image, const float *w) {
    int channel = threadIdx.x % 32;
    float weight[9], bias = w[CONV1_BIAS + channel];
#pragma unroll
    for (int i = 0; i < 9; ++i) {
        weight[i] = w[CONV1_WEIGHT + channel * 9 + i];
    }
    // Halves of rows, so that 18 warps have nearly the same to do.
    for (int half = threadIdx.x / 32; half < 2 * SIDE1; half += blockDim.x / 32) {
        int y = half / 2, left = half % 2 * (SIDE1 / 2);
        const float *from = image + y * IMAGE + left;
        for (int x = 0; x < SIDE1 / 2; ++x) {
            float sum = bias;
#pragma unroll
            for (int i = 0; i < 9; ++i) {
                sum += weight[i] * from[i / 3 * IMAGE + i % 3 + x];
            }
            a1[y * ROW + (left + x) * PIXEL + channel] = rounded(fmaxf(sum, 0.0f));
        }
    }
}

// pooled [batch, 9216]; which: the window's largest pixel (0 to 3), or 4 where ReLU lets nothing through.
extern "C" __global__ __launch_bounds__(576, 1) void features(
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
        const unsigned char *from = pixels + (size_t)order[state[SEEN] + item] * (IMAGE * IMAGE);
        for (int i = threadIdx.x; i < IMAGE * IMAGE; i += blockDim.x) {
            image[i] = from[i] / 255.0f;
        }
        __syncthreads();
        first_convolution(a1, image, w);
        copies_wait<0>();
        __syncthreads();

        // The four pixels of window g are rows g and g + 8 of two tiles: the largest is found without another thread.
        int window = warp * 8 + g;
        const float *corner = a1 + window / POOLED * (2 * ROW) + window % POOLED * (2 * PIXEL) + 2 * t;
        float sum[2][C2 / 8][4] = {};
#pragma unroll 1
        for (int tap = 0; tap < 9; ++tap) {
            const float *at = corner + tap / 3 * ROW + tap % 3 * PIXEL;
            const float *b = filter + tap * (C1 * C2) + lane * 2;
#pragma unroll
            for (int k = 0; k < C1; k += 8, at += 8) {
                Operand<4> a[2];
#pragma unroll
                for (int y = 0; y < 2; ++y) {
                    float2 left = *(const float2 *)(at + y * ROW), right = *(const float2 *)(at + y * ROW + PIXEL);
                    a[y] = rows_of_a(left.x, right.x, left.y, right.y);
                }
#pragma unroll
                for (int n = 0; n < C2 / 8; ++n, b += 64) {
                    float2 both = *(const float2 *)b;
                    Operand<2> column = column_of_b(both.x, both.y);
                    multiply_add(sum[0][n], a[0], column);
                    multiply_add(sum[1][n], a[1], column);
                }
            }
        }

#pragma unroll
        for (int n = 0; n < C2 / 8; ++n) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                int channel = n * 8 + 2 * t + i, largest = 0;
                float of[4] = {sum[0][n][i], sum[0][n][i + 2], sum[1][n][i], sum[1][n][i + 2]};
                float most = of[0];
#pragma unroll
                for (int pixel = 1; pixel < 4; ++pixel) {
                    // NaN wins, and is seen later on.
                    if (!(of[pixel] <= most)) {
                        most = of[pixel];
                        largest = pixel;
                    }
                }
                most += w[CONV2_BIAS + channel];
                size_t to = (size_t)item * FEATURES + channel * WINDOWS + window;
                pooled[to] = most <= 0.0f ? 0.0f : most;
                which[to] = most <= 0.0f ? 4 : largest;
            }
        }
        // The next image's channels go where this one's are still read.
        __syncthreads();
    }
}
