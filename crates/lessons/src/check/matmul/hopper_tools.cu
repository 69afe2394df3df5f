#include "hopper.cuh"
// Stands before the answer where its calls are counted: boxes that are fetched, and products that a warpgroup starts.
__device__ void noted_load(void *to, const TensorMap *map, int column, int row, u64 *barrier) {
    printf("box %d %d\n", (int)blockIdx.x, (int)blockIdx.y);
    tma_load(to, map, column, row, barrier);
}
__device__ __forceinline__ void noted_product(float (&s)[128], u64 a, u64 b) {
    if (threadIdx.x % 128 == 0) printf("product %d %d\n", (int)blockIdx.x, (int)blockIdx.y);
    wgmma_64x256x16(s, a, b);
}
#define tma_load noted_load
#define wgmma_64x256x16 noted_product
