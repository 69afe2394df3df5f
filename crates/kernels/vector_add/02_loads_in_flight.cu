// idea: a thread asks for all its elements before it uses the first, so that many loads are in flight at a time.
// changed: a block adds a tile of EACH × THREADS elements; one loop loads, one adds and stores.
// constants: THREADS is the block's size, EACH the elements of a and of b that a thread asks for; from the table.
extern "C" __global__ void vector_add(const float *a, const float *b, float *c, int n) {
    // Neighbouring threads still touch neighbouring elements; a thread's own lie THREADS apart.
    int i = blockIdx.x * (EACH * THREADS) + threadIdx.x;
    if (i + (EACH - 1) * THREADS < n) {
        // Unrolled, so that these arrays are registers.
        float x[EACH], y[EACH];
#pragma unroll
        for (int v = 0; v < EACH; ++v) {
            x[v] = a[i + v * THREADS];
            y[v] = b[i + v * THREADS];
        }
#pragma unroll
        for (int v = 0; v < EACH; ++v) {
            c[i + v * THREADS] = x[v] + y[v];
        }
    } else {
        // The last tile is not full.
        for (; i < n; i += THREADS) {
            c[i] = a[i] + b[i];
        }
    }
}
