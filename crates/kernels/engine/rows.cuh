// Rows of weights times a vector, by the tensor cores.
//
// mma multiplies 16 × 16 by 16 × 8 numbers: sixteen rows of weights by a vector that fills one column of eight. Two columns
// are used: bf16 x is x rounded, and what rounding took off stands, again as bf16, in the second one. So x has 16 bits
// of mantissa, at no cost. The order of the columns of W does not matter to a sum, as long as x has the same: a lane
// takes 16 bytes as they lie in memory.
#pragma once
#include "ring.cuh"
#include "work.cuh"
#if BITS < 16
#include "../quantized_gemv/two_codes.cuh"
#endif

constexpr int MOST_COLUMNS = INNER > QUERY ? (INNER > WIDTH ? INNER : WIDTH) : (QUERY > WIDTH ? QUERY : WIDTH);
constexpr int GROUP_ROWS = 128; // rows whose sums wait in shared memory
constexpr int EIGHTS_16 = 16 / BITS;   // eights of x that go with 16 bytes of weights

struct Shared {
    // x as lanes read it: of each step and each eight of a lane, four lanes' eights, rounded, and then what that took off.
    union {
        alignas(16) bf16 x[2 * MOST_COLUMNS];
        float seen[GROUPED][WARPS][HEAD + 2]; // attention has no x
    };
    float x_sums[MOST_COLUMNS / STEP]; // of each step
    alignas(8) float sums[2][WARPS][GROUP_ROWS];
    float2 block[WARPS];
    float2 angles[HEAD / 2]; // cosine and sine, of the token's position
    u64 barriers[2][MOST_SLOTS];
    bool last;
};

// Four neighbours of x go to shared memory, or none; by whole warps, whose lanes have neighbouring fours.
__device__ void put(Shared &shared, int column, bool there, float4 four) {
    constexpr int LANES = STEP / 4; // that have a step
    if (BITS < 16) {
        float sum = there ? four.x + four.y + four.z + four.w : 0.0f;
        for (int distance = LANES / 2; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(0xffffffff, sum, distance);
        }
        if (there && column % STEP == 0) {
            shared.x_sums[column / STEP] = sum;
        }
    }
    if (!there) {
        return;
    }
    int step = column / STEP, inside = column % STEP;
    int lane = inside / (8 * EIGHTS_16), eight = inside / 8 % EIGHTS_16;
    bf16 *to = shared.x + ((step * EIGHTS_16 + eight) * 8 + lane) * 8 + column % 8;
    float rest[4] = {four.x, four.y, four.z, four.w};
#pragma unroll
    for (int part = 0; part < 2; ++part) {
        u32 first = pair(rest[0], rest[1]), second = pair(rest[2], rest[3]);
        *(uint2 *)(to + 32 * part) = make_uint2(first, second);
        rest[0] -= low(first), rest[1] -= high(first), rest[2] -= low(second), rest[3] -= high(second);
    }
}

// The numbers that `get` gives for four neighbouring columns become x.
template <int COLUMNS, class Get>
__device__ void put_all(Shared &shared, Get get) {
#pragma unroll
    for (int first = 0; first < COLUMNS; first += 4 * THREADS) {
        int column = first + 4 * threadIdx.x;
        bool there = column < COLUMNS;
        put(shared, column, there, there ? get(column) : make_float4(0, 0, 0, 0));
    }
    consumers_sync();
}

// This thread's fours of COLUMNS numbers from `begin` on: those at 4 · (i · THREADS + thread).
template <int COLUMNS>
struct Fours {
    static constexpr int COUNT = (COLUMNS / 4 + THREADS - 1) / THREADS;
    float4 four[COUNT];

    __device__ Fours(const Work &work, int begin, int writer) {
        int at[2 * COUNT];
        float2 pairs[2 * COUNT];
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            // Beyond the end the first four are read again, and dropped.
            at[2 * i] = begin + (is_there(i) ? column(i) : 4 * (int)(threadIdx.x % (COLUMNS / 4)));
            at[2 * i + 1] = at[2 * i] + 2;
        }
        work.read(at, pairs, writer);
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            four[i] = make_float4(pairs[2 * i].x, pairs[2 * i].y, pairs[2 * i + 1].x, pairs[2 * i + 1].y);
        }
    }

    __device__ static int column(int i) { return 4 * (i * THREADS + (int)threadIdx.x); }
    __device__ static bool is_there(int i) { return column(i) < COLUMNS; }
};

