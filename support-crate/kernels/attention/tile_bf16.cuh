// What both products of attention in bf16 share: a block computes TILE × TILE numbers, each of its 4 warps a quarter on tensor
// cores, from pieces of DEPTH in shared memory, with sums in f32 (lesson 12).
#pragma once
#include <cuda_bf16.h>
#include <mma.h>

typedef __nv_bfloat16 number;
using namespace nvcuda::wmma;

#define THREADS 128
#define QUARTER (TILE / 2)
#define PARTS (QUARTER / 16)
typedef fragment<accumulator, 16, 16, 16, float> Part;

// ROWS × COLUMNS numbers of a matrix of `rows` × `columns`, from (row0, column0) on, to shared memory with rows of `wide`.
// Beyond the matrix stand zeros, which add nothing.
template <int ROWS, int COLUMNS>
__device__ void load(number *to, int wide, const number *from, int rows, int columns, int row0, int column0) {
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
__device__ void add_products(Part (&sums)[PARTS][PARTS], const number *a, int a_wide, const number *b, int b_wide) {
    int row = threadIdx.x / 64 * QUARTER, column = threadIdx.x / 32 % 2 * QUARTER;
    for (int k = 0; k < DEPTH; k += 16) {
        fragment<matrix_b, 16, 16, 16, number, Layout> y[PARTS];
        for (int j = 0; j < PARTS; ++j) {
            int at = column + 16 * j;
            load_matrix_sync(y[j], BY_COLUMNS ? b + at * b_wide + k : b + k * b_wide + at, b_wide);
        }
        for (int i = 0; i < PARTS; ++i) {
            fragment<matrix_a, 16, 16, 16, number, row_major> x;
            load_matrix_sync(x, a + (row + 16 * i) * a_wide + k, a_wide);
            for (int j = 0; j < PARTS; ++j) {
                mma_sync(sums[i][j], x, y[j], sums[i][j]);
            }
        }
    }
}

// The sums as bf16 to a matrix of `rows` × `columns`, from (row0, column0) on. Which lane holds which sum of a part is the
// hardware's matter, so each part goes through shared memory.
__device__ void store(Part (&sums)[PARTS][PARTS], number *to, int rows, int columns, int row0, int column0) {
    __shared__ __align__(32) float staged[THREADS / 32][16 * 16];
    float *own = staged[threadIdx.x / 32];
    row0 += threadIdx.x / 64 * QUARTER;
    column0 += threadIdx.x / 32 % 2 * QUARTER;
    for (int i = 0; i < PARTS; ++i) {
        for (int j = 0; j < PARTS; ++j) {
            store_matrix_sync(own, sums[i][j], 16, mem_row_major);
            __syncwarp();
            for (int at = threadIdx.x % 32; at < 16 * 16; at += 32) {
                int row = row0 + 16 * i + at / 16, column = column0 + 16 * j + at % 16;
                if (row < rows && column < columns) {
                    to[(size_t)row * columns + column] = number(own[at]);
                }
            }
            __syncwarp();
        }
    }
}

// No sums yet.
__device__ void clear(Part (&sums)[PARTS][PARTS]) {
    for (int i = 0; i < PARTS; ++i) {
        for (int j = 0; j < PARTS; ++j) {
            fill_fragment(sums[i][j], 0.0f);
        }
    }
}
