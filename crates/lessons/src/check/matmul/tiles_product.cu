extern "C" __global__ void product(const float *a, const float *b, float *c, int m, int n, int k) {
    __shared__ float a_tile[64][16], b_tile[16][64];
    int x = threadIdx.x, y = threadIdx.y;
    int thread = threadIdx.y * 16 + threadIdx.x, row0 = blockIdx.y * 64, column0 = blockIdx.x * 64;
    float sum[4][4] = {};
    for (int k0 = 0; k0 < k; k0 += 16) {
        for (int i = thread; i < 64 * 16; i += 256) {
            int row = row0 + i / 16, column = column0 + i % 64;
            a_tile[i / 16][i % 16] = row < m && k0 + i % 16 < k ? a[row * k + k0 + i % 16] : 0.0f;
            b_tile[i / 64][i % 64] = k0 + i / 64 < k && column < n ? b[(k0 + i / 64) * n + column] : 0.0f;
        }
        __syncthreads(); // filled
        for (int i = 0; i < 16; ++i) {
            float x4[4];
            for (int r = 0; r < 4; ++r) x4[r] = a_tile[y + 16 * r][i];
            for (int s = 0; s < 4; ++s) {
                float y = b_tile[i][x + 16 * s];
                for (int r = 0; r < 4; ++r) sum[r][s] += x4[r] * y;
            }
        }
        __syncthreads(); // used
    }
    for (int r = 0; r < 4; ++r)
        for (int s = 0; s < 4; ++s)
            if (row0 + y + 16 * r < m && column0 + x + 16 * s < n) { c[(row0 + y + 16 * r) * n + column0 + x + 16 * s] = sum[r][s]; } // store
}
