// What phases leave for each other: numbers in global memory, read and written in pairs.
//
// With FLAGS 1 each number carries the number of the phase that wrote it, and who reads it tries again until that is the
// one: nobody has to wait until everybody is there. A number may be written anew when all blocks have read it. That is so
// because every block has rows in every matrix, and needs all of a phase's numbers for them: who sees the numbers of the
// next phase knows that each block is done with those of the phase before.
#pragma once
#include "shape.cuh"

// The residual; queries, keys and values of the token; the MLP's units; of each head and part of the context what
// attention has gathered, then its largest score and the sum of its weights.
constexpr int RESIDUAL = 0, QUERIES = WIDTH, UNITS = QUERIES + QUERY + 2 * KEYS, GATHERED = UNITS + INNER,
              WEIGHED = GATHERED + HEADS * SPLITS * HEAD;
// Who wrote numbers that were there before this token.
constexpr int ANYBODY = -1;

// The number of a phase in a token.
__device__ int number_of(int layer, int phase) {
    return 5 * layer + phase;
}

#if FLAGS
struct Work {
    u64 *numbers; // the upper half is the flag
    u32 before;   // flags of earlier tokens are not above it

    __device__ Work(float *memory, u32 token, int layers)
        : numbers((u64 *)memory), before(token * (u32)number_of(layers, 1)) {}

    // Pairs that begin at `at`: all of them are asked for at once, and again those that were not there.
    template <int N>
    __device__ void read(const int (&at)[N], float2 (&pairs)[N], int writer) const {
        u32 flag = before + writer + 1;
        u64 first[N], second[N];
        auto load = [&](int i) {
            asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
                         : "=l"(first[i]), "=l"(second[i])
                         : "l"(numbers + at[i])
                         : "memory");
        };
        auto is_there = [&](int i) { return (u32)(first[i] >> 32) == flag && (u32)(second[i] >> 32) == flag; };
#pragma unroll
        for (int i = 0; i < N; ++i) {
            load(i);
        }
        bool all = writer == ANYBODY;
        while (!all) {
            all = true;
#pragma unroll
            for (int i = 0; i < N; ++i) {
                if (!is_there(i)) {
                    all = false;
                    load(i);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < N; ++i) {
            pairs[i] = make_float2(__uint_as_float((u32)first[i]), __uint_as_float((u32)second[i]));
        }
    }

    __device__ void write(int at, float value, int writer) const {
        u64 both = (u64)(before + writer + 1) << 32 | __float_as_uint(value);
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(numbers + at), "l"(both) : "memory");
    }

    __device__ void write(int at, float2 pair, int writer) const {
        u64 flag = (u64)(before + writer + 1) << 32;
        asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(numbers + at),
                     "l"(flag | __float_as_uint(pair.x)), "l"(flag | __float_as_uint(pair.y))
                     : "memory");
    }
};
#else
struct Work {
    float *numbers;

    __device__ Work(float *memory, u32, int) : numbers(memory) {}

    template <int N>
    __device__ void read(const int (&at)[N], float2 (&pairs)[N], int) const {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            pairs[i] = __ldcg((const float2 *)(numbers + at[i]));
        }
    }

    __device__ void write(int at, float value, int) const { numbers[at] = value; }

    __device__ void write(int at, float2 pair, int) const { *(float2 *)(numbers + at) = pair; }
};
#endif
