// Stages of codes and of x in shared memory, as the rungs share them from the second on: where they lie, and how they come.
#pragma once
#include "fragments.cuh"

// Warps that have the same rows and share the columns.
#ifndef SPLIT
#define SPLIT 1
#endif
constexpr int THREADS = 32 * WARPS, ROWS = 16 * TILES * WARPS / SPLIT;
// Columns of a stage: two pieces of 64, which are two groups, or belong to one.
constexpr int STEP = 128, PARTS = GROUP < STEP ? 2 : 1;

// A step of x as two panels of 64 columns. The 16 bytes of column c lie at c ^ vector % 8: eight vectors' are in different
// banks, and the matrix units take it so, too.
typedef uint4 Panels[2][BATCH][8];

struct Stage {
    Panels x;
    uint4 codes[WARPS][TILES][2][32];
};

// Sixteen bytes that are not waited for; zeros where `there` is false.
__device__ void copy_16(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

// What a thread copies, stage by stage. A warp reads the codes that it has copied itself, x is everyone's.
struct Source {
    const uint4 *codes[TILES];
    const bf16 *x;
    int batch, columns;

    // `tile` is the warp's first one. Beyond the last tile the last one is read again, and its results dropped.
    __device__ Source(const u32 *fragments, const bf16 *x, int tile, int batch, int rows, int columns)
        : x(x + (size_t)(threadIdx.x / 16) * columns + threadIdx.x % 16 * 8), batch(batch), columns(columns) {
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            size_t pieces = (size_t)min(tile + t, (rows - 1) / 16) * (columns / 64);
            codes[t] = (const uint4 *)fragments + pieces * 32 + threadIdx.x % 32;
        }
    }

    __device__ void copy_codes(Stage &stage, int step) const {
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            bool there = PARTS == 1 || step * STEP + 64 * p < columns;
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                uint4 *to = &stage.codes[threadIdx.x / 32][t][p][threadIdx.x % 32];
                copy_16(to, codes[t] + (there ? (2 * step + p) * 32 : 0), there);
            }
        }
    }

    __device__ void copy_x(Panels &to, int step) const {
        int at = threadIdx.x % 16;
        bool inside = PARTS == 1 || step * STEP + at * 8 < columns;
#pragma unroll
        for (int first = 0; first < BATCH; first += THREADS / 16) {
            int vector = first + threadIdx.x / 16;
            bool there = vector < batch && inside;
            if (THREADS / 16 <= BATCH || vector < BATCH) {
                copy_16(&to[at / 8][vector][at % 8 ^ vector % 8], there ? x + (size_t)first * columns + step * STEP : x,
                        there);
            }
        }
    }
};

// The scales of a stage's groups for the rows that a lane has sums of, of the warp's tiles.
struct Scales {
    bf16 scale[PARTS][TILES][2];

    __device__ void load(const bf16 *scales, int step, int row, int rows, int columns) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            int group = min(PARTS == 1 ? step * STEP / GROUP : 2 * step + part, columns / GROUP - 1);
            const bf16 *of_group = scales + (size_t)group * rows;
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                scale[part][t][0] = of_group[min(row + 16 * t, rows - 1)];
                scale[part][t][1] = of_group[min(row + 16 * t + 8, rows - 1)];
            }
        }
    }
};
