// idea: a warp a row again, but of a row at most its first LIMIT entries; further warps take what longer rows have left.
// changed: no warp has more than LIMIT entries, and only rows that are longer are added up by atomics.
// constants: LIMIT, from the table; a block has 8 warps. y must be 0 before.

// The row that entry `at` belongs to: the last one that begins there or before it. Its lanes look at 32 rows at a time.
__device__ int row_of(const int *starts, int at, int rows) {
    int first = 0, count = rows, lane = threadIdx.x % 32;
    while (count > 1) {
        int step = (count + 31) / 32, candidate = first + lane * step;
        unsigned begin = __ballot_sync(0xffffffff, candidate < first + count && starts[candidate] <= at);
        // Lane 0's row begins before it: one of the bits is set.
        int own = 31 - __clz(begin);
        count = min(step, count - own * step);
        first += own * step;
    }
    return first;
}

extern "C" __global__ void spmv(const int *starts, const int *indices, const float *values, const float *x, float *y,
                                int rows, int entries) {
    int warp = (blockIdx.x * blockDim.x + threadIdx.x) / 32;
    int lane = threadIdx.x % 32;
    int row = warp, from, to;
    if (warp < rows) {
        from = starts[row];
        to = min(starts[row + 1], from + LIMIT);
    } else {
        // A piece of LIMIT entries, wherever rows begin: of all rows in it only the first can have begun LIMIT entries before.
        long long piece = (long long)(warp - rows) * LIMIT;
        if (piece >= entries) {
            return;
        }
        row = row_of(starts, (int)piece, rows);
        from = max((int)piece, starts[row] + LIMIT);
        to = min((int)min(piece + LIMIT, (long long)entries), starts[row + 1]);
        if (from >= to) {
            return;
        }
    }
    float sum = 0.0f;
    for (int at = from + lane; at < to; at += 32) {
        sum += values[at] * x[indices[at]];
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    }
    if (lane == 0) {
        if (starts[row + 1] - starts[row] <= LIMIT) {
            y[row] = sum;
        } else {
            atomicAdd(&y[row], sum);
        }
    }
}
