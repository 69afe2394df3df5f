// idea: 128 × 9216 by 9216 × 128 has work for four blocks; sums of 36 stretches of 256 features make it 144.
// constants: PRECISION (see tensor.cuh). 256 threads: each of 8 warps computes 16 × 32 of a block's 64 × 64.
#include "network.cuh"
#include "tensor.cuh"

enum { TILE = 64, STRETCH = 256, PITCH = STRETCH + 8, QUARTERS = 4 };

// partial [36, batch, 128]: the product of pooled [batch, 9216] and fc1.weight [128, 9216], a stretch of features each.
extern "C" __global__ __launch_bounds__(256, 1) void fc1(
    const float *pooled, const float *w, float *partial, int batch
) {
    extern __shared__ __align__(16) float memory[];
    float *rows = memory, *columns = memory + TILE * PITCH;
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    int item0 = blockIdx.y * TILE, unit0 = blockIdx.x * TILE, feature0 = blockIdx.z * STRETCH;

    // All copies are asked for at once; the first quarter is multiplied while the others are in flight.
#pragma unroll
    for (int quarter = 0; quarter < QUARTERS; ++quarter) {
        for (int i = threadIdx.x; i < TILE * 16; i += 256) {
            int row = i / 16, column = quarter * (STRETCH / QUARTERS) + i % 16 * 4;
            bool there = item0 + row < batch;
            const float *item = pooled + (size_t)(there ? item0 + row : 0) * FEATURES;
            copy_16(rows + row * PITCH + column, item + feature0 + column, there);
            const float *unit = w + FC1_WEIGHT + (size_t)(unit0 + row) * FEATURES;
            copy_16(columns + row * PITCH + column, unit + feature0 + column, true);
        }
        copies_commit();
    }
    float sum[4][4] = {};
    // Of a small batch, the rows that are there.
    int stretch = item0 + warp / 2 * 16 < batch ? STRETCH / QUARTERS : 0;
    const float *a = rows + (warp / 2 * 16 + g) * PITCH + 2 * t, *b = columns + (warp % 2 * 32 + g) * PITCH + 2 * t;
#pragma unroll
    for (int quarter = 0; quarter < QUARTERS; ++quarter) {
        quarter == 0 ? copies_wait<3>() : quarter == 1 ? copies_wait<2>() : quarter == 2 ? copies_wait<1>() : copies_wait<0>();
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < stretch; k += 8, a += 8, b += 8) {
            float2 upper = *(const float2 *)a, lower = *(const float2 *)(a + 8 * PITCH);
            Operand<4> left = rows_of_a(for_product(upper.x), for_product(lower.x), for_product(upper.y), for_product(lower.y));
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                float2 both = *(const float2 *)(b + n * 8 * PITCH);
                multiply_add(sum[n], left, column_of_b(for_product(both.x), for_product(both.y)));
            }
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        int item = item0 + warp / 2 * 16 + g + 8 * i;
        if (item < batch) {
            float *to = partial + ((size_t)blockIdx.z * batch + item) * HIDDEN + unit0 + warp % 2 * 32 + 2 * t;
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                *(float2 *)(to + n * 8) = make_float2(sum[n][2 * i], sum[n][2 * i + 1]);
            }
        }
    }
}
