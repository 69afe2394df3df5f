// Pairs rotated eight at a time: the first numbers of eight pairs in one uint4, the second ones in another.
#pragma once
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;

// A bf16 is the upper half of a float.
__device__ float low(unsigned int two) { return __uint_as_float(two << 16); }
__device__ float high(unsigned int two) { return __uint_as_float(two & 0xffff0000); }

__device__ unsigned int both(float low, float high) {
    __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return *(unsigned int *)&two;
}

__device__ void rotate_two(unsigned int &first, unsigned int &second, const float *cosine, const float *sine) {
    float a0 = low(first), a1 = high(first), b0 = low(second), b1 = high(second);
    first = both(a0 * cosine[0] - b0 * sine[0], a1 * cosine[1] - b1 * sine[1]);
    second = both(b0 * cosine[0] + a0 * sine[0], b1 * cosine[1] + a1 * sine[1]);
}

__device__ void rotate_eight(uint4 &first, uint4 &second, const float *cosine, const float *sine) {
    rotate_two(first.x, second.x, cosine, sine);
    rotate_two(first.y, second.y, cosine + 2, sine + 2);
    rotate_two(first.z, second.z, cosine + 4, sine + 4);
    rotate_two(first.w, second.w, cosine + 6, sine + 6);
}
