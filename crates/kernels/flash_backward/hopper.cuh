// The products of warpgroups that the backward pass takes beside those of the forward pass. PTX ISA: "wgmma".
#pragma once
#include "../flash_attention/wgmma.cuh"

// s (64 × 64) = a (64 × 16, rows along the head) · b (64 × 16, rows along the head), or added to it. Starts the product and
// returns: s is not to be touched before wgmma_wait. So do the others.
__device__ __forceinline__ void multiply(float (&s)[8][4], u64 a, u64 b, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGISTERS_32 "}, %32, %33, p, 1, 1, 0, 0; }"
        : SUMS_16(s, 0), SUMS_16(s, 2), SUMS_16(s, 4), SUMS_16(s, 6)
        : "l"(a), "l"(b), "r"(add));
}

// s (64 × 64) = aᵀ · b, or added to it, of a and b 16 rows of 64 numbers each.
__device__ __forceinline__ void multiply_columns(float (&s)[8][4], u64 a, u64 b, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGISTERS_32 "}, %32, %33, p, 1, 1, 1, 1; }"
        : SUMS_16(s, 0), SUMS_16(s, 2), SUMS_16(s, 4), SUMS_16(s, 6)
        : "l"(a), "l"(b), "r"(add));
}

// s (64 × 32).
__device__ __forceinline__ void multiply_columns(float (&s)[4][4], u64 a, u64 b, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10,"
                 " %11, %12, %13, %14, %15}, %16, %17, p, 1, 1, 1, 1; }"
        : SUMS_16(s, 0), SUMS_16(s, 2)
        : "l"(a), "l"(b), "r"(add));
}

// The TMA on a plain run of bytes, a multiple of 16.
__device__ __forceinline__ void bulk_load(void *to, const void *from, int bytes, u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// All threads of both warpgroups that compute.
__device__ __forceinline__ void consumers_sync() {
    asm volatile("bar.sync 1, 256;" ::: "memory");
}
