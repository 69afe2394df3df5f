#include <cuda_fp16.h>
#include <cuda_bf16.h>
extern "C" __global__ void asserted(const int* x, int* out) {
    assert(x[threadIdx.x] >= 0);
    out[threadIdx.x] = x[threadIdx.x];
}
extern "C" __global__ void atomics(
    __half* h, __half2* h2, __nv_bfloat16* b, __nv_bfloat162* b2, float2* f2, float4* f4, unsigned short* w, float2* out) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    atomicAdd(h + i % 3, __float2half(1.5f));
    atomicAdd(h2, __floats2half2_rn(1, 2));
    atomicAdd(b, __float2bfloat16(1.0f));
    atomicAdd(b2, __floats2bfloat162_rn(1, 2));
    atomicAdd(f4, make_float4(1, 2, 3, 4));
    unsigned short old = *w, seen;
    do { seen = old; old = atomicCAS(w, seen, (unsigned short)(seen + 1)); } while (old != seen);
    out[i] = atomicAdd(f2, make_float2(1, 2));
}
