// What both products of attention share: a block computes TILE × TILE numbers, a thread EACH × EACH of them, from pieces
// of DEPTH in shared memory (lesson 12). Both pieces lie with the index that is summed over first.
#pragma once
#include "number.cuh"

#define EACH 4
#define SIDE (TILE / EACH)
// Rows are 4 longer than they must be: stores of a column then meet few banks twice, and float4 stay aligned.
typedef float Piece[DEPTH][TILE + 4];

// sums[i][j] += a[.][EACH * row + i] * b[.][column + SIDE * j], over the DEPTH numbers of the pieces. Rows of a thread lie
// side by side, so that one load brings all; columns lie SIDE apart, so that neighbouring threads store neighbours.
__device__ void add_products(float (&sums)[EACH][EACH], const Piece &a, const Piece &b, int row, int column) {
    for (int k = 0; k < DEPTH; ++k) {
        float4 a4 = *(const float4 *)&a[k][EACH * row];
        float x[EACH] = {a4.x, a4.y, a4.z, a4.w};
        for (int j = 0; j < EACH; ++j) {
            float y = b[k][column + SIDE * j];
            for (int i = 0; i < EACH; ++i) {
                sums[i][j] += x[i] * y;
            }
        }
    }
}