// sums[0] + sums[1] += row lane / 4 of a step times x, sums[2] + sums[3] += the row eight below; in every fourth lane.
// Beyond the tile's last row that one is read again, and its sum dropped.
__device__ void multiply_step(const char *stage, int number, int steps, int rows, const Shared &shared, int step,
                              float (&sums)[4]) {
    int lane = threadIdx.x % 32, above = min(lane / 4, rows - 1), below = min(lane / 4 + 8, rows - 1);
    const char *own = stage + (number * rows) * STEP_BYTES + lane % 4 * 16;
    uint4 upper = *(const uint4 *)(own + above * STEP_BYTES), lower = *(const uint4 *)(own + below * STEP_BYTES);
    uint4 x[EIGHTS_16];
#pragma unroll
    for (int eight = 0; eight < EIGHTS_16; ++eight) {
        // The first column of eight, and the second: lanes 0 to 3, and 4 to 7.
        x[eight] = make_uint4(0, 0, 0, 0);
        if (lane < 8) {
            x[eight] = *(const uint4 *)(shared.x + ((step * EIGHTS_16 + eight) * 8 + lane) * 8);
        }
    }
#if BITS == 16
    u32 first[4] = {upper.x, lower.x, upper.y, lower.y}, second[4] = {upper.z, lower.z, upper.w, lower.w};
    multiply(sums, first, x[0].x, x[0].y);
    multiply(sums, second, x[0].z, x[0].w);
#else
    u32 up[4] = {upper.x, upper.y, upper.z, upper.w}, down[4] = {lower.x, lower.y, lower.z, lower.w};
    float part[4] = {}, high_part[4] = {};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
        u32 a[4] = {two_codes<0>(up[w]), two_codes<0>(down[w]), two_codes<1>(up[w]), two_codes<1>(down[w])};
        u32 b[4] = {two_codes<2>(up[w]), two_codes<2>(down[w]), two_codes<3>(up[w]), two_codes<3>(down[w])};
#if BITS == 4
        uint4 eight = x[w];
        multiply(part, a, __byte_perm(eight.x, eight.z, 0x5410), __byte_perm(eight.x, eight.z, 0x7632));
        multiply(part, b, __byte_perm(eight.y, eight.w, 0x5410), __byte_perm(eight.y, eight.w, 0x7632));
#else
        u32 lower_halves[4] = {a[0], a[1], b[0], b[1]}, upper_halves[4] = {a[2], a[3], b[2], b[3]};
        u32 two = w % 2 == 0 ? x[w / 2].x : x[w / 2].z, more = w % 2 == 0 ? x[w / 2].y : x[w / 2].w;
        u32 even = __byte_perm(two, more, 0x5410), odd = __byte_perm(two, more, 0x7632);
        multiply(part, lower_halves, even, odd);
        multiply(high_part, upper_halves, even, odd);
#endif
    }
    // A code came as 24 + code; the lower half of a byte as 16 + it.
    const float LESS = BITS == 4 ? 24.0f : 16.0f + 16.0f * 24.0f;
    float less = LESS * shared.x_sums[step];
    const bf16 *scales = (const bf16 *)(stage + steps * rows * STEP_BYTES) + number;
    int pitch = (stage_bytes(steps) - steps * STEP_BYTES) / 2;
    sums[0] += (part[0] + part[1] + 16.0f * (high_part[0] + high_part[1]) - less) * (float)scales[above * pitch];
    sums[2] += (part[2] + part[3] + 16.0f * (high_part[2] + high_part[3]) - less) * (float)scales[below * pitch];
#endif
}

// This block's rows of a matrix times x. `before` is called with the first row of a pair as early as can be and may load
// what `finish` adds; `finish` gets it with the row and both sums.
template <int MATRIX, class Before, class Finish>
__device__ void multiply_rows(Ring &ring, Shared &shared, Share share, Before before, Finish finish) {
    constexpr int STEPS = steps_of(MATRIX);
    static_assert(THREADS >= GROUP_ROWS / 2, "a thread finishes one pair");
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, turn = 0;
#pragma unroll 1
    for (int group = 0; group < share.rows; group += GROUP_ROWS, turn ^= 1) {
        int many = min(GROUP_ROWS, share.rows - group), row = share.first + group + 2 * threadIdx.x;
        bool finishes = 2 * threadIdx.x < many;
        float2 kept = make_float2(0, 0);
        if (finishes) {
            kept = before(row, group == 0);
        }
#pragma unroll 1
        for (int tile = 0; tile < many; tile += TILE) {
            int rows = min(TILE, many - tile);
            float sums[4] = {};
            // Warps take turns along the rows.
#pragma unroll 1
            for (int first = 0; first < STEPS; first += SLOT_STEPS) {
                int steps = min(SLOT_STEPS, STEPS - first);
                const char *stage = ring.take();
#pragma unroll 1
                for (int step = (first + WARPS - 1 - warp) / WARPS * WARPS + warp; step < first + steps; step += WARPS) {
                    multiply_step(stage, step - first, steps, rows, shared, step, sums);
                }
                ring.release();
            }
            if (lane % 4 == 0) {
                shared.sums[turn][warp][tile + lane / 4] = sums[0] + sums[1];
                shared.sums[turn][warp][tile + lane / 4 + 8] = sums[2] + sums[3];
            }
        }
        consumers_sync();
        if (finishes) {
            float2 sum = make_float2(0, 0);
#pragma unroll
            for (int from = 0; from < WARPS; ++from) {
                float2 both = *(const float2 *)&shared.sums[turn][from][2 * threadIdx.x];
                sum.x += both.x, sum.y += both.y;
            }
            finish(row, sum, kept);
        }
    }
}
