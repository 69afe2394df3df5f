// idea: a kernel for each phase: norm, RoPE, cache, activation and residual belong to the kernel that multiplies.
// constants: as those of `persistent`.
//
// With programmatic dependent launch the next kernel's weights come into its ring while this one still computes. Two
// blocks share a multiprocessor, so that those of the next kernel find room while these still work.
#include "phases.cuh"

extern "C" __global__ void __launch_bounds__(THREADS + 32, 2)
    phase(const unsigned char *weights, const float *vectors, const bf16 *table, const bf16 *positions,
          const float *angles, bf16 *caches, int *tokens, int *state, float *work, float *y, unsigned long long *best,
          unsigned int *arrived, Launch launch) {
    extern __shared__ __align__(128) char memory[];
    __shared__ Shared shared;
    let_next_start();
    begin_block(shared);
    Ring ring(memory, shared.barriers, shared.shares, launch);
    Model model = {(const char *)weights, vectors, table, positions, caches, Work(work),
                   state, launch.layers, launch.context, state[0]};
    if (threadIdx.x >= THREADS) {
        if (threadIdx.x == THREADS) {
            ring.send(model.weights, caches, launch.layer, launch.phase, model.now, launch.context);
        }
        // A thread that has ended lets the next kernel start, too.
        return;
    }
    auto await = [] { wait_for_former(); };
    if (launch.phase < OUT) {
        load_angles(shared, angles, model.now);
    }
    int times = 0;
    run_phase(model, ring, shared, launch.layer, launch.phase, times, y, best, await);
    if (launch.phase == LOGITS) {
        end_token(model, shared, tokens, state, best, arrived);
    }
}
