extern "C" __global__ void product(const float *a, const float *b, float *c, int m, int n, int k) {
    // Rows of 16 floats: the two rows that a warp reads at a time lie 16 banks apart. Suspicious, and without a conflict.
    __shared__ float a_tile[64][16], b_tile[16][64];
    int x = threadIdx.x, y = threadIdx.y, thread = y * 16 + x, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int i = thread; i < 64 * 16; i += 256) {
            int row = row0 + i / 16, column = column0 + i % 64;
            a_tile[i / 16][i % 16] = row < m && k0 + i % 16 < k ? a[row * k + k0 + i % 16] : 0.0f;
            b_tile[i / 64][i % 64] = k0 + i / 64 < k && column < n ? b[(k0 + i / 64) * n + column] : 0.0f;
        }
        __syncthreads();
        for (int i = 0; i < 16; ++i) {
            float values[4];
            for (int s = 0; s < 4; ++s) values[s] = b_tile[i][x + 16 * s];
            // Not unrolled: `r` is a run-time index, and registers have none. So `sum` lies in local memory.
#pragma unroll 1
            for (int r = 0; r < 4; ++r) {
                float left = a_tile[y + 16 * r][i];
                for (int s = 0; s < 4; ++s) sum[r][s] += left * values[s];
            }
        }
        __syncthreads();
    }
#pragma unroll 1
    for (int r = 0; r < 4; ++r)
        for (int s = 0; s < 4; ++s)
            if (row0 + y + 16 * r < m && column0 + x + 16 * s < n) c[(row0 + y + 16 * r) * n + column0 + x + 16 * s] = sum[r][s];
}
