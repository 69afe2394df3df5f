// idea: y = W · x with W in 4 or 8 bits: a thread for each row, which reads it byte by byte.
// changed: the first rung.
// constants: BITS of a code, GROUP columns that share a scale; from the table.
#include "codes.cuh"

extern "C" __global__ void quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows,
                                          int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) {
        return;
    }
    const signed char *bytes = (const signed char *)(codes + (size_t)row * (columns / CODES));
    float sum = 0.0f;
    for (int first = 0; first < columns; first += GROUP) {
        float part = 0.0f;
        for (int at = first; at < first + GROUP; at += 8 / BITS) {
            int byte = bytes[at * BITS / 8];
            if (BITS == 8) {
                part += byte * float(x[at]);
            } else {
                part += code(byte, 0) * float(x[at]) + (byte >> 4) * float(x[at + 1]);
            }
        }
        // The scale is the same for all of the group: it is multiplied once.
        sum += part * float(scales[(size_t)(first / GROUP) * rows + row]);
    }
    y[row] = sum;
}
