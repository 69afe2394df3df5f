// idea: the backward pass of both convolutions, image by image: what lies between them never leaves the block.
// constants: PRECISION (see tensor.cuh). 384 threads, 12 warps.
// The first convolution's output is computed again, which costs less than to store and load it. The gradient of the second
// one's output is kept as the pool left it: of each window one number, whose two lowest bits say of which of its pixels.
#include "first_convolution.cuh"

// Windows in shared memory: 14 × 14 with a ring of zeros, 72 words each, so that neighbours lie in different banks.
enum { RING = POOLED + 2, WINDOW = C2 + 8, THREADS = 384, PIXELS = SIDE1 * SIDE1 };

// Where a channel of pixel (y, x) of the first convolution lies: the four pixels of a window in different banks.
__device__ __forceinline__ int turned(int channel, int y, int x) {
    return channel ^ ((x & 1) + 2 * (y & 1)) * 8;
}

__device__ __forceinline__ int in_a1(int channel, int y, int x) {
    return (y * SIDE1 + x) * C1 + turned(channel, y, x);
}

// The gradient at one of a window's pixels: what the pool kept, if it is of that pixel.
__device__ __forceinline__ float if_of(float kept, u32 pixel) {
    u32 bits = __float_as_uint(kept);
    // PRECISION 1 does not look at the low bits, 2 and 3 round them away.
    return ((bits ^ pixel) & 3) == 0 ? __uint_as_float(PRECISION == 0 ? bits & ~3u : bits) : 0.0f;
}

// d_weight [co][ci][tap] += Σ over pixels of d · a1: 32 × 48 of 64 × 288 a warp. A step takes two windows, eight pixels.
__device__ __forceinline__ void filter_gradient(float (&sum)[2][6][4], const float *kept, const float *a1) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float *a = kept + (RING + 1) * WINDOW + warp % 2 * 32 + g;
    int at[6];
#pragma unroll
    for (int n = 0; n < 6; ++n) {
        int column = warp / 2 * 6 + n, tap = column / 4;
        at[n] = in_a1(column % 4 * 8 + g, t / 2 + tap / 3, t % 2 + tap % 3);
    }
#pragma unroll 1
    for (int y = 0; y < POOLED; ++y) {
#pragma unroll 2
        for (int x = 0; x < POOLED; x += 2) {
            Operand<4> rows[2];
#pragma unroll
            for (int m = 0; m < 2; ++m) {
                const float *from = a + (y * RING + x) * WINDOW + m * 16;
                rows[m] = rows_of_a(if_of(from[0], t), if_of(from[8], t), if_of(from[WINDOW], t), if_of(from[WINDOW + 8], t));
            }
            const float *b = a1 + (2 * y * SIDE1 + 2 * x) * C1;
#pragma unroll
            for (int n = 0; n < 6; ++n) {
                Operand<2> column = column_of_b(b[at[n]], b[at[n] + 2 * C1]);
                multiply_add(sum[0][n], rows[0], column);
                multiply_add(sum[1][n], rows[1], column);
            }
        }
    }
}

// d_a1 of 64 pixels a warp, all channels. The pixels of a tile (16) have the same place in their windows, so that what
// they need of a neighbour is of the same pixel there. The first convolution's ReLU comes last.
__device__ __forceinline__ void input_gradient(float (&sum)[4][4][4], const float *kept, const float *filter) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    const float *row[4][2];
    int place[4];
#pragma unroll
    for (int m = 0; m < 4; ++m) {
        place[m] = (warp * 4 + m) / 11;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int window = min((warp * 4 + m) % 11 * 16 + g + 8 * i, 168);
            row[m][i] = kept + (window / 13 * RING + window % 13) * WINDOW + 2 * t;
        }
    }
#pragma unroll 1
    for (int tap = 0; tap < 9; ++tap) {
        int offset[4];
        u32 pixel[4];
#pragma unroll
        for (int m = 0; m < 4; ++m) {
            int y = place[m] / 2 - tap / 3 + 2, x = place[m] % 2 - tap % 3 + 2;
            pixel[m] = y % 2 * 2 + x % 2;
            offset[m] = (y / 2 * RING + x / 2) * WINDOW;
        }
        const float *b = filter + tap * (C1 * C2) + lane * 2;
#pragma unroll 2
        for (int k = 0; k < C2; k += 8, b += 4 * 64) {
            Operand<2> column[4];
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                float2 both = *(const float2 *)(b + n * 64);
                column[n] = column_of_b(both.x, both.y);
            }
#pragma unroll
            for (int m = 0; m < 4; ++m) {
                float2 upper = *(const float2 *)(row[m][0] + offset[m] + k);
                float2 lower = *(const float2 *)(row[m][1] + offset[m] + k);
                Operand<4> a = rows_of_a(
                    if_of(upper.x, pixel[m]), if_of(lower.x, pixel[m]), if_of(upper.y, pixel[m]), if_of(lower.y, pixel[m]));
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    multiply_add(sum[m][n], a, column[n]);
                }
            }
        }
    }
}

// Puts d_a1 where a1 was: 0 where its ReLU let nothing through.
__device__ __forceinline__ void behind_relu(const float (&sum)[4][4][4], float *a1) {
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
    for (int m = 0; m < 4; ++m) {
        int place = (warp * 4 + m) / 11;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            int window = (warp * 4 + m) % 11 * 16 + g + i * 8;
            if (window < 169) {
                int y = window / 13 * 2 + place / 2, x = window % 13 * 2 + place % 2;
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    float2 *at = (float2 *)(a1 + in_a1(n * 8 + 2 * t, y, x)), was = *at;
                    *at = make_float2(was.x > 0.0f ? sum[m][n][2 * i] : 0.0f, was.y > 0.0f ? sum[m][n][2 * i + 1] : 0.0f);
                }
            }
        }
    }
}

