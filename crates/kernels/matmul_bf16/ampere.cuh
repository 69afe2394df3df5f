// The instructions of Ampere and later that the rungs share, each under a name. PTX ISA: "cp.async", "ldmatrix", "mma".
#pragma once
#include <cuda_bf16.h>

typedef __nv_bfloat16 bf16;
typedef unsigned int u32;

// ---- Copies to shared memory that do not wait (cp.async), in groups.
// Copies 8 numbers of every STEP-th of ROWS rows to shared memory, where rows are PITCH apart. `rows` rows and
// `columns` columns from here lie in the matrix: beyond stand zeros. Where all rows of the matrix begin at multiples of
// 16 bytes, a copy is one instruction, and the thread goes on while it is in flight.
template <int ROWS, int STEP, int PITCH>
__device__ void copy_8(bf16 *to, const bf16 *from, int length, int rows, int columns) {
    if (length % 8 == 0) {
#pragma unroll
        for (int row = 0; row < ROWS; row += STEP) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                             (u32)__cvta_generic_to_shared(to + row * PITCH)),
                         "l"(from + (size_t)row * length), "r"(row < rows && columns > 0 ? 16 : 0)
                         : "memory");
        }
    } else {
#pragma unroll 1
        for (int row = 0; row < ROWS; row += STEP) {
            for (int i = 0; i < 8; ++i) {
                to[row * PITCH + i] = row < rows && i < columns ? from[(size_t)row * length + i] : bf16(0.0f);
            }
        }
    }
}

__device__ void copies_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most PENDING of this thread's groups are in flight.
template <int PENDING>
__device__ void copies_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(PENDING) : "memory");
}

// ---- Matrices in the registers of a warp.
// Two neighbours of a row of c; one store where they are aligned.
__device__ void store_2(bf16 *c, int row, int column, int m, int n, float first, float second) {
    bf16 *to = c + (size_t)row * n + column;
    if (row < m && column + 1 < n && n % 2 == 0) {
        *(__nv_bfloat162 *)to = __floats2bfloat162_rn(first, second);
    } else if (row < m && column < n) {
        to[0] = first;
        if (column + 1 < n) {
            to[1] = second;
        }
    }
}

// Four 8 × 8 matrices to the registers of a warp; lane l gives the address of row l % 8 of matrix l / 8.
__device__ void load_matrices(u32 (&to)[4], const bf16 *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((u32)__cvta_generic_to_shared(from)));
}

__device__ void load_transposed(u32 (&to)[4], const bf16 *from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"((u32)__cvta_generic_to_shared(from)));
}

// sum (16 × 8) += a (16 × 16) × b (16 × 8), spread over a warp.
__device__ void multiply(float (&sum)[4], const u32 (&a)[4], u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
                 " {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
