// idea: what is in flight no longer has to fit the registers: each lane has a ring of STAGES copies in shared memory.
// changed: cp.async fetches STAGES - 1 steps ahead, on into the next tile, as a block walks over tiles of 16 · TILES rows;
//          x and the scales come a step ahead. A lane reads only what it has fetched itself: nobody waits for others.
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
    __shared__ float shared[2][WARPS][16 * TILES];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint4(*ring)[2 * TILES][32] = (uint4(*)[2 * TILES][32])memory + warp * STAGES;
    int length = columns / CODES_16, tiles = (rows + 16 * TILES - 1) / (16 * TILES);
    // A warp that has no step of its own still takes part in each tile: it reads zeros.
    int steps = max((length + 3) / 4, warp + 1);
    auto fetch = [&](const Place &place, int stage) {
        if (place.tile < tiles) {
            int at = place.step * 4 + lane % 4;
#pragma unroll
            for (int r = 0; r < 2 * TILES; ++r) {
                int row = min(place.tile * 16 * TILES + 8 * r + lane / 4, rows - 1);
                copy_16(&ring[stage][r][lane], (const uint4 *)codes + (at < length ? (size_t)row * length + at : 0),
                        at < length);
            }
        }
        copies_commit();
    };
    auto load_beside = [&](const Place &place, int t, Beside &to) {
        if (place.tile < tiles) {
            to.load(scales, x, (place.tile * TILES + t) * 16 + lane / 4, place.step * 4 + lane % 4, rows, columns);
        }
    };
    Place ahead = {(int)blockIdx.x, warp, steps}, now = ahead, next = ahead;
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        fetch(ahead, stage);
        ahead.advance();
    }
    Beside beside[TILES], coming[TILES];
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
        load_beside(now, t, beside[t]);
    }
    int stage = 0, turn = 0;
    float sums[TILES][2] = {};
    while (now.tile < tiles) {
        next.advance();
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            load_beside(next, t, coming[t]);
        }
        copies_wait<STAGES - 2>();
        uint4 words[2 * TILES];
#pragma unroll
        for (int r = 0; r < 2 * TILES; ++r) {
            words[r] = ring[stage][r][lane];
        }
        // Into the stage that was read a step ago.
        fetch(ahead, stage == 0 ? STAGES - 1 : stage - 1);
        ahead.advance();
        stage = stage == STAGES - 1 ? 0 : stage + 1;
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            multiply_step(words[2 * t], words[2 * t + 1], beside[t], sums[t]);
        }
        // In a loop of its own: in the one above, NVRTC 13.0 takes beside[1] for never written.
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            beside[t] = coming[t];
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
