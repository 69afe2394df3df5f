// idea: the product that any machine runs, to compare cuBLASLt's with, and in its place in the simulator: a number a thread.
// constants: none.
#include "rows.cuh"

// c (rows × columns) = a · b from those elements on, by rows; `a_turned`: a is stored as `terms` rows, `b_turned`: b as
// `columns` rows. From one stored row to the next are a_row, b_row and c_row numbers.
__device__ float product_of(const bf16 *a, const bf16 *b, int terms, int a_turned, int b_turned, int a_row, int b_row,
                            int row, int column) {
    float total = 0.0f;
    for (int k = 0; k < terms; ++k) {
        float left = a[a_turned ? (size_t)k * a_row + row : (size_t)row * a_row + k];
        float right = b[b_turned ? (size_t)column * b_row + k : (size_t)k * b_row + column];
        total += left * right;
    }
    return total;
}

extern "C" __global__ void product_bf16(const bf16 *a, const bf16 *b, bf16 *c, int a_at, int b_at, int c_at, int columns,
                                        int terms, int a_turned, int b_turned, int a_row, int b_row, int c_row) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y;
    if (column < columns) {
        c[c_at + (size_t)row * c_row + column] =
            product_of(a + a_at, b + b_at, terms, a_turned, b_turned, a_row, b_row, row, column);
    }
}

extern "C" __global__ void product_f32(const bf16 *a, const bf16 *b, float *c, int a_at, int b_at, int c_at, int columns,
                                       int terms, int a_turned, int b_turned, int a_row, int b_row, int c_row, int adds) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y;
    if (column < columns) {
        float *to = c + c_at + (size_t)row * c_row + column;
        float sum = product_of(a + a_at, b + b_at, terms, a_turned, b_turned, a_row, b_row, row, column);
        *to = adds ? *to + sum : sum;
    }
}
