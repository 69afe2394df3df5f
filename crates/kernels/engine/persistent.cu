// idea: one kernel for a token: its blocks stay and meet between phases, while their weights keep coming through the ring.
// constants: LLAMA, BITS, WIDTH, HEADS, KV_HEADS, HEAD, INNER, VOCABULARY; THREADS, SLOT_STEPS, SPLITS, HEADS_EACH, CLUSTER, MERGED, OWN_CODE; CLOCKS, WITHOUT.
//
// LLAMA 1: RMS norm, RoPE, SwiGLU; 0: GPT-2. BITS of a weight. THREADS compute, a warp more asks for SLOT_STEPS steps at a
// time. Attention takes a part of the context (of SPLITS) for HEADS_EACH heads. All blocks must
// run at the same time: a cooperative launch makes sure of that. To see where the time goes: with CLOCKS 1 each block writes down
// when a phase begins (0), when all others have ended the one before (1), when x is there (2), when its own part is done
// (3), all in cycles, and how many of these it waited for weights (4); and parts can be left out (WITHOUT).
#include "phases.cuh"

// Where blocks meet between phases. `arrived` counts on from one phase to the next.
struct Meeting {
    static constexpr bool NONE = WITHOUT & MEETINGS;
    unsigned int *arrived;

    // What this block has written in its phase is done.
    __device__ void arrive() const {
        if (NONE) {
            return;
        }
        consumers_sync();
        if (threadIdx.x == 0) {
            asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived) : "memory");
        }
    }

    // What all blocks have written in so many phases can be seen.
    __device__ void wait(int phases) const {
        if (NONE) {
            return;
        }
        if (threadIdx.x == 0) {
            unsigned int seen;
            do {
                asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
            } while (seen < phases * gridDim.x);
        }
        consumers_sync();
    }
};

// The norms and biases of a layer come into the L2 cache, by one block for all.
__device__ void prefetch(const float *vectors, int layer, int layers) {
    if (blockIdx.x == layer % gridDim.x) {
        const float *from = vectors + (size_t)layer * Vectors::ALL;
        int bytes = 4 * (layer < layers ? Vectors::ALL : Vectors::NORM);
        asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
    }
}

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1)
    persistent(const unsigned char *weights, const float *vectors, const bf16 *table, const bf16 *positions,
               const float *angles, bf16 *caches, int *tokens, int *state, float *work, float *y,
               unsigned long long *best, unsigned int *arrived, unsigned long long *clocks, Launch launch) {
    extern __shared__ __align__(128) char memory[];
    __shared__ Shared shared;
    begin_block(shared);
    Ring ring(memory, shared.barriers, shared.shares, launch);
    Model model = {(const char *)weights, vectors, table, positions, caches, Work(work),
                   state, launch.layers, launch.context, state[0]};
    int phases = PHASES * launch.layers + 1;
    if (threadIdx.x >= THREADS) {
        if (threadIdx.x == THREADS) {
            prefetch(vectors, 0, launch.layers);
#pragma unroll 1
            for (int number = 0; number < phases; ++number) {
                int layer = number / PHASES, phase = layer == launch.layers ? LOGITS : phase_at(number % PHASES);
                ring.send(model.weights, caches, layer, phase, model.now, launch.context);
                if (number % PHASES == 0) {
                    prefetch(vectors, layer + 1, launch.layers);
                }
            }
        }
        return;
    }
    load_angles(shared, angles, model.now);
    Meeting meeting = {arrived};
    int times = 0;
#pragma unroll 1
    for (int number = 0; number < phases; ++number) {
        auto await = [&] {
            shared.clock(0);
            meeting.wait(number);
            shared.clock(1);
        };
        if (CLOCKS && threadIdx.x == 0) {
            shared.clocks = clocks + (number * gridDim.x + blockIdx.x) * 5;
            ring.waited = 0;
        }
        int layer = number / PHASES, phase = layer == launch.layers ? LOGITS : phase_at(number % PHASES);
        run_phase(model, ring, shared, layer, phase, times, y, best, await);
        shared.clock(3);
        if (CLOCKS && threadIdx.x == 0) {
            shared.clocks[4] = ring.waited;
        }
        if (phase == LOGITS) {
            return end_token(model, shared, tokens, state, best, arrived);
        }
        meeting.arrive();
    }
}
