// What blocks of a cluster read of each other, for the rungs that split the columns.
#pragma once
#include "fragments.cuh"

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
