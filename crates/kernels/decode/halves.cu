// idea: two kernels a layer: attention by a cluster of blocks for each head, the MLP by blocks that own hidden units.
// constants: WIDTH, HIDDEN, HEAD (the head dimension); THREADS; SPLIT blocks per cluster; ROWS units per block; RESIDENT.
//
// Each half is one kernel because its blocks add to the residual: who owns inputs of a matrix needs no other block's.
// The sums are added by atomics, in any order, so their last bits may differ from step to step. RESIDENT blocks are to
// share a multiprocessor: those of the next half come while those of this one work. Each half brings the weights from
// `ahead` on into the L2 cache, so many `bytes`: halves to come find them there.
#include "attention.cuh"

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    attention_half(const bf16 *weights, const float *vectors, bf16 *caches, const int *position, float *residual,
                   int number, int context, long long ahead, int bytes) {
    extern __shared__ uint4 tiles[];
    __shared__ Attention::Shared shared;
    let_next_start();
    cluster_greet(); // a block must have started before others write into it
    Layer layer(weights, vectors, number);
    bf16 *cache = caches + (size_t)number * 2 * WIDTH * context;
    Attention attention;
    attention.head = blockIdx.x / cluster_blocks();
    attention.now = *position;
    attention.context = context;
    attention.fetch_all(layer, cache, tiles);
    prefetch(weights + ahead, bytes);
    wait_for_former();
    cluster_wait();
    Residual turn(residual, 2 * number);
    attention.finish(layer, cache, turn, tiles, shared);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    mlp_half(const bf16 *weights, const float *vectors, float *residual, int number, long long ahead, int bytes) {
    __shared__ Mlp::Shared shared;
    let_next_start();
    Layer layer(weights, vectors, number);
    Mlp mlp;
    mlp.first = blockIdx.x * ROWS;
    mlp.fetch_all(layer);
    prefetch(weights + ahead, bytes);
    wait_for_former();
    Residual turn(residual, 2 * number + 1);
    turn.zero_spare();
    mlp.finish(turn, shared);
}
