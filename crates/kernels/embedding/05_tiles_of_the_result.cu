// idea: the result is cut into equal tiles, whatever the width: EACH loads per thread, of one wide row or of several narrow.
// changed: a tile per block in place of rows per warp: the thread divides again.
// constants: THREADS of a block, EACH loads of 16 bytes per thread; from the table.
__device__ float nan_of(float) { return __int_as_float(0x7fffffff); }
__device__ float4 nan_of(float4) { return make_float4(nan_of(0.0f), nan_of(0.0f), nan_of(0.0f), nan_of(0.0f)); }

// Width is counted in T: a float, or four.
template <typename T>
__device__ void copy_rows(const T *table, const int *index, T *out, int count, int width, int rows) {
    // The tile of a block in T. With single floats its loop takes four times as many steps.
    const int TILE = THREADS * EACH * (16 / sizeof(T));
    int n = count * width;
    for (int offset = 0; offset < TILE; offset += THREADS * EACH) {
        int first = blockIdx.x * TILE + offset + threadIdx.x;
        // Unrolled, so that these arrays are registers.
        T x[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            int i = first + e * THREADS;
            int place = i / width, column = i % width;
            int row = i < n ? index[place] : -1;
            // As unsigned, a negative index is a large one. No row, no read: the place is filled with NaN.
            // A table may have more elements than an int counts.
            x[e] = (unsigned)row < (unsigned)rows ? table[(size_t)row * width + column] : nan_of(T());
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            if (first + e * THREADS < n) {
                out[first + e * THREADS] = x[e];
            }
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
