// idea: a warp keeps COLUMNS · 32 sums of its row in registers, so that it reads an entry once for all of these columns.
// changed: the loop over columns is inside that over entries; it is unrolled, and its loads of b do not wait for each other.
// constants: COLUMNS, the sums of a lane; from the table.
extern "C" __global__ void spmm(const int *starts, const int *indices, const float *values, const float *b, float *c,
                                int rows, int width) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row < rows) {
        for (int column = lane; column < width; column += 32 * COLUMNS) {
            float sum[COLUMNS] = {};
            for (int at = starts[row]; at < starts[row + 1]; ++at) {
                const float *from = b + (size_t)indices[at] * width + column;
#pragma unroll
                for (int i = 0; i < COLUMNS; ++i) {
                    if (column + 32 * i < width) {
                        sum[i] += values[at] * from[32 * i];
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < COLUMNS; ++i) {
                if (column + 32 * i < width) {
                    c[(size_t)row * width + column + 32 * i] = sum[i];
                }
            }
        }
    }
}
