// idea: AdamW for all parameters in one kernel: each is read and written once, with both its moments.
// constants: PRECISION (see tensor.cuh). 256 threads. The first 294 blocks first sum what the blocks of conv_backward left.
#include "network.cuh"
#include "tensor.cuh"

enum { THREADS = 256, SLICES = 4, EACH = THREADS / SLICES, SUMMING = FC1_WEIGHT / EACH };

// What stands in `settings`, one float each.
enum Settings { RATE, LOG_BETA1, LOG_BETA2, BETA1, REST1, BETA2, REST2, EPSILON, DECAY };

struct Step {
    float rate, beta1, rest1, beta2, rest2, epsilon, keep, correction1, correction2, unscale;
};

__device__ Step this_step(const float *settings, const u32 *state, const float *scale) {
    float step = (float)state[STEP];
    Step s;
    s.rate = settings[RATE];
    s.beta1 = settings[BETA1];
    s.rest1 = settings[REST1];
    s.beta2 = settings[BETA2];
    s.rest2 = settings[REST2];
    s.epsilon = settings[EPSILON];
    s.keep = 1.0f - settings[RATE] * settings[DECAY];
    // 1 - beta^step without the difference of two numbers near 1.
    s.correction1 = -1.0f / expm1f(step * settings[LOG_BETA1]);
    s.correction2 = -1.0f / expm1f(step * settings[LOG_BETA2]);
    s.unscale = 1.0f / scale[0];
    return s;
}

__device__ float update_one(const Step &s, float w, float g, float &m, float &v) {
    g *= s.unscale;
    m = s.beta1 * m + s.rest1 * g;
    v = s.beta2 * v + s.rest2 * g * g;
    return w * s.keep - s.rate * (m * s.correction1) / (sqrtf(v * s.correction2) + s.epsilon);
}

// conv2's weight once more, as the tensor cores' lanes read it: first for the forward pass (taps of 32 × 64, input channels
// by output channels), then for the backward pass (64 × 32). A step of eight rows and eight columns is 64 words.
__device__ void pack(float *packed, int co, int ci, int tap, float w) {
    packed[tap * (C1 * C2) + (ci / 8 * (C2 / 8) + co / 8) * 64 + (co % 8 * 4 + ci % 8 / 2) * 2 + ci % 2] = rounded(w);
    packed[PACKED + tap * (C1 * C2) + (co / 8 * (C1 / 8) + ci / 8) * 64 + (ci % 8 * 4 + co % 8 / 2) * 2 + co % 2] = rounded(w);
}

// Which element of conv2.weight the sum at place `at` is of: see `filter_gradient` in conv_backward.cu.
__device__ int weight_at(int at) {
    int i = at % 4, lane = at / 4 % 32, tile = at / 128, n = tile % 6, m = tile / 6 % 2, warp = tile / 12;
    int column = warp / 2 * 6 + n, tap = column / 4;
    int co = (warp % 2 * 2 + m) * 16 + lane / 4 + i / 2 * 8, ci = column % 4 * 8 + lane % 4 * 2 + i % 2;
    return (co * C1 + ci) * 9 + tap;
}

// Packs conv2's weight for the first step.
extern "C" __global__ __launch_bounds__(THREADS) void pack_all(const float *w, float *packed) {
    int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < PACKED) {
        pack(packed, i / (C1 * 9), i / 9 % C1, i % 9, w[CONV2_WEIGHT + i]);
    }
}

// parameters w and moments m, v: all 1,199,882. gradient: of the linear layers. partial: what `blocks` blocks summed.
extern "C" __global__ __launch_bounds__(THREADS) void update(
    float *w, float *m, float *v, float *gradient, const float *partial, float *packed, const float *settings,
    const u32 *state, const float *scale, int blocks
) {
    __shared__ float part[THREADS];
    Step step = this_step(settings, state, scale);
    bool good = state[BAD] == 0;
    if (blockIdx.x < SUMMING) {
        int place = blockIdx.x * EACH + threadIdx.x % EACH;
        float sum = 0.0f;
#pragma unroll 8
        for (int i = threadIdx.x / EACH; i < blocks; i += SLICES) {
            sum += partial[(size_t)i * FC1_WEIGHT + place];
        }
        part[threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.x < EACH) {
            sum = (part[threadIdx.x] + part[threadIdx.x + EACH]) + (part[threadIdx.x + 2 * EACH] + part[threadIdx.x + 3 * EACH]);
            bool of_conv2 = place >= CONV2_WEIGHT && place < CONV2_BIAS;
            int element = of_conv2 ? weight_at(place - CONV2_WEIGHT) : place - CONV2_WEIGHT;
            int at = CONV2_WEIGHT + element;
            gradient[at] = sum;
            if (good) {
                float moment = m[at], square = v[at], updated = update_one(step, w[at], sum, moment, square);
                w[at] = updated;
                m[at] = moment;
                v[at] = square;
                if (of_conv2) {
                    pack(packed, element / (C1 * 9), element / 9 % C1, element % 9, updated);
                }
            }
        }
    } else if (good) {
        int at = FC1_WEIGHT + ((blockIdx.x - SUMMING) * THREADS + threadIdx.x) * 4;
        if (at + 4 <= ALL) {
            float4 w4 = *(float4 *)(w + at), m4 = *(float4 *)(m + at), v4 = *(float4 *)(v + at);
            float4 g4 = *(const float4 *)(gradient + at);
            w4.x = update_one(step, w4.x, g4.x, m4.x, v4.x);
            w4.y = update_one(step, w4.y, g4.y, m4.y, v4.y);
            w4.z = update_one(step, w4.z, g4.z, m4.z, v4.z);
            w4.w = update_one(step, w4.w, g4.w, m4.w, v4.w);
            *(float4 *)(w + at) = w4;
            *(float4 *)(m + at) = m4;
            *(float4 *)(v + at) = v4;
        } else {
            for (; at < ALL; ++at) {
                w[at] = update_one(step, w[at], gradient[at], m[at], v[at]);
            }
        }
    }
}
