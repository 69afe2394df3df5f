// idea: mma.sp takes the two values of each group and their places, and picks the rows of b that belong to them.
// changed: no zeros in shared memory; an instruction for 32 columns of a in place of two for 16 each.
// constants: none.
#include "tiles.cuh"

constexpr int A_PITCH = TILE / 2 + 8;

// sum (16 × 8) += a (16 × 32, half of it stored) × b (32 × 8). Of each four lanes the PAIR-th two say where a's numbers are.
template <int PAIR>
__device__ void multiply_sparse(float (&sum)[4], const u32 (&a)[4], const u32 (&b)[4], u32 places) {
    asm volatile("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3},"
                 " {%4, %5, %6, %7}, {%8, %9, %10, %11}, {%0, %1, %2, %3}, %12, %13;"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(places),
                   "n"(PAIR));
}

extern "C" __global__ void __launch_bounds__(128)
    two_four(const bf16 *values, const u32 *metadata, const bf16 *b, bf16 *c, int m, int n, int k) {
    __shared__ __align__(128) bf16 a_tile[TILE * A_PITCH];
    __shared__ __align__(128) bf16 b_tile[TILE * B_PITCH];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int row0 = blockIdx.y * TILE, padded = (k + 63) / 64 * 64;
    float sum[2][4][4] = {};
    for (int k0 = 0; k0 < padded; k0 += TILE) {
        load_b(b_tile, b, k0, n, k);
        int row = threadIdx.x / 4, piece = threadIdx.x % 4 * 8;
        copy_8<TILE, 32, A_PITCH>(a_tile + row * A_PITCH + piece,
                                  values + (size_t)(row0 + row) * (padded / 2) + k0 / 2 + piece, padded / 2,
                                  m - row0 - row, 8);
        copies_commit();
        u32 own[2];
        for (int y = 0; y < 2; ++y) {
            own[y] = places(metadata, row0 + warp / 2 * 32 + y * 16, m, k0, padded);
        }
        copies_wait<0>();
        __syncthreads();
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            u32 a_part[2][4];
            for (int y = 0; y < 2; ++y) {
                load_matrices(a_part[y],
                              a_tile + (warp / 2 * 32 + y * 16 + lane % 16) * A_PITCH + part * 16 + lane / 16 * 8);
            }
            for (int x = 0; x < 4; ++x) {
                u32 b_part[4];
                load_transposed(b_part, b_tile + (part * 32 + lane) * B_PITCH + warp % 2 * 32 + x * 8);
                for (int y = 0; y < 2; ++y) {
                    if (part == 0) {
                        multiply_sparse<0>(sum[y][x], a_part[y], b_part, own[y]);
                    } else {
                        multiply_sparse<1>(sum[y][x], a_part[y], b_part, own[y]);
                    }
                }
            }
        }
        __syncthreads();
    }
    store(c, sum, m, n);
}
