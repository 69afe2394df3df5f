// idea: the 32 lanes of a warp walk along one row: they read its index once, and nobody divides.
// changed: a warp a row in place of a thread an element; neighbouring lanes still touch neighbouring elements.
// constants: ROWS, the rows (and warps) of a block; from the table.
extern "C" __global__ void embedding(const float *table, const int *index, float *out, int count, int width, int rows) {
    int lane = threadIdx.x % 32;
    int place = blockIdx.x * ROWS + threadIdx.x / 32;
    if (place < count) {
        int row = index[place];
        // As unsigned, a negative index is a large one. No row, no read: the place is filled with NaN.
        bool inside = (unsigned)row < (unsigned)rows;
        // A table may have more elements than an int counts.
        const float *from = table + (size_t)row * width;
        float *to = out + (size_t)place * width;
        for (int column = lane; column < width; column += 32) {
            to[column] = inside ? from[column] : __int_as_float(0x7fffffff);
        }
    }
}