// A warp's sums of the first convolution's gradient: a lane's channel, its nine taps and its bias.
__device__ __forceinline__ void first_gradient(float (&sum)[10], const float *a1, const float *image) {
    for (int half = threadIdx.x / 32; half < HALVES; half += THREADS / 32) {
        int y = half / 2, left = half % 2 * HALF;
        float rows[3][HALF + 2];
        load_half(rows, image, y, left);
#pragma unroll
        for (int x = 0; x < HALF; ++x) {
            float d = a1[in_a1(threadIdx.x % 32, y, left + x)];
            sum[9] += d;
#pragma unroll
            for (int i = 0; i < 9; ++i) {
                sum[i] += d * rows[i / 3][x + i % 3];
            }
        }
    }
}

// A block's sum: what earlier images left is added to. False where it is no finite number.
__device__ __forceinline__ bool put(float *to, float x, bool first) {
    x = first ? x : *to + x;
    *to = x;
    return isfinite(x);
}

// partial [gridDim.x][18816]: each block's sum of conv1.weight, conv1.bias, conv2.weight (in the order of its threads'
// registers, see update.cu) and conv2.bias.
extern "C" __global__ __launch_bounds__(THREADS, 1) void conv_backward(
    const unsigned char *pixels, const u32 *order, u32 *state, const float *w, const float *packed,
    const float *d_pooled, const unsigned char *which, float *partial, int batch
) {
    extern __shared__ __align__(16) float memory[];
    float *a1 = memory, *kept = a1 + PIXELS * C1, *filter = kept + RING * RING * WINDOW, *image = filter + PACKED;
    float *to = partial + (size_t)blockIdx.x * FC1_WEIGHT;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    bool finite = true;

    for (int i = threadIdx.x * 4; i < PACKED; i += THREADS * 4) {
        copy_16(filter + i, packed + PACKED + i, true);
    }
    copies_commit();
    for (int i = threadIdx.x; i < RING * RING * WINDOW; i += THREADS) {
        kept[i] = 0.0f;
    }
    for (int item = blockIdx.x; item < batch; item += gridDim.x) {
        bool first = item == blockIdx.x;
        __syncthreads();
        load_image(image, pixels + (size_t)order[state[SEEN] + item] * (IMAGE * IMAGE));
        // A warp takes 8 windows of 4 channels at a time: whole sectors, and few banks twice.
        for (int i = threadIdx.x; i < FEATURES; i += THREADS) {
            int tile = i / 32, channel = tile / (WINDOWS / 8) * 4 + i % 32 / 8, window = tile % (WINDOWS / 8) * 8 + i % 8;
            size_t from = (size_t)item * FEATURES + channel * WINDOWS + window;
            u32 pixel = which[from];
            float d = rounded(d_pooled[from]);
            kept[((window / POOLED + 1) * RING + window % POOLED + 1) * WINDOW + channel] =
                pixel < 4 ? __uint_as_float((__float_as_uint(d) & ~3u) | pixel) : 0.0f;
        }
        __syncthreads();
        first_convolution(image, w, [&](int y, int x, float value) { a1[in_a1(lane, y, x)] = value; });
        copies_wait<0>();
        __syncthreads();

        if (threadIdx.x < C2) {
            float sum = 0.0f;
#pragma unroll 14
            for (int i = 0; i < RING * RING; ++i) {
                sum += __uint_as_float(__float_as_uint(kept[i * WINDOW + threadIdx.x]) & ~3u);
            }
            put(to + CONV2_BIAS + threadIdx.x, sum, first);
        }
        {
            float sum[2][6][4] = {};
            filter_gradient(sum, kept, a1);
#pragma unroll
            for (int i = 0; i < 12; ++i) {
                float4 *at = (float4 *)(to + CONV2_WEIGHT + ((warp * 12 + i) * 32 + lane) * 4);
                float4 was = first ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : *at;
                const float *s = sum[i / 6][i % 6];
                float4 all = make_float4(was.x + s[0], was.y + s[1], was.z + s[2], was.w + s[3]);
                *at = all;
                finite = finite && isfinite(all.x) && isfinite(all.y) && isfinite(all.z) && isfinite(all.w);
            }
        }
        {
            float d_a1[4][4][4] = {};
            if (warp < 11) {
                input_gradient(d_a1, kept, filter);
            }
            // All of a1 was used before any of it is replaced.
            __syncthreads();
            if (warp < 11) {
                behind_relu(d_a1, a1);
            }
        }
        __syncthreads();
        float sum[10] = {};
        first_gradient(sum, a1, image);
        // The warps' sums, one after the other, where a1 was.
        __syncthreads();
        float *sums = a1;
#pragma unroll
        for (int i = 0; i < 10; ++i) {
            sums[warp * (C1 * 10) + (i < 9 ? lane * 9 + i : C1 * 9 + lane)] = sum[i];
        }
        __syncthreads();
        if (threadIdx.x < C1 * 10) {
            float all = 0.0f;
#pragma unroll
            for (int i = 0; i < THREADS / 32; ++i) {
                all += sums[i * (C1 * 10) + threadIdx.x];
            }
            finite = put(to + CONV1_WEIGHT + threadIdx.x, all, first) && finite;
        }
    }
    if (!finite) {
        atomicOr(&state[BAD], 1u);
    }
}
