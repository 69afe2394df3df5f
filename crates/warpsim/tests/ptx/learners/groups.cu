// Cooperative groups and pipelines.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
namespace cg = cooperative_groups;
extern "C" __global__ void cg_sum(const int* in, int* out, int n) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    cg::grid_group grid = cg::this_grid();
    int s = 0;
    for (int i = grid.thread_rank(); i < n; i += grid.size()) s += in[i];
    s = cg::reduce(warp, s, cg::plus<int>());
    __shared__ int total;
    if (block.thread_rank() == 0) total = 0;
    block.sync();
    if (warp.thread_rank() == 0) atomicAdd(&total, s);
    cg::sync(block);
    if (block.thread_rank() == 0) atomicAdd(out, total);
}
extern "C" __global__ void cg_tiles(const float* in, float* out) {
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    float x = in[threadIdx.x];
    for (int o = tile.size() / 2; o > 0; o /= 2) x += tile.shfl_down(x, o);
    if (tile.thread_rank() == 0) out[threadIdx.x / 8] = x;
    float y = cg::inclusive_scan(tile, in[threadIdx.x]);
    out[32 + threadIdx.x] = y + tile.any(y > 1) + tile.meta_group_rank() + __popc(tile.ballot(y > 0));
}
extern "C" __global__ void cg_coalesced(const int* in, int* out, int* count) {
    if (in[threadIdx.x] > 0) {
        auto active = cg::coalesced_threads();
        int base = 0;
        if (active.thread_rank() == 0) base = atomicAdd(count, active.size());
        base = active.shfl(base, 0);
        out[base + active.thread_rank()] = in[threadIdx.x];
        active.sync();
    }
}
extern "C" __global__ void cg_labels(const int* in, int* out) {
    auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    auto same = cg::labeled_partition(warp, in[threadIdx.x] % 4);
    auto half = cg::binary_partition(warp, in[threadIdx.x] % 2 == 0);
    out[threadIdx.x] = same.size() * 100 + same.thread_rank() + half.size() * 10000 + cg::reduce(same, in[threadIdx.x], cg::greater<int>()) * 1000000;
}
#include <cuda_pipeline.h>
extern "C" __global__ void pipelined(const float* in, float* out, int tiles) {
    __shared__ float tile[2][64];
    __pipeline_memcpy_async(&tile[0][threadIdx.x], in + threadIdx.x, 4);
    __pipeline_commit();
    float s = 0;
    for (int t = 0; t < tiles; t++) {
        if (t + 1 < tiles) __pipeline_memcpy_async(&tile[(t + 1) & 1][threadIdx.x], in + (t + 1) * 64 + threadIdx.x, 4);
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        s += tile[t & 1][63 - threadIdx.x];
        __syncthreads();
    }
    out[threadIdx.x] = s;
}
