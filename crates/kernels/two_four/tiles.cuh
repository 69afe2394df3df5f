// How a matrix lies in memory of whose four neighbours in a row (a group) at most two are not zero, for every kernel of this
// folder:
//
//   values    rows × columns / 2 bf16, row behind row: of each group two, in their order.
//   metadata  a word for 16 values: of each value two bits, its place in its group, the first value's lowest. The words are in
//             the order in which the lanes of a warp hand them to mma.sp: for each 16 rows, and in them for each 64 columns,
//             32 words. That of lane 4 · r + 2 · s + h has row r in its lower half and row r + 8 in its upper one, columns
//             32 · s + 16 · h to 32 · s + 16 · h + 15.
//
// Columns are filled up with zeros to a multiple of 64; the metadata's rows to a multiple of 16.
#pragma once
#include "../matmul_bf16/ampere.cuh"

// A block computes TILE × TILE of c, and each of its four warps a quarter; a step takes TILE columns of a.
constexpr int TILE = 64, B_PITCH = TILE + 8;

// Rows of b for this step, TILE columns of them.
__device__ void load_b(bf16 *to, const bf16 *b, int k0, int n, int k) {
    int row = threadIdx.x / 8, piece = threadIdx.x % 8 * 8, column0 = blockIdx.x * TILE;
    copy_8<TILE, 16, B_PITCH>(to + row * B_PITCH + piece, b + (size_t)(k0 + row) * n + column0 + piece, n, k - k0 - row,
                              n - column0 - piece);
}

// The words of this lane: of 16 rows from `row` on, of 64 columns from k0 on.
__device__ u32 places(const u32 *metadata, int row, int m, int k0, int padded) {
    return row < m ? metadata[((size_t)(row / 16) * (padded / 64) + k0 / 64) * 32 + threadIdx.x % 32] : 0x44444444;
}

__device__ void store(bf16 *c, const float (&sum)[2][4][4], int m, int n) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int y = 0; y < 2; ++y) {
        for (int x = 0; x < 4; ++x) {
            int row = blockIdx.y * TILE + warp / 2 * 32 + y * 16 + lane / 4;
            int column = blockIdx.x * TILE + warp % 2 * 32 + x * 8 + lane % 4 * 2;
            store_2(c, row, column, m, n, sum[y][x][0], sum[y][x][1]);
            store_2(c, row + 8, column, m, n, sum[y][x][2], sum[y][x][3]);
        }
    }
}
