// idea: a token's numbers are cut into heads, and put together again: copies from one order of the array to another.
// constants: none; a thread a number.
#include "number.cuh"

// x [batch, length, heads, width] to y [batch, heads, length, width].
extern "C" __global__ void split_heads(const number *x, number *y, int heads, int length, int width, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        long long row = i / width, d = i % width;
        long long token = row % length, head = row / length % heads, sequence = row / length / heads;
        y[i] = x[((sequence * length + token) * heads + head) * width + d];
    }
}

// x [batch, heads, length, width] to y [batch, length, heads, width].
extern "C" __global__ void merge_heads(const number *x, number *y, int heads, int length, int width, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        long long row = i / width, d = i % width;
        long long head = row % heads, token = row / heads % length, sequence = row / heads / length;
        y[i] = x[((sequence * heads + head) * length + token) * width + d];
    }
}
