// What the norm computes with eight bf16 at once, packed in the 16 bytes of a uint4.
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

__device__ unsigned int add(unsigned int a, unsigned int b) { return both(low(a) + low(b), high(a) + high(b)); }
__device__ float square(unsigned int two) { return low(two) * low(two) + high(two) * high(two); }
__device__ unsigned int norm(unsigned int two, float scale, unsigned int weight) {
    return both(low(two) * scale * low(weight), high(two) * scale * high(weight));
}

__device__ uint4 add(uint4 a, uint4 b) {
    return make_uint4(add(a.x, b.x), add(a.y, b.y), add(a.z, b.z), add(a.w, b.w));
}

__device__ float square(uint4 a) { return (square(a.x) + square(a.y)) + (square(a.z) + square(a.w)); }
__device__ uint4 norm(uint4 a, float scale, uint4 b) {
    return make_uint4(norm(a.x, scale, b.x), norm(a.y, scale, b.y), norm(a.z, scale, b.z), norm(a.w, scale, b.w));
}
