// idea: one thread computes one element of c = a × b, reading a whole row and a whole column from global memory.
// changed: nothing, this is the first rung. a has m rows of k, b has k rows of n, c has m rows of n.
// constants: none; the block's shape is the launch's.
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int m, int n, int k) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    if (row < m && column < n) {
        for (int i = 0; i < k; ++i) {
            sum += a[(size_t)row * k + i] * b[(size_t)i * n + column];
        }
        c[(size_t)row * n + column] = sum;
    }
}
