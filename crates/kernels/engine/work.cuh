// What phases leave for each other: numbers in global memory.
#pragma once
#include "shape.cuh"

// The residual, three times; queries, keys and values of the token; the MLP's units; of each head and part of the context
// what attention has gathered, then its largest score and the sum of its weights.
constexpr int RESIDUAL = 0, QUERIES = 3 * WIDTH, UNITS = QUERIES + QUERY + 2 * KEYS, GATHERED = UNITS + INNER,
              WEIGHED = GATHERED + HEADS * SPLITS * HEAD, NUMBERS = WEIGHED + 2 * HEADS * SPLITS;

// With TURNS a number says itself when it is there, and blocks need no other sign: its last bit is the turn's, which goes from
// 0 to 1 and back with each layer. Nothing is written before all that read the number before it are done: each of them has
// left something that this block has needed since. A number has one thread that writes it, in all layers.
static_assert(!TURNS || ADDING == 0, "sums of several blocks have no turn");

// A phase that adds to the residual reads one of the three, adds to the next, and clears the last, to which the next such
// phase adds: `turn` counts them.
__device__ constexpr int residual_of(int turn) {
    return RESIDUAL + turn % 3 * WIDTH;
}

struct Work {
    float *numbers;
    u32 turn; // 0 or 1

    __device__ Work(float *all, int position = 0, int layers = 0, int layer = 0)
        : numbers(all), turn((position * layers + layer) & 1) {}

    // As the next layer has it.
    __device__ Work next() const {
        Work work = *this;
        work.turn ^= 1;
        return work;
    }

    __device__ void add(int at, float value) const { atomicAdd(numbers + at, value); }

    // By all blocks, behind the wait.
    __device__ void clear_residual(int turn) const {
        for (int i = blockIdx.x * THREADS + threadIdx.x; i < WIDTH; i += blocks() * THREADS) {
            write(residual_of(turn) + i, 0.0f);
        }
    }

    // By one block, in front of a text: none of the numbers is there.
    __device__ void clear() const {
        for (int i = threadIdx.x; TURNS && i < NUMBERS; i += THREADS) {
            numbers[i] = __uint_as_float(turn ^ 1);
        }
        __syncthreads();
    }

    // From the L2 cache: other multiprocessors have just written them.
    __device__ static void load(const float *from, float4 &four) {
        if (TURNS) {
            asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(four.x), "=f"(four.y), "=f"(four.z), "=f"(four.w)
                         : "l"(from)
                         : "memory");
        } else {
            four = __ldcg((const float4 *)from);
        }
    }
    __device__ static void load(const float *from, float2 &pair) {
        if (TURNS) {
            asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(pair.x), "=f"(pair.y) : "l"(from) : "memory");
        } else {
            pair = __ldcg((const float2 *)from);
        }
    }
    __device__ bool is_there(float2 pair) const {
        return ((__float_as_uint(pair.x) ^ turn) & 1) == 0 && ((__float_as_uint(pair.y) ^ turn) & 1) == 0;
    }
    __device__ bool is_there(float4 four) const {
        return is_there(make_float2(four.x, four.y)) && is_there(make_float2(four.z, four.w));
    }

    // Pairs or fours that begin at `at`. All are asked for at once, and then again those that were not there.
    template <class Some, int N>
    __device__ void read(const int (&at)[N], Some (&some)[N]) const {
#pragma unroll
        for (int i = 0; i < N; ++i) {
            load(numbers + at[i], some[i]);
        }
        for (bool all = !TURNS; !all;) {
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

    __device__ float with_turn(float value) const {
        return __uint_as_float((__float_as_uint(value) & ~1u) | turn);
    }

    __device__ void write(int at, float value) const {
        if (TURNS) {
            asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(numbers + at), "f"(with_turn(value)) : "memory");
        } else {
            numbers[at] = value;
        }
    }

    __device__ void write(int at, float2 pair) const {
        if (TURNS) {
            write(at, pair.x), write(at + 1, pair.y);
        } else {
            *(float2 *)(numbers + at) = pair;
        }
    }
};
