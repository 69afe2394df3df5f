// What phases leave for each other: numbers in global memory.
#pragma once
#include "shape.cuh"

// The residual, three times; queries, keys and values of the token; the MLP's units; of each head and part of the context
// what attention has gathered, then its largest score and the sum of its weights.
constexpr int RESIDUAL = 0, QUERIES = 3 * WIDTH, UNITS = QUERIES + QUERY + 2 * KEYS, GATHERED = UNITS + INNER,
              WEIGHED = GATHERED + HEADS * SPLITS * HEAD, NUMBERS = WEIGHED + 2 * HEADS * SPLITS;

// Numbers that say themselves when they are there (FLAGS): until then a place holds bits that no sum has. All of this exists
// twice, for layers in turn: who writes a number clears that of the layer before. Its readers are done with it by then: each
// of them has written something that this block has needed since.
constexpr bool FLAGS = MEET == 4;
constexpr u32 NOT_YET = 0xffffffff;
static_assert(!FLAGS || ADDING == 0, "sums of several blocks have no flag");

// A phase that adds to the residual reads one of the three, adds to the next, and clears the last, to which the next such
// phase adds: `turn` counts them.
__device__ constexpr int residual_of(int turn) {
    return RESIDUAL + turn % 3 * WIDTH;
}

struct Work {
    float *numbers, *others; // of this layer, and of those before and behind it

    __device__ Work(float *all, int layer = 0)
        : numbers(all + (FLAGS ? layer % 2 * NUMBERS : 0)), others(all + (FLAGS ? (layer + 1) % 2 * NUMBERS : 0)) {}

    // That of the next layer.
    __device__ Work next() const {
        Work work = *this;
        work.numbers = others, work.others = numbers;
        return work;
    }

    __device__ void add(int at, float value) const { atomicAdd(numbers + at, value); }

    // By all blocks, behind the wait.
    __device__ void clear_residual(int turn) const {
        for (int i = blockIdx.x * THREADS + threadIdx.x; i < WIDTH; i += blocks() * THREADS) {
            write(residual_of(turn) + i, 0.0f);
        }
    }

    // By all blocks, when nobody needs the layer before any more.
    __device__ void clear_others() const {
        for (int i = blockIdx.x * THREADS + threadIdx.x; FLAGS && i < NUMBERS; i += blocks() * THREADS) {
            others[i] = __uint_as_float(NOT_YET);
        }
    }

    // From the L2 cache: other multiprocessors have just written them.
    __device__ static void load(const float *from, float4 &four) {
        asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                     : "l"(from)
                     : "memory");
    }
    __device__ static void load(const float *from, float2 &pair) {
        asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "l"(from) : "memory");
    }
    __device__ static bool is_there(float2 pair) {
        return __float_as_uint(pair.x) != NOT_YET && __float_as_uint(pair.y) != NOT_YET;
    }
    __device__ static bool is_there(float4 four) {
        return is_there(make_float2(four.x, four.y)) && is_there(make_float2(four.z, four.w));
    }

    // Pairs or fours that begin at `at`. All are asked for at once, and then again those that were not there.
    template <class Some, int N>
    __device__ void read(const int (&at)[N], Some (&some)[N]) const {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            load(numbers + at[i], some[i]);
        }
        for (bool all = !FLAGS; !all;) {
            all = true;
#pragma unroll
            for (int i = 0; i < N; ++i) {
                if (!is_there(some[i])) {
                    all = false;
                    load(numbers + at[i], some[i]);
                }
            }
        }
    }

    __device__ float2 read_pair(int at) const {
        int places[1] = {at};
        float2 pairs[1];
        read(places, pairs);
        return pairs[0];
    }

    // What says that it is not there must not be written.
    __device__ static float valid(float value) {
        return FLAGS && __float_as_uint(value) == NOT_YET ? __uint_as_float(0x7fffffff) : value;
    }

    __device__ void write(int at, float value) const {
        if (FLAGS) {
            asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(numbers + at), "f"(valid(value)) : "memory");
            asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(others + at), "r"(NOT_YET) : "memory");
        } else {
            numbers[at] = value;
        }
    }

    __device__ void write(int at, float2 pair) const {
        if (FLAGS) {
            write(at, pair.x), write(at + 1, pair.y);
        } else {
            *(float2 *)(numbers + at) = pair;
        }
    }
};
