// What blocks of a cluster read of each other, for the rungs that split the columns.
#pragma once
#include "stages.cuh"

// A float of another block of the cluster.
__device__ float load_from(const float *own, int rank) {
    float number;
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %1, %2; ld.shared::cluster.f32 %0, [there]; }"
                 : "=f"(number)
                 : "r"((u32)__cvta_generic_to_shared(own)), "r"(rank)
                 : "memory");
    return number;
}

// All threads of the cluster; what they wrote before can be seen behind it.
__device__ void cluster_meet() {
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}

// Adds up the blocks' sums of ROWS rows in a fixed order, by way of `shared`, which nobody may need any more. Each block adds
// up and writes the rows of its rank.
__device__ void finish(const Sums (&sums)[TILES], float *shared, bf16 *y, int row0, int batch, int rows) {
    constexpr int ACROSS = WARPS / SPLIT;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % CLUSTER;
    // BATCH × ROWS, in rows that are four numbers longer. Warps that share rows add one after the other.
#pragma unroll
    for (int group = 0; group < SPLIT; ++group) {
        if (warp / ACROSS == group) {
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
#pragma unroll
                for (int i = 0; i < 4 * EIGHTS; ++i) {
                    int vector = i / 4 * 8 + lane % 4 * 2 + i % 2;
                    int row = (warp % ACROSS * TILES + t) * 16 + lane / 4 + i % 4 / 2 * 8;
                    float *to = &shared[vector * (ROWS + 4) + row];
                    *to = group == 0 ? sums[t][i / 4][i % 4] : *to + sums[t][i / 4][i % 4];
                }
            }
        }
        if (group < SPLIT - 1) {
            __syncthreads();
        }
    }
    cluster_meet();
    constexpr int OWN = ROWS / CLUSTER;
    for (int i = threadIdx.x; i < BATCH * OWN; i += THREADS) {
        int vector = i / OWN, row = rank * OWN + i % OWN;
        float sum = 0.0f;
#pragma unroll
        for (int from = 0; from < CLUSTER; ++from) {
            sum += load_from(&shared[vector * (ROWS + 4) + row], from);
        }
        if (vector < batch && row0 + row < rows) {
            y[(size_t)vector * rows + row0 + row] = sum;
        }
    }
    // Nobody leaves while others read its sums.
    cluster_meet();
}
