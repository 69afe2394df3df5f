// idea: the 32 lanes of a warp read neighbouring entries of one row, and add up their sums by shuffles.
// changed: a warp a row in place of a thread a row: what lanes of a warp read of values and indices now lies side by side.
// constants: none; a block has 8 warps.
extern "C" __global__ void spmv(const int *starts, const int *indices, const float *values, const float *x, float *y,
                                int rows, int entries) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row < rows) {
        float sum = 0.0f;
        for (int at = starts[row] + lane; at < starts[row + 1]; at += 32) {
            sum += values[at] * x[indices[at]];
        }
        for (int distance = 16; distance > 0; distance /= 2) {
            sum += __shfl_xor_sync(0xffffffff, sum, distance);
        }
        if (lane == 0) {
            y[row] = sum;
        }
    }
}
