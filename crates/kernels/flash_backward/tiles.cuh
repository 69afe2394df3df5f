// Products of tiles by mma.sync, as the rungs before Hopper's take them: tiles lie in panels of 64 numbers a row, swizzled.
#pragma once
#include "../matmul_bf16/ampere.cuh"
#include "backward.cuh"

// Where 8 numbers of a panel lie: rows of 64 numbers, their eight pieces in an order that depends on the row.
__device__ __forceinline__ int swizzled(int row, int piece) {
    return row * 64 + (piece ^ row % 8) * 8;
}

// Fills a tile from rows of a head; beyond the last one stand zeros.
template <int SIZE>
__device__ __forceinline__ void fill(bf16 (&tile)[HEAD / 64][SIZE], const bf16 *from, int row0, int length) {
    for (int i = threadIdx.x; i < SIZE / 64 * HEAD / 8; i += blockDim.x) {
        int row = i / (HEAD / 8);
        int piece = i % (HEAD / 8);
        uint4 *to = (uint4 *)&tile[piece / 8][swizzled(row, piece % 8)];
        *to = row0 + row < length ? *(const uint4 *)&from[(size_t)(row0 + row) * HEAD + piece * 8] : uint4{};
    }
}

// s = own · otherᵀ: the 16 own rows of this warp against all N · 8 of the other tile.
template <int N, int SIZE>
__device__ __forceinline__ void multiply_tiles(float (&s)[N][4], const bf16 (&own)[HEAD / 64][SIZE],
                                               const bf16 (&other)[HEAD / 64][N * 8 * 64]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int x = 0; x < N; ++x) {
        s[x][0] = s[x][1] = s[x][2] = s[x][3] = 0.0f;
    }
#pragma unroll
    for (int part = 0; part < HEAD / 16; ++part) {
        u32 a[4];
        load_matrices(a, &own[part / 4][swizzled(threadIdx.x / 32 * 16 + lane % 16, part % 4 * 2 + lane / 16)]);
#pragma unroll
        for (int x = 0; x < N; x += 2) {
            u32 b[4];
            int row = x * 8 + lane / 16 * 8 + lane % 8;
            load_matrices(b, &other[part / 4][swizzled(row, part % 4 * 2 + lane / 8 % 2)]);
            multiply(s[x], a, b[0], b[1]);
            multiply(s[x + 1], a, b[2], b[3]);
        }
    }
}

// sum += weights · other, the weights rounded to bf16.
template <int N>
__device__ __forceinline__ void add_product(float (&sum)[HEAD / 8][4], const float (&weights)[N][4],
                                            const bf16 (&other)[HEAD / 64][N * 8 * 64]) {
    int lane = threadIdx.x % 32;
    u32 a[N / 2][4];
    pack(a, weights);
#pragma unroll
    for (int part = 0; part < N / 2; ++part) {
#pragma unroll
        for (int x = 0; x < HEAD / 8; x += 2) {
            u32 b[4];
            load_transposed(b, &other[x / 8][swizzled(part * 16 + lane % 16, x % 8 + lane / 16)]);
            multiply(sum[x], a[part], b[0], b[1]);
            multiply(sum[x + 1], a[part], b[2], b[3]);
        }
    }
}

// Writes the sums of this warp's rows, times a factor. `row`: the thread's first one.
__device__ __forceinline__ void store(bf16 *to, const float (&sum)[HEAD / 8][4], int row, int length, float factor) {
#pragma unroll
    for (int x = 0; x < HEAD / 8; ++x) {
        int column = x * 8 + threadIdx.x % 4 * 2;
        store_2(to, row, column, length, HEAD, sum[x][0] * factor, sum[x][1] * factor);
        store_2(to, row + 8, column, length, HEAD, sum[x][2] * factor, sum[x][3] * factor);
    }
}
