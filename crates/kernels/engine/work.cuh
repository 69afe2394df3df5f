// What phases leave for each other: numbers in global memory.
#pragma once
#include "shape.cuh"

// The residual, three times; queries, keys and values of the token; the MLP's units; of each head and part of the context
// what attention has gathered, then its largest score and the sum of its weights.
constexpr int RESIDUAL = 0, QUERIES = 3 * WIDTH, UNITS = QUERIES + QUERY + 2 * KEYS, GATHERED = UNITS + INNER,
              WEIGHED = GATHERED + HEADS * SPLITS * HEAD, NUMBERS = WEIGHED + 2 * HEADS * SPLITS;

// A phase that adds to the residual reads one of the three, adds to the next, and clears the last, to which the next such
// phase adds: `addition` counts them.
__device__ constexpr int residual_of(int addition) {
    return RESIDUAL + addition % 3 * WIDTH;
}

struct Work {
    float *numbers;

    __device__ Work(float *all) : numbers(all) {}

    __device__ void add(int at, float value) const { atomicAdd(numbers + at, value); }

    // By all blocks, behind the wait.
    __device__ void clear_residual(int addition) const {
        for (int i = blockIdx.x * THREADS + threadIdx.x; i < WIDTH; i += blocks() * THREADS) {
            write(residual_of(addition) + i, 0.0f);
        }
    }

    // From the L2 cache: other multiprocessors have just written them.
    __device__ float2 read_pair(int at) const { return __ldcg((const float2 *)(numbers + at)); }

    __device__ float4 read_four(int at) const { return __ldcg((const float4 *)(numbers + at)); }

    __device__ void write(int at, float value) const { numbers[at] = value; }

    __device__ void write(int at, float2 pair) const { *(float2 *)(numbers + at) = pair; }
};
