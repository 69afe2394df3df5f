// What both rungs do with a block of a (SIDE × SIDE) and the rows of b that meet it, TILE_N columns of them. Four warps: two
// halves of the rows, two of the columns.
#pragma once
#include "../matmul_bf16/ampere.cuh"

// Rows in shared memory are 16 bytes longer: the eight rows of an 8 × 8 matrix then lie in different banks.
constexpr int A_PITCH = SIDE + 8, B_PITCH = TILE_N + 8;

struct Tiles {
    bf16 a[SIDE * A_PITCH];
    bf16 b[SIDE * B_PITCH];
};

// Begins the copies of block `at`, whose columns begin at `k0`, and of its rows of b.
__device__ void load(Tiles &to, const bf16 *blocks, const bf16 *b, int at, int k0, int column0, int columns, int width) {
    int row = threadIdx.x / (SIDE / 8), piece = threadIdx.x % (SIDE / 8) * 8;
    copy_8<SIDE, 128 * 8 / SIDE, A_PITCH>(to.a + row * A_PITCH + piece,
                                          blocks + (size_t)at * SIDE * SIDE + row * SIDE + piece, SIDE, SIDE, SIDE);
    int b_row = threadIdx.x / (TILE_N / 8), b_piece = threadIdx.x % (TILE_N / 8) * 8;
    copy_8<SIDE, 128 * 8 / TILE_N, B_PITCH>(to.b + b_row * B_PITCH + b_piece,
                                            b + (size_t)(k0 + b_row) * width + column0 + b_piece, width,
                                            columns - k0 - b_row, width - column0 - b_piece);
}

// A warp's 16 rows and TILE_N / 2 columns of the block's product, added to its sums.
__device__ void multiply_tiles(float (&sum)[TILE_N / 16][4], const Tiles &tiles) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < SIDE; k += 16) {
        u32 a_part[4];
        load_matrices(a_part, tiles.a + (warp / 2 * 16 + lane % 16) * A_PITCH + k + lane / 16 * 8);
#pragma unroll
        for (int x = 0; x < TILE_N / 32; ++x) {
            u32 b_part[4];
            int column = warp % 2 * (TILE_N / 2) + x * 16 + lane / 16 * 8;
            load_transposed(b_part, tiles.b + (k + lane % 16) * B_PITCH + column);
            multiply(sum[2 * x], a_part, b_part[0], b_part[1]);
            multiply(sum[2 * x + 1], a_part, b_part[2], b_part[3]);
        }
    }
}

__device__ void store(bf16 *c, const float (&sum)[TILE_N / 16][4], int rows, int width) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row = blockIdx.y * SIDE + warp / 2 * 16 + lane / 4;
    for (int x = 0; x < TILE_N / 16; ++x) {
        int column = blockIdx.x * TILE_N + warp % 2 * (TILE_N / 2) + x * 8 + lane % 4 * 2;
        store_2(c, row, column, rows, width, sum[x][0], sum[x][1]);
        store_2(c, row + 8, column, rows, width, sum[x][2], sum[x][3]);
    }
}
