// What both products of attention in bf16 share: a block computes TILE × TILE numbers on tensor cores, with sums in f32, from
// pieces of DEPTH in shared memory (lesson 12). Its warps stand in two rows; each computes a piece of WARP_M × WARP_N.
#pragma once
#include <cuda_bf16.h>
#include <mma.h>

typedef __nv_bfloat16 number;
using namespace nvcuda::wmma;

#define COLUMNS_OF_WARPS (THREADS / 64)
#define WARP_M (TILE / 2)
#define WARP_N (TILE / COLUMNS_OF_WARPS)
// Tensor cores multiply 16 × 16 at a time.
#define PARTS_M (WARP_M / 16)
#define PARTS_N (WARP_N / 16)
typedef fragment<accumulator, 16, 16, 16, float> Sums[PARTS_M][PARTS_N];

// Where this warp's piece begins.
#define WARP_ROW (threadIdx.x / 32 / COLUMNS_OF_WARPS * WARP_M)
#define WARP_COLUMN (threadIdx.x / 32 % COLUMNS_OF_WARPS * WARP_N)

__device__ void clear(Sums &sums) {
    for (int i = 0; i < PARTS_M; ++i) {
        for (int j = 0; j < PARTS_N; ++j) {
            fill_fragment(sums[i][j], 0.0f);
        }
    }
}

// ROWS × COLUMNS numbers of a matrix of `rows` × `columns`, from (row0, column0) on, to shared memory with rows of `wide`.
// Beyond the matrix stand zeros, which add nothing.
template <int ROWS, int COLUMNS>
__device__ void load(number *to, int wide, const number *from, int rows, int columns, int row0, int column0) {
#pragma unroll
    for (int at = threadIdx.x; at < ROWS * COLUMNS / 8; at += THREADS) {
        int row = at / (COLUMNS / 8), column = at % (COLUMNS / 8) * 8;
        number *place = to + row * wide + column;
        const number *source = from + (size_t)(row0 + row) * columns + column0 + column;
        if (columns % 8 == 0) {
            // Eight numbers lie inside together, or outside together, at a multiple of 16 bytes.
            bool inside = row0 + row < rows && column0 + column < columns;
            *(uint4 *)place = inside ? *(const uint4 *)source : make_uint4(0, 0, 0, 0);
        } else {
            for (int i = 0; i < 8; ++i) {
                bool inside = row0 + row < rows && column0 + column + i < columns;
                place[i] = inside ? source[i] : number(0.0f);
            }
        }
    }
}

// Adds the products of a, TILE rows of DEPTH, and b: DEPTH rows of TILE, or where BY_COLUMNS, TILE rows of DEPTH.
template <bool BY_COLUMNS, typename Layout>
__device__ void add_products(Sums &sums, const number *a, int a_wide, const number *b, int b_wide) {
    for (int k = 0; k < DEPTH; k += 16) {
        fragment<matrix_b, 16, 16, 16, number, Layout> y[PARTS_N];
        for (int j = 0; j < PARTS_N; ++j) {
            int at = WARP_COLUMN + 16 * j;
            load_matrix_sync(y[j], BY_COLUMNS ? b + at * b_wide + k : b + k * b_wide + at, b_wide);
        }
        for (int i = 0; i < PARTS_M; ++i) {
            fragment<matrix_a, 16, 16, 16, number, row_major> x;
            load_matrix_sync(x, a + (WARP_ROW + 16 * i) * a_wide + k, a_wide);
            for (int j = 0; j < PARTS_N; ++j) {
                mma_sync(sums[i][j], x, y[j], sums[i][j]);
            }
        }
    }
}

// The sums as bf16 to a matrix of `rows` × `columns`, from (row0, column0) on. Which lane holds which sum of a part is the
// hardware's matter, so each part goes through shared memory; then a lane takes half of a row of 16.
__device__ void store(Sums &sums, number *to, int rows, int columns, int row0, int column0) {
    __shared__ __align__(32) float staged[THREADS / 32][16 * 16];
    float *own = staged[threadIdx.x / 32];
    int lane = threadIdx.x % 32;
    for (int i = 0; i < PARTS_M; ++i) {
        for (int j = 0; j < PARTS_N; ++j) {
            store_matrix_sync(own, sums[i][j], 16, mem_row_major);
            __syncwarp();
            int row = row0 + WARP_ROW + 16 * i + lane / 2, column = column0 + WARP_COLUMN + 16 * j + lane % 2 * 8;
            number *place = to + (size_t)row * columns + column;
            __align__(16) number eight[8];
            for (int n = 0; n < 8; ++n) {
                eight[n] = number(own[lane * 8 + n]);
            }
            if (row < rows && columns % 8 == 0 && column < columns) {
                *(uint4 *)place = *(const uint4 *)eight;
            } else if (row < rows) {
                for (int n = 0; n < 8 && column + n < columns; ++n) {
                    place[n] = eight[n];
                }
            }
            __syncwarp();
        }
    }
}
