// idea: what is in flight no longer has to fit the registers: each lane has a ring of STAGES copies in shared memory.
// changed: cp.async, STAGES - 1 steps ahead and on into the next tile. A lane reads only what it has copied itself.
// constants: as before (without DEPTH), and STAGES, TILES, BLOCKS for each multiprocessor.
#include "tensor.cuh"

// Where a warp is: the tile, and the step along its rows.
struct Place {
    int tile, step, steps;

    __device__ void advance() {
        step += WARPS;
        if (step >= steps) {
            step = threadIdx.x / 32;
            tile += gridDim.x;
        }
    }
};

// Sixteen bytes that are not waited for; zeros where `there` is false.
__device__ void copy_16(uint4 *to, const uint4 *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    quantized_gemv(const u32 *codes, const bf16 *scales, const bf16 *x, bf16 *y, int rows, int columns) {
    extern __shared__ __align__(128) unsigned char memory[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint4(*ring)[2 * TILES][32] = (uint4(*)[2 * TILES][32])memory + warp * STAGES;
    // Behind the rings: two turns of the warps' sums.
    auto shared = (float(*)[WARPS][16 * TILES])((uint4(*)[2 * TILES][32])memory + WARPS * STAGES);
    int length = columns / CODES_16, tiles = (rows + 16 * TILES - 1) / (16 * TILES);
    // A warp that has no step of its own still takes part in each tile, and does nothing.
    int all_steps = (length + 3) / 4, steps = max(all_steps, warp + 1);
    auto there = [&](const Place &place) { return place.tile < tiles && place.step < all_steps; };
    auto fetch = [&](const Place &place, int stage) {
        if (there(place)) {
            int at = place.step * 4 + lane % 4;
            bool inside = PARTS == 1 || at < length;
#pragma unroll
            for (int r = 0; r < 2 * TILES; ++r) {
                int row = min(place.tile * 16 * TILES + 8 * r + lane / 4, rows - 1);
                // Counted in 16 bytes, 32 bits are enough.
                copy_16(&ring[stage][r][lane], (const uint4 *)codes + (inside ? (u32)row * length + at : 0), inside);
            }
        }
        copies_commit();
    };
    auto load_beside = [&](const Place &place, Vector &vector, Scales (&scale)[TILES]) {
        if (there(place)) {
            vector.load(x, place.step * 4 + lane % 4, length);
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                scale[t].load(scales, place.step, (place.tile * TILES + t) * 16 + lane / 4, rows, columns);
            }
        }
    };
    Place ahead = {(int)blockIdx.x, warp, steps}, now = ahead, next = ahead;
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        fetch(ahead, stage);
        ahead.advance();
    }
    Vector vector, next_vector;
    Scales scale[TILES], next_scale[TILES];
    load_beside(now, vector, scale);
    int stage = 0, turn = 0;
    float sums[TILES][2] = {};
    while (now.tile < tiles) {
        next.advance();
        load_beside(next, next_vector, next_scale);
        copies_wait<STAGES - 2>();
        uint4 words[2 * TILES];
        if (there(now)) {
#pragma unroll
            for (int r = 0; r < 2 * TILES; ++r) {
                words[r] = ring[stage][r][lane];
            }
        }
        // Into the stage that was read a step ago.
        fetch(ahead, stage == 0 ? STAGES - 1 : stage - 1);
        ahead.advance();
        stage = stage == STAGES - 1 ? 0 : stage + 1;
        if (there(now)) {
            multiply_step(words, vector, scale, sums);
        }
        vector = next_vector;
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            scale[t] = next_scale[t];
        }
        if (next.tile != now.tile) {
            // The warps' sums meet; the next tile's go elsewhere, so one barrier is enough.
#pragma unroll
            for (int r = 0; r < 2 * TILES; ++r) {
                if (lane % 4 == 0) {
                    shared[turn][warp][8 * r + lane / 4] = sums[r / 2][r % 2];
                }
                sums[r / 2][r % 2] = 0.0f;
            }
            __syncthreads();
            int row = now.tile * 16 * TILES + threadIdx.x;
            if (threadIdx.x < 16 * TILES && row < rows) {
                float sum = 0.0f;
                for (int from = 0; from < WARPS; ++from) {
                    sum += shared[turn][from][threadIdx.x];
                }
                y[row] = sum;
            }
            turn ^= 1;
        }
        now = next;
    }
}
