#include <cuda_fp16.h>
#include <cuda_bf16.h>
// Shuffles, votes, matches: one row of 12 words a thread.
extern "C" __global__ void warp_ops(const int* in, unsigned int* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int x = i < n ? in[i] : -1;
    unsigned int* o = out + i * 12;
    const unsigned all = 0xffffffffu;
    o[0] = __shfl_sync(all, x, 5);
    o[1] = __shfl_up_sync(all, x, 3);
    o[2] = __shfl_down_sync(all, x, 7, 16);
    o[3] = __shfl_xor_sync(all, x, 9);
    o[4] = __ballot_sync(all, x & 1);
    o[5] = __any_sync(all, x == 3) + 2 * __all_sync(all, x < 1000);
    o[6] = __match_any_sync(all, x & 3);
    o[7] = (threadIdx.x & 4) ? __activemask() : 0;
    o[8] = __reduce_add_sync(all, x);
    o[9] = __reduce_max_sync(all, (unsigned)x);
    __syncwarp();
    o[10] = __syncthreads_count(x & 1);
    o[11] = __syncthreads_or(x == 12345);
}
extern "C" __global__ void halves(const __half* a, const __half* b, __half* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __half* o = out + i * 8;
    o[0] = __hadd(a[i], b[i]);
    o[1] = __hmul(a[i], b[i]);
    o[2] = __hfma(a[i], b[i], a[i]);
    o[3] = __float2half(__half2float(a[i]) * 0.1f);
    o[4] = __hmax(a[i], b[i]);
    o[5] = __hgt(a[i], b[i]) ? a[i] : __hneg(b[i]);
    __half2 p = __hadd2(__halves2half2(a[i], b[i]), __float2half2_rn(0.5f));
    o[6] = __low2half(p);
    o[7] = __high2half(p);
}
extern "C" __global__ void bfloats(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    __nv_bfloat16* o = out + i * 4;
    o[0] = __hadd(a[i], b[i]);
    o[1] = __hmul(a[i], b[i]);
    o[2] = __hfma(a[i], b[i], a[i]);
    o[3] = __float2bfloat16(__bfloat162float(a[i]) * 0.1f);
}
