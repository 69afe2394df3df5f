#ifndef TILE
#define TILE 16
#endif
// idea: a block loads a TILE × TILE piece of a and of b into shared memory, and every thread uses each value TILE times.
// changed: the loop over k runs tile by tile; each tile is read from global memory once a block.
// constants: TILE comes from the launch and equals the block's side; 32 makes a block of 1024 threads.
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    float sum = 0.0f;
    for (int k0 = 0; k0 < n; k0 += TILE) {
        int k_a = k0 + threadIdx.x;
        int k_b = k0 + threadIdx.y;
        // Beyond the matrix stand zeros, which add nothing.
        a_tile[threadIdx.y][threadIdx.x] = (row < n && k_a < n) ? a[row * n + k_a] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = (k_b < n && column < n) ? b[k_b * n + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            sum += a_tile[threadIdx.y][k] * b_tile[k][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < n && column < n) {
        c[row * n + column] = sum;
    }
}
