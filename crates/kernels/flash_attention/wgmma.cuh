// The products of warpgroups that attention takes, and tiles of a stack of matrices by the TMA. PTX ISA: "wgmma".
// A sum is s[x][i]: of columns 8x to 8x + 7 a thread holds two neighbours, of two rows eight apart.
#pragma once
#include "../matmul_bf16/hopper.cuh"

// Names of the registers that hold a sum, 8 columns each line.
#define REGISTERS_32 \
    "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
    ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define REGISTERS_64 REGISTERS_32 \
    ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
    ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define REGISTERS_88 REGISTERS_64 \
    ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79" \
    ", %80, %81, %82, %83, %84, %85, %86, %87"

#define SUMS_16(s, x) \
    "+f"(s[x][0]), "+f"(s[x][1]), "+f"(s[x][2]), "+f"(s[x][3]), "+f"(s[x + 1][0]), "+f"(s[x + 1][1]), "+f"(s[x + 1][2]), \
        "+f"(s[x + 1][3])

// s (64 × KEYS) = q (64 × 16, rows along the head) · k (KEYS × 16, rows along the head), or added to it. Starts the product
// and returns: s is not to be touched before wgmma_wait.
__device__ __forceinline__ void multiply(float (&s)[16][4], u64 q, u64 k, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %66, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGISTERS_64 "}, %64, %65, p, 1, 1, 0, 0; }"
        : SUMS_16(s, 0), SUMS_16(s, 2), SUMS_16(s, 4), SUMS_16(s, 6), SUMS_16(s, 8), SUMS_16(s, 10),
          SUMS_16(s, 12), SUMS_16(s, 14)
        : "l"(q), "l"(k), "r"(add));
}
__device__ __forceinline__ void multiply(float (&s)[22][4], u64 q, u64 k, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %90, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n176k16.f32.bf16.bf16 {" REGISTERS_88 "}, %88, %89, p, 1, 1, 0, 0; }"
        : SUMS_16(s, 0), SUMS_16(s, 2), SUMS_16(s, 4), SUMS_16(s, 6), SUMS_16(s, 8), SUMS_16(s, 10),
          SUMS_16(s, 12), SUMS_16(s, 14), SUMS_16(s, 16), SUMS_16(s, 18), SUMS_16(s, 20)
        : "l"(q), "l"(k), "r"(add));
}

// s (64 × HEAD) += p (64 × 16, in registers) · v (16 × HEAD, rows along the head).
__device__ __forceinline__ void multiply(float (&s)[8][4], const u32 (&p)[4], u64 v) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" REGISTERS_32 "}, {%32, %33, %34, %35},"
                 " %36, 1, 1, 1, 1;"
        : SUMS_16(s, 0), SUMS_16(s, 2), SUMS_16(s, 4), SUMS_16(s, 6)
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v));
}
__device__ __forceinline__ void multiply(float (&s)[16][4], const u32 (&p)[4], u64 v) {
    asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" REGISTERS_64 "}, {%64, %65, %66, %67},"
                 " %68, 1, 1, 1, 1;"
        : SUMS_16(s, 0), SUMS_16(s, 2), SUMS_16(s, 4), SUMS_16(s, 6), SUMS_16(s, 8), SUMS_16(s, 10),
          SUMS_16(s, 12), SUMS_16(s, 14)
        : "r"(p[0]), "r"(p[1]), "r"(p[2]), "r"(p[3]), "l"(v));
}

// After wgmma_wait: the compiler is not to use what the registers held before.
template <int N>
__device__ __forceinline__ void arrived(float (&s)[N][4]) {
#pragma unroll
    for (int x = 0; x < N; ++x) {
        asm volatile("" : "+f"(s[x][0]), "+f"(s[x][1]), "+f"(s[x][2]), "+f"(s[x][3])::"memory");
    }
}

// ---- The TMA on a stack of matrices: rows beyond a matrix arrive as zeros, and are not written.
__device__ __forceinline__ void tma_load(void *to, const TensorMap *map, int column, int row, int matrix, u64 *barrier) {
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(shared_address(to)),
                 "l"(map), "r"(column), "r"(row), "r"(matrix), "r"(shared_address(barrier))
                 : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap *map, const void *from, int column, int row, int matrix) {
    asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%1, %2, %3}], [%4];"
                 " cp.async.bulk.commit_group;" ::"l"(map), "r"(column), "r"(row), "r"(matrix), "r"(shared_address(from))
                 : "memory");
}

// ---- Barriers between warpgroups: one waits for its turn, another passes it on (256 threads in all).
__device__ __forceinline__ void ordered_wait(int id) {
    asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory");
}

__device__ __forceinline__ void ordered_arrive(int id) {
    asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory");
}
