// idea: S / √d, in place: each score is read, multiplied and written.
// constants: EACH scores per thread, one after the other: a load may not pass the store before it, which could be to its address.
#include "number.cuh"

extern "C" __global__ void scale(number *s, float factor, long long n) {
    // A thread's scores lie a block apart, so that neighbouring threads take neighbours.
    long long first = (long long)blockIdx.x * blockDim.x * EACH + threadIdx.x;
#pragma unroll
    for (int e = 0; e < EACH; ++e) {
        long long i = first + e * blockDim.x;
        if (i < n) {
            s[i] = number(float(s[i]) * factor);
        }
    }
}
