// Products of a warpgroup, with one side in registers. PTX ISA: "wgmma".
#pragma once
#include "fragments.cuh"
#include "../matmul_bf16/hopper.cuh"

#define SUMS(s, e) "+f"(s[e][0]), "+f"(s[e][1]), "+f"(s[e][2]), "+f"(s[e][3])
#define SUMS_4(s, e) SUMS(s, e), SUMS(s, e + 1), SUMS(s, e + 2), SUMS(s, e + 3)

// part (64 × BATCH) = a (64 × 16, in registers) · xᵀ (16 × BATCH), or added to it. Starts the product and returns: part and
// a are not to be touched before wgmma_wait.
__device__ __forceinline__ void start(float (&s)[1][4], const u32 (&a)[4], u64 x, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %9, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1, 0; }"
                 : SUMS(s, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}
__device__ __forceinline__ void start(float (&s)[2][4], const u32 (&a)[4], u64 x, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %13, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7},"
                 " {%8, %9, %10, %11}, %12, p, 1, 1, 0; }"
                 : SUMS(s, 0), SUMS(s, 1)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}
__device__ __forceinline__ void start(float (&s)[4][4], const u32 (&a)[4], u64 x, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11,"
                 " %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, p, 1, 1, 0; }"
                 : SUMS_4(s, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}
__device__ __forceinline__ void start(float (&s)[8][4], const u32 (&a)[4], u64 x, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11,"
                 " %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31},"
                 " {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
                 : SUMS_4(s, 0), SUMS_4(s, 4)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}

// After wgmma_wait: the compiler is not to use what the registers held before.
__device__ __forceinline__ void arrived(Sums &s) {
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        asm volatile("" : SUMS(s, e)::"memory");
    }
}
