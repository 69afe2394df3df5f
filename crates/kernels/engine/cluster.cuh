// Blocks of a cluster run at the same time, and write into each other's shared memory.
#pragma once
#include "rows.cuh"

// Where a variable in this block's shared memory lies in that of another block of the cluster.
__device__ u32 in_block(const void *own, int rank) {
    u32 there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(own)), "r"(rank));
    return there;
}

__device__ void store_in_block(float *own, int rank, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(in_block(own, rank)), "f"(value) : "memory");
}

__device__ void store_in_block(bf16 *own, int rank, bf16 value) {
    asm volatile("st.shared::cluster.b16 [%0], %1;" ::"r"(in_block(own, rank)), "h"(__bfloat16_as_ushort(value))
                 : "memory");
}

// The consumers of all blocks of the cluster meet: behind it each sees what the others have written.
__device__ void meet(u64 *barrier, int parity) {
    consumers_sync();
    if (threadIdx.x < CLUSTER) {
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(in_block(barrier, threadIdx.x))
                     : "memory");
    }
    asm volatile("{ .reg .pred done;\n"
                 "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
                 "@!done bra again; }" ::"r"(shared_address(barrier)),
                 "r"(parity)
                 : "memory");
}
