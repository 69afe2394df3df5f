// idea: a lane copies four neighbouring elements with one load and one store of 16 bytes.
// changed: the row is copied as float4 where its width is a multiple of four, else as float; one function does both.
// constants: ROWS, the rows (and warps) of a block; from the table.
__device__ float nan_of(float) { return __int_as_float(0x7fffffff); }
__device__ float4 nan_of(float4) { return make_float4(nan_of(0.0f), nan_of(0.0f), nan_of(0.0f), nan_of(0.0f)); }

// Width is counted in T: a float, or four.
template <typename T>
__device__ void copy_rows(const T *table, const int *index, T *out, int count, int width, int rows) {
    int lane = threadIdx.x % 32;
    int place = blockIdx.x * ROWS + threadIdx.x / 32;
    if (place < count) {
        int row = index[place];
        // As unsigned, a negative index is a large one. No row, no read: the place is filled with NaN.
        bool inside = (unsigned)row < (unsigned)rows;
        // A table may have more elements than an int counts.
        const T *from = table + (size_t)row * width;
        T *to = out + (size_t)place * width;
        for (int column = lane; column < width; column += 32) {
            to[column] = inside ? from[column] : nan_of(T());
        }
    }
}

extern "C" __global__ void embedding(const float *table, const int *index, float *out, int count, int width, int rows) {
    // A float4 must lie at a multiple of 16 bytes, so each row must begin at one.
    if (width % 4 == 0) {
        copy_rows((const float4 *)table, index, (float4 *)out, count, width / 4, rows);
    } else {
        copy_rows(table, index, out, count, width, rows);
    }
}
