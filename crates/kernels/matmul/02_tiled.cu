// idea: a block loads TILE × TILE pieces of a and of b into shared memory, where each value is used TILE times.
// changed: the loop over k runs tile by tile; each tile is read from global memory once a block.
// constants: TILE comes from the launch and equals the block's side; 32 makes a block of 1024 threads.
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE];
    __shared__ float b_tile[TILE][TILE];
    int column = blockIdx.x * TILE + threadIdx.x;
    int row = blockIdx.y * TILE + threadIdx.y;
    float sum = 0.0f;
    for (int k0 = 0; k0 < k; k0 += TILE) {
        int k_a = k0 + threadIdx.x;
        int k_b = k0 + threadIdx.y;
        // Beyond the matrix stand zeros, which add nothing.
        a_tile[threadIdx.y][threadIdx.x] = (row < m && k_a < k) ? a[(size_t)row * k + k_a] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = (k_b < k && column < n) ? b[(size_t)k_b * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; ++i) {
            sum += a_tile[threadIdx.y][i] * b_tile[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < m && column < n) {
        c[(size_t)row * n + column] = sum;
    }
}
