// Eight neighbours of a row of bf16 at a time. A row may begin and end anywhere, also in the middle of 16 bytes: the
// numbers there are loaded and stored one by one.
#pragma once
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// 16 bytes, which one instruction loads or stores. They stay in pairs, two in a register; `eight[i]` is one as a float.
struct __align__(16) Eight {
    unsigned int pairs[4];

    // A bf16 is the upper half of a float. Of a pair the first one lies in the lower half.
    __device__ float operator[](int i) const {
        return __uint_as_float(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xffff0000);
    }
};

// Eight floats, each times `scale`, rounded to bf16.
__device__ Eight rounded(const float (&numbers)[8], float scale = 1.0f) {
    Eight eight;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        __nv_bfloat162 pair = __floats2bfloat162_rn(numbers[2 * i] * scale, numbers[2 * i + 1] * scale);
        eight.pairs[i] = *(unsigned int *)&pair;
    }
    return eight;
}

// Whether all eight numbers from `at` on lie in the row, at a multiple of 16 bytes.
__device__ bool whole_8(const bf16 *row, int at, int columns) {
    return at >= 0 && at + 8 <= columns && (size_t)(row + at) % sizeof(Eight) == 0;
}

// One by one; outside the row stands `outside`. Few threads come here: the code is not repeated wherever it is called.
__device__ __noinline__ Eight load_one_by_one(const bf16 *row, int at, int columns, float outside) {
    float numbers[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        numbers[i] = at + i >= 0 && at + i < columns ? float(row[at + i]) : outside;
    }
    return rounded(numbers);
}

// The numbers of the row from `at` on.
__device__ Eight load_8(const bf16 *row, int at, int columns, float outside) {
    Eight eight;
    if (whole_8(row, at, columns)) {
        *(uint4 *)&eight = *(const uint4 *)(row + at);
    } else {
        eight = load_one_by_one(row, at, columns, outside);
    }
    return eight;
}

__device__ __noinline__ void store_one_by_one(bf16 *row, int at, int columns, Eight eight) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        if (at + i >= 0 && at + i < columns) {
            row[at + i] = eight[i];
        }
    }
}

// Stores those numbers that lie in the row.
__device__ void store_8(bf16 *row, int at, int columns, Eight eight) {
    if (whole_8(row, at, columns)) {
        *(uint4 *)(row + at) = *(uint4 *)&eight;
    } else {
        store_one_by_one(row, at, columns, eight);
    }
}

// ---- The same where all eights of the row are whole: its length, and where it begins, are multiples of eight numbers.
__device__ Eight load_whole_8(const bf16 *row, int at, int columns, float outside) {
    float nothing[8] = {outside, outside, outside, outside, outside, outside, outside, outside};
    Eight eight = rounded(nothing);
    if (at < columns) {
        *(uint4 *)&eight = *(const uint4 *)(row + at);
    }
    return eight;
}

// COUNT eights, `step` numbers apart. Nothing waits between the loads: they are all on their way at the same time.
template <int COUNT>
__device__ void load_whole_eights(Eight (&to)[COUNT], const bf16 *row, int first, int step, int columns,
                                  float outside) {
#pragma unroll
    for (int v = 0; v < COUNT; ++v) {
        to[v] = load_whole_8(row, first + v * step, columns, outside);
    }
}

__device__ void store_whole_8(bf16 *row, int at, int columns, Eight eight) {
    if (at < columns) {
        *(uint4 *)(row + at) = *(uint4 *)&eight;
    }
}
