// idea: one thread takes one row: its largest number, then the sum of exp(x - largest), then every quotient.
// changed: nothing, this is the first rung.
// constants: none; the block size is the launch's.
#include <cuda_bf16.h>
typedef __nv_bfloat16 bf16;

// Below every bf16, and finite: exp(-infinity - LOWEST) is 0, where -infinity - -infinity were no number.
const float LOWEST = -3.402823466e38f;

extern "C" __global__ void softmax(const bf16 *x, bf16 *y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    x += (size_t)row * columns;
    y += (size_t)row * columns;
    float most = LOWEST;
    for (int i = 0; i < columns; ++i) {
        most = fmaxf(most, float(x[i]));
    }
    // Without `most`, exp of a number above 88 is infinite. With it the largest number adds exp(0) = 1.
    float sum = 0.0f;
    for (int i = 0; i < columns; ++i) {
        sum += __expf(float(x[i]) - most);
    }
    float scale = 1.0f / sum;
    for (int i = 0; i < columns; ++i) {
        y[i] = __expf(float(x[i]) - most) * scale;
    }
}
