// Solutions of lesson 14. Each section replaces the exercise cell of that name.

// exercise: log_sum_exp
const LOG_SUM_EXP: &str = r#"extern "C" __global__ void log_sum_exp(const float *x, float *y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) { return; }
    float most = -3.4e38f, sum = 0.0f;
    for (int column = 0; column < columns; ++column) {
        float own = x[column * rows + row];
        float larger = fmaxf(most, own);
        sum = sum * expf(most - larger) + expf(own - larger); // what is there shrinks to the new scale
        most = larger;
    }
    y[row] = most + logf(sum);
}"#;

// exercise: add_rms_norm
const ADD_RMS_NORM: &str = r#"extern "C" __global__ void add_rms_norm(const float *x, const float *r, const float *weight,
        float *s, float *y, int columns, float eps) {
    __shared__ float squares[8];
    int t = threadIdx.x;
    size_t row = (size_t)blockIdx.x * columns;
    // 4096 numbers are 16 for each thread. Unrolled, so that they are registers.
    float kept[16], sum = 0.0f;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        int c = k * 256 + t;
        kept[k] = c < columns ? x[row + c] + r[row + c] : 0.0f;
        if (c < columns) { s[row + c] = kept[k]; }
        sum += kept[k] * kept[k];
    }
    for (int d = 16; d > 0; d /= 2) { sum += __shfl_xor_sync(0xffffffff, sum, d); } // in every lane
    if (t % 32 == 0) { squares[t / 32] = sum; }
    __syncthreads();
    sum = 0.0f;
    for (int warp = 0; warp < 8; ++warp) { sum += squares[warp]; }
    float scale = rsqrtf(sum / columns + eps);
#pragma unroll
    for (int k = 0; k < 16; ++k) {
        int c = k * 256 + t;
        if (c < columns) { y[row + c] = kept[k] * scale * weight[c]; }
    }
}"#;

// exercise: fused_share
// Chained: 4 (bias) + 4 (GELU) + 5 (mask) + 6 (residual) = 19 bytes per element. Fused: 2 + 1 + 2 read, 2 written = 7.
let my_saved_percent: Option<f64> = Some(5.0 * (1.0 - 7.0 / 19.0));
