// idea: a lane's columns are four neighbours, read and written 16 bytes at a time.
// changed: float4 where the width is a multiple of four, else float; one function does both.
// constants: none.
__device__ void add(float &sum, float value, float b) { sum += value * b; }
__device__ void add(float4 &sum, float value, float4 b) {
    sum.x += value * b.x;
    sum.y += value * b.y;
    sum.z += value * b.z;
    sum.w += value * b.w;
}

// Width is counted in T: a float, or four.
template <typename T>
__device__ void multiply(const int *starts, const int *indices, const float *values, const T *b, T *c, int rows, int width) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    if (row < rows) {
        for (int column = lane; column < width; column += 32) {
            T sum = {};
#pragma unroll 4
            for (int at = starts[row]; at < starts[row + 1]; ++at) {
                add(sum, values[at], b[(size_t)indices[at] * width + column]);
            }
            c[(size_t)row * width + column] = sum;
        }
    }
}

extern "C" __global__ void spmm(const int *starts, const int *indices, const float *values, const float *b, float *c,
                                int rows, int width) {
    // A float4 must lie at a multiple of 16 bytes, so each row must begin at one.
    if (width % 4 == 0) {
        multiply(starts, indices, values, (const float4 *)b, (float4 *)c, rows, width / 4);
    } else {
        multiply(starts, indices, values, b, c, rows, width);
    }
}
