// idea: a warp asks for its part of EACH rows before it stores the first, so that many loads are in flight at a time.
// changed: EACH rows per warp: one loop finds them, one loads, one stores.
// constants: WARPS of a block, EACH rows of a warp, ROWS = WARPS × EACH; from the table.
__device__ float nan_of(float) { return __int_as_float(0x7fffffff); }
__device__ float4 nan_of(float4) { return make_float4(nan_of(0.0f), nan_of(0.0f), nan_of(0.0f), nan_of(0.0f)); }

// Width is counted in T: a float, or four.
template <typename T>
__device__ void copy_rows(const T *table, const int *index, T *out, int count, int width, int rows) {
    int lane = threadIdx.x % 32;
    int place = blockIdx.x * ROWS + threadIdx.x / 32 * EACH;
    // Unrolled, so that these arrays are registers.
    const T *from[EACH];
#pragma unroll
    for (int r = 0; r < EACH; ++r) {
        int row = place + r < count ? index[place + r] : -1;
        // As unsigned, a negative index is a large one. No row, no read: the place is filled with NaN.
        // A table may have more elements than an int counts.
        from[r] = (unsigned)row < (unsigned)rows ? table + (size_t)row * width : nullptr;
    }
    for (int column = lane; column < width; column += 32) {
        T x[EACH];
#pragma unroll
        for (int r = 0; r < EACH; ++r) {
            x[r] = from[r] ? from[r][column] : nan_of(T());
        }
#pragma unroll
        for (int r = 0; r < EACH; ++r) {
            if (place + r < count) {
                out[(size_t)(place + r) * width + column] = x[r];
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
