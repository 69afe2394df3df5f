// idea: both products of fc1's backward pass share two of their three matrices: a block loads 72 features of each once.
// constants: PRECISION (see tensor.cuh). 512 threads: 8 warps compute the gradient of the features, 8 that of the weight.
#include "network.cuh"
#include "tensor.cuh"

// 128 blocks of 72 features. Pitches: where a warp reads down a column, its rows lie in different banks.
enum { SLAB = 72, CHUNK = 128, D_PITCH = HIDDEN + 8, W_PITCH = SLAB + 4, P_PITCH = SLAB };

// The sum over a warp's lanes, in each of them.
__device__ float warp_sum(float x) {
    for (int half = 16; half > 0; half /= 2) {
        x += __shfl_xor_sync(0xffffffff, x, half);
    }
    return x;
}

// gradient: fc1.weight, fc1.bias, fc2.weight, fc2.bias at their places in the array of all; d_pooled [batch, 9216].
extern "C" __global__ __launch_bounds__(512, 1) void fc_backward(
    const float *d_hidden, const float *d_logits, const float *hidden, const float *pooled, const float *w,
    float *d_pooled, float *gradient, u32 *state, int batch
) {
    extern __shared__ __align__(16) float memory[];
    float *d = memory, *weight = d + CHUNK * D_PITCH, *p = weight + HIDDEN * W_PITCH;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, feature0 = blockIdx.x * SLAB;
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        state[STEP] += 1;
    }
    for (int i = threadIdx.x; i < HIDDEN * (SLAB / 4); i += 512) {
        int row = i / (SLAB / 4), column = i % (SLAB / 4) * 4;
        copy_16(weight + row * W_PITCH + column, w + FC1_WEIGHT + (size_t)row * FEATURES + feature0 + column, true);
    }
    float sum[SLAB / 8][4] = {};
    for (int item0 = 0; item0 < batch; item0 += CHUNK) {
        __syncthreads();
        for (int i = threadIdx.x; i < CHUNK * (SLAB / 4); i += 512) {
            int row = i / (SLAB / 4), column = i % (SLAB / 4) * 4;
            bool there = item0 + row < batch;
            const float *from = pooled + (size_t)(there ? item0 + row : 0) * FEATURES + feature0 + column;
            copy_16(p + row * P_PITCH + column, from, there);
        }
        for (int i = threadIdx.x; i < CHUNK * (HIDDEN / 4); i += 512) {
            int row = i / (HIDDEN / 4), column = i % (HIDDEN / 4) * 4;
            bool there = item0 + row < batch;
            copy_16(d + row * D_PITCH + column, d_hidden + (size_t)(there ? item0 + row : 0) * HIDDEN + column, there);
        }
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        // Of a small batch, the rows that are there.
        int rows = min(CHUNK, batch - item0);
        if (warp < 8 && warp * 16 < rows) {
            // d_pooled = d_hidden · weight: 16 images a warp.
            float out[SLAB / 8][4] = {};
#pragma unroll 4
            for (int k = 0; k < HIDDEN; k += 8) {
                const float *a = d + (warp * 16 + g) * D_PITCH + k + 2 * t, *b = weight + (k + 2 * t) * W_PITCH + g;
                float2 upper = *(const float2 *)a, lower = *(const float2 *)(a + 8 * D_PITCH);
                Operand<4> left = rows_of_a(for_product(upper.x), for_product(lower.x), for_product(upper.y), for_product(lower.y));
#pragma unroll
                for (int n = 0; n < SLAB / 8; ++n) {
                    multiply_add(out[n], left, column_of_b(for_product(b[n * 8]), for_product(b[W_PITCH + n * 8])));
                }
            }
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                int item = item0 + warp * 16 + g + 8 * i;
                if (item < batch) {
                    float *to = d_pooled + (size_t)item * FEATURES + feature0 + 2 * t;
#pragma unroll
                    for (int n = 0; n < SLAB / 8; ++n) {
                        *(float2 *)(to + n * 8) = make_float2(out[n][2 * i], out[n][2 * i + 1]);
                    }
                }
            }
        } else if (warp >= 8) {
            // The weight's gradient = transposed d_hidden · pooled: 16 units a warp.
            int unit = (warp - 8) * 16 + g;
#pragma unroll 4
            for (int k = 0; k < rows; k += 8) {
                const float *a = d + (k + t) * D_PITCH + unit, *b = p + (k + t) * P_PITCH + g;
                Operand<4> left = rows_of_a(
                    for_product(a[0]), for_product(a[8]), for_product(a[4 * D_PITCH]), for_product(a[4 * D_PITCH + 8]));
#pragma unroll
                for (int n = 0; n < SLAB / 8; ++n) {
                    multiply_add(sum[n], left, column_of_b(for_product(b[n * 8]), for_product(b[4 * P_PITCH + n * 8])));
                }
            }
        }
    }
    bool finite = true;
    if (warp >= 8) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            float *to = gradient + FC1_WEIGHT + (size_t)((warp - 8) * 16 + g + 8 * i) * FEATURES + feature0 + 2 * t;
#pragma unroll
            for (int n = 0; n < SLAB / 8; ++n) {
                *(float2 *)(to + n * 8) = make_float2(sum[n][2 * i], sum[n][2 * i + 1]);
                finite = finite && isfinite(sum[n][2 * i]) && isfinite(sum[n][2 * i + 1]);
            }
        }
    }
    // The small ones: block j sums those of hidden unit j; warp c the weight of class c, and warp 10 the unit's bias.
    int unit = blockIdx.x;
    float of_unit = 0.0f, of_class = 0.0f;
    for (int item = lane; item < batch && warp <= CLASSES; item += 32) {
        float d_logit = warp < CLASSES ? d_logits[(size_t)item * CLASSES + warp] : 0.0f;
        of_class += d_logit;
        of_unit += warp < CLASSES ? d_logit * hidden[(size_t)item * HIDDEN + unit] : d_hidden[(size_t)item * HIDDEN + unit];
    }
    of_unit = warp_sum(of_unit);
    of_class = warp_sum(of_class);
    if (lane == 0 && warp <= CLASSES) {
        gradient[warp < CLASSES ? FC2_WEIGHT + warp * HIDDEN + unit : FC1_BIAS + unit] = of_unit;
        if (unit == 0 && warp < CLASSES) {
            gradient[FC2_BIAS + warp] = of_class;
        }
        finite = finite && isfinite(of_unit);
    }
    if (!finite) {
        atomicOr(&state[BAD], 1u);
    }
}
