// Adds the steps [from, to) of one tile to c.
__device__ void part(const float *a, const float *b, float *c, int m, int n, int k, int tile, int from, int to) {
    int columns = (n + 15) / 16, row = tile / columns * 16 + threadIdx.y, column = tile % columns * 16 + threadIdx.x;
    float sum = 0.0f;
    for (int i = from * 16; i < min(to * 16, k); ++i) {
        if (row < m && column < n) sum += a[row * k + i] * b[i * n + column];
    }
    if (row < m && column < n) atomicAdd(&c[row * n + column], sum);
}

extern "C" __global__ void shares(const float *a, const float *b, float *c, int m, int n, int k) {
    int tiles = (m + 15) / 16 * ((n + 15) / 16), steps = (k + 15) / 16, all = tiles * steps;
    int begin = all * blockIdx.x / gridDim.x, end = all * (blockIdx.x + 1) / gridDim.x;
    if (begin == end) return;
    int first = begin / steps, last = (end - 1) / steps;
    part(a, b, c, m, n, k, first, begin - first * steps, first == last ? end - first * steps : steps);
    // The fault: whole tiles between the first and the last of a share are forgotten.
    if (last != first) part(a, b, c, m, n, k, last, 0, end - last * steps);
}
