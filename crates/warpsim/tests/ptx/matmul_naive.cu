// idea: one thread computes one element of c = a × b, reading a whole row and a whole column from global memory.
// changed: nothing, this is the first rung.
// constants: none; the block's shape is the launch's.
extern "C" __global__ void matmul(const float *a, const float *b, float *c, int n) {
    int column = blockIdx.x * blockDim.x + threadIdx.x;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    if (row < n && column < n) {
        for (int k = 0; k < n; ++k) {
            sum += a[row * n + k] * b[k * n + column];
        }
        c[row * n + column] = sum;
    }
}
