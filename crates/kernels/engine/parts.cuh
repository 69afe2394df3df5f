// What stands alone: loads, sums of a warp, the running softmax, the choice of a token, and the instructions by which a kernel
// starts before the one in front of it has ended.
#pragma once
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

constexpr int WARPS = THREADS / 32;

// Everything that the kernel in front wrote can be seen behind this line. What comes before it overlaps with that
// kernel, so there must be only what does not depend on it: weights.
__device__ void wait_for_former() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

// The next kernel may start as soon as each block of this one has come here.
__device__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

// `volatile` keeps a load where it is written, in front of the wait.
__device__ float fetch_one(const float *number) {
    float one;
    asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(one) : "l"(number));
    return one;
}
__device__ float4 fetch(const float *numbers) {
    float4 four;
    asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                 : "l"(numbers));
    return four;
}

// A bf16 is the upper half of a float. Of a pair the first one lies in the lower half.
__device__ float low(unsigned int pair) { return __uint_as_float(pair << 16); }
__device__ float high(unsigned int pair) { return __uint_as_float(pair & 0xffff0000u); }

__device__ float dot(uint4 eight, const float (&x)[8], float sum) {
    sum += low(eight.x) * x[0];
    sum += high(eight.x) * x[1];
    sum += low(eight.y) * x[2];
    sum += high(eight.y) * x[3];
    sum += low(eight.z) * x[4];
    sum += high(eight.z) * x[5];
    sum += low(eight.w) * x[6];
    return sum + high(eight.w) * x[7];
}

// sum += eight · scale, number by number.
__device__ void add_scaled(uint4 eight, float scale, float (&sum)[8]) {
    sum[0] += low(eight.x) * scale;
    sum[1] += high(eight.x) * scale;
    sum[2] += low(eight.y) * scale;
    sum[3] += high(eight.y) * scale;
    sum[4] += low(eight.z) * scale;
    sum[5] += high(eight.z) * scale;
    sum[6] += low(eight.w) * scale;
    sum[7] += high(eight.w) * scale;
}

__device__ float warp_sum(float own) {
    for (int distance = 16; distance > 0; distance /= 2) {
        own += __shfl_xor_sync(0xffffffff, own, distance);
    }
    return own;
}

// 2^x, as the hardware has it.
__device__ float power_of_2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

__device__ float gelu(float x) {
    // tanh through exp: 1 - 2 / (e^2u + 1) has no overflow that hurts.
    float u = 0.7978845608f * (x + 0.044715f * x * x * x);
    return x * (1.0f - 1.0f / (__expf(2.0f * u) + 1.0f));
}

// A running softmax: the largest score so far, and the sums of the weights and of the weighted values relative to it.
struct Partial {
    float most, total, values[8];

    // MANY more positions, each shared by PART lanes: a lane has eight numbers of a position's key and value. Those that are not
    // `there` do not count. Nothing of a position waits for another one, but that all have one largest score.
    template <int PART, int MANY>
    __device__ void see(const uint4 (&keys)[MANY], const uint4 (&values_of)[MANY], const float (&query)[8],
                        const bool (&there)[MANY]) {
        float scores[MANY], larger = most;
#pragma unroll
        for (int i = 0; i < MANY; ++i) {
            scores[i] = dot(keys[i], query, 0.0f);
        }
#pragma unroll
        for (int distance = PART / 2; distance > 0; distance /= 2) {
#pragma unroll
            for (int i = 0; i < MANY; ++i) {
                scores[i] += __shfl_xor_sync(0xffffffff, scores[i], distance);
            }
        }
#pragma unroll
        for (int i = 0; i < MANY; ++i) {
            larger = there[i] ? fmaxf(larger, scores[i]) : larger;
        }
        float shrink = power_of_2(most - larger);
        total *= shrink;
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            values[i] *= shrink;
        }
#pragma unroll
        for (int i = 0; i < MANY; ++i) {
            float weight = there[i] ? power_of_2(scores[i] - larger) : 0.0f;
            total += weight;
            add_scaled(values_of[i], weight, values);
        }
        most = larger;
    }

    // What all lanes of the warp have seen goes to `seen`: the values, `most`, `total`.
    template <int PART>
    __device__ void merge_warp(float *seen) {
        for (int distance = PART; distance < 32; distance *= 2) {
            float other = __shfl_xor_sync(0xffffffff, most, distance);
            float larger = fmaxf(most, other), scale = power_of_2(most - larger), scale_other = power_of_2(other - larger);
            total = total * scale + __shfl_xor_sync(0xffffffff, total, distance) * scale_other;
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                values[i] = values[i] * scale + __shfl_xor_sync(0xffffffff, values[i], distance) * scale_other;
            }
            most = larger;
        }
        int lane = threadIdx.x % 32;
        if (lane < PART) {
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                seen[lane * 8 + i] = values[i];
            }
            if (lane == 0) {
                seen[PART * 8] = most;
                seen[PART * 8 + 1] = total;
            }
        }
    }
};

// One number of the merged softmax of several: values, `most`, `total` of each stand in a row of `seen`.
template <int COUNT>
__device__ float merged(const float (*seen)[COUNT], int rows, int at, float *most_of_all = nullptr,
                        float *total = nullptr) {
    float most = -1e30f, sum = 0.0f, value = 0.0f;
    for (int i = 0; i < rows; ++i) {
        most = fmaxf(most, seen[i][COUNT - 2]);
    }
    for (int i = 0; i < rows; ++i) {
        float scale = power_of_2(seen[i][COUNT - 2] - most);
        sum += seen[i][COUNT - 1] * scale;
        value += seen[i][at] * scale;
    }
    if (total != nullptr) {
        *most_of_all = most;
        *total = sum;
        return value;
    }
    return value / sum;
}

// A number in (0, 1) that only seed, position and row decide.
__device__ float chance(unsigned int seed, unsigned int position, unsigned int row) {
    unsigned int bits = row * 0x9e3779b1u ^ position * 0x85ebca77u ^ seed * 0xc2b2ae3du;
    bits = (bits ^ bits >> 16) * 0x7feb352du;
    bits = (bits ^ bits >> 15) * 0x846ca68bu;
    bits ^= bits >> 16;
    return ((bits >> 8) + 0.5f) * (1.0f / (1 << 24));
}

// The state of a text: the position that is read, the prompt's length, the seed, and the bits of the temperature. With
// one, a logit ÷ temperature gets noise of the Gumbel distribution: the largest is then a draw from their softmax.
__device__ float drawn(float logit, int row, const int *state) {
    float temperature = __int_as_float(state[3]);
    return temperature > 0.0f ? logit / temperature - __logf(-__logf(chance(state[2], state[0], row))) : logit;
}

// A larger float makes a larger word; of equal ones the earlier row wins.
__device__ unsigned long long ranked(float value, int row) {
    unsigned int bits = __float_as_uint(value);
    bits = bits >> 31 ? ~bits : bits | 0x80000000u;
    return (unsigned long long)bits << 32 | (0xffffffffu - row);
}

// The best of the warp's words competes for `best`.
__device__ void keep_best(unsigned long long own, unsigned long long *best) {
    for (int distance = 16; distance > 0; distance /= 2) {
        own = max(own, __shfl_xor_sync(0xffffffff, own, distance));
    }
    if (threadIdx.x % 32 == 0 && own > 0) {
        atomicMax(best, own);
    }
}
