// idea: one thread copies one element: it divides to find its place, and asks the index which row of the table to read.
// changed: nothing, this is the first rung.
// constants: none; the block size is the launch's.
extern "C" __global__ void embedding(const float *table, const int *index, float *out, int count, int width, int rows) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count * width) {
        int place = i / width, column = i % width;
        int row = index[place];
        // As unsigned, a negative index is a large one. No row, no read: the place is filled with NaN.
        bool inside = (unsigned)row < (unsigned)rows;
        // A table may have more elements than an int counts.
        out[i] = inside ? table[(size_t)row * width + column] : __int_as_float(0x7fffffff);
    }
}
