#include "wgmma.cuh"
// Stands before the answer where the order of its calls is looked at: who asks for a tile, and who goes on to use one.
__device__ void noted_load(void *to, const TensorMap *map, int column, int row, int matrix, u64 *barrier) {
    printf("asks %d %u\n", (int)threadIdx.x, shared_address(barrier));
    tma_load(to, map, column, row, matrix, barrier);
}
__device__ void noted_wait(u64 *barrier, int parity) {
    wait(barrier, parity);
    printf("goes on %d %u\n", (int)threadIdx.x, shared_address(barrier));
}
#define tma_load noted_load
#define wait noted_wait
