// idea: threads get equal shares of rows and entries together, wherever rows begin and end: the merge path (Merrill, Garland).
// changed: no row belongs to a warp; products go through shared memory, and rows that threads share are added up by atomics.
// constants: THREADS, ITEMS, the steps of a thread; from the table. y must be 0 before.

// A step of the path takes an entry, or ends a row. After so many steps, how many rows have ended?
__device__ int ended(const int *starts, int steps, int rows, int entries) {
    int low = max(steps - entries, 0), high = min(steps, rows);
    while (low < high) {
        int row = (low + high) / 2;
        // Row and all before it end within the steps: their entries, and as many ends of rows.
        if (starts[row + 1] <= steps - row - 1) {
            low = row + 1;
        } else {
            high = row;
        }
    }
    return low;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    spmv(const int *starts, const int *indices, const float *values, const float *x, float *y, int rows, int entries) {
    __shared__ float products[THREADS * ITEMS];
    __shared__ int bounds[2];
    int all = rows + entries;
    int step = min((blockIdx.x * THREADS + threadIdx.x) * ITEMS, all);
    int last = min(step + ITEMS, all);
    int row = ended(starts, step, rows, entries);
    int at = step - row;
    if (threadIdx.x == 0) {
        bounds[0] = at;
    }
    if (threadIdx.x == THREADS - 1) {
        bounds[1] = last - ended(starts, last, rows, entries);
    }
    __syncthreads();
    int first = bounds[0];
    for (int i = first + threadIdx.x; i < bounds[1]; i += THREADS) {
        products[i - first] = values[i] * x[indices[i]];
    }
    __syncthreads();
    float sum = 0.0f;
    // Whether this thread has taken the row from its first entry on: then nobody else adds to it.
    bool whole = step < last && at == starts[row];
    for (; step < last; ++step) {
        if (at < starts[row + 1]) {
            sum += products[at++ - first];
            continue;
        }
        if (whole) {
            y[row] = sum;
        } else {
            atomicAdd(&y[row], sum);
        }
        sum = 0.0f;
        whole = true;
        ++row;
    }
    if (row < rows && at > starts[row]) {
        atomicAdd(&y[row], sum);
    }
}
