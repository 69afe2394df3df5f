// What phases leave for each other: numbers in global memory, read and written in pairs.
#pragma once
#include "shape.cuh"

// The residual; queries, keys and values of the token; the MLP's units; of each head and part of the context what
// attention has gathered, then its largest score and the sum of its weights.
constexpr int RESIDUAL = 0, QUERIES = WIDTH, UNITS = QUERIES + QUERY + 2 * KEYS, GATHERED = UNITS + INNER,
              WEIGHED = GATHERED + HEADS * SPLITS * HEAD;

struct Work {
    float *numbers;

    // Pairs that begin at `at`, from the L2 cache: other multiprocessors have just written them.
    template <int N>
    __device__ void read(const int (&at)[N], float2 (&pairs)[N]) const {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            pairs[i] = __ldcg((const float2 *)(numbers + at[i]));
        }
    }

    __device__ void write(int at, float value) const { numbers[at] = value; }

    __device__ void write(int at, float2 pair) const { *(float2 *)(numbers + at) = pair; }
};
