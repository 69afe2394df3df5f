// Barriers, pipelines and atomics of libcu++.
#include <cuda/barrier>
#include <cuda/pipeline>
#include <cuda/atomic>
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
namespace cg = cooperative_groups;
extern "C" __global__ void barriers(const int* in, int* out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int s[64];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    s[threadIdx.x] = in[threadIdx.x];
    auto token = bar.arrive();
    bar.wait(std::move(token));
    int x = s[63 - threadIdx.x];
    bar.arrive_and_wait();
    s[threadIdx.x] = 2 * x;
    bar.arrive_and_wait();
    out[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void async_copy(const int* in, int* out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ alignas(16) int s[64];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    cuda::memcpy_async(&s[threadIdx.x], &in[threadIdx.x], sizeof(int), bar);
    bar.arrive_and_wait();
    out[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void cg_async(const int* in, int* out) {
    __shared__ alignas(16) int s[64];
    auto block = cg::this_thread_block();
    cg::memcpy_async(block, s, in, sizeof(int) * 64);
    cg::wait(block);
    out[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void pipe(const int* in, int* out) {
    __shared__ int s[2][64];
    auto p = cuda::make_pipeline();
    p.producer_acquire(); cuda::memcpy_async(&s[0][threadIdx.x], &in[threadIdx.x], sizeof(int), p); p.producer_commit();
    p.producer_acquire(); cuda::memcpy_async(&s[1][threadIdx.x], &in[64 + threadIdx.x], sizeof(int), p); p.producer_commit();
    p.consumer_wait(); __syncthreads();
    int x = s[0][threadIdx.x ^ 1]; p.consumer_release();
    p.consumer_wait(); __syncthreads();
    out[threadIdx.x] = x + s[1][threadIdx.x ^ 2]; p.consumer_release();
}
extern "C" __global__ void atomics_std(int* out, float* f) {
    cuda::atomic_ref<int, cuda::thread_scope_device> a(*out);
    a.fetch_add(1, cuda::memory_order_relaxed);
    cuda::atomic_ref<float, cuda::thread_scope_block> b(*f);
    b.fetch_add(1.0f);
    a.fetch_max(a.load() , cuda::memory_order_acq_rel);
}
