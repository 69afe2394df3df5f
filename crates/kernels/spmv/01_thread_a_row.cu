// idea: a thread walks along its row's entries: each is a value, and a number of x that its column index names.
// changed: the first rung.
// constants: none.
extern "C" __global__ void spmv(const int *starts, const int *indices, const float *values, const float *x, float *y,
                                int rows, int entries) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        float sum = 0.0f;
        for (int at = starts[row]; at < starts[row + 1]; ++at) {
            sum += values[at] * x[indices[at]];
        }
        y[row] = sum;
    }
}
