// Solutions of lesson 14. Each section replaces the exercise cell of that name.

// exercise: swiglu
const SWIGLU: &str = r#"extern "C" __global__ void swiglu(const float *gate, const float *up, float *t, float *y, int n) {
    int first = blockIdx.x * blockDim.x + threadIdx.x, step = gridDim.x * blockDim.x;
    for (int i = first; i < n; i += step) {
        float g = gate[i];
        y[i] = g / (1.0f + expf(-g)) * up[i];
    }
}"#;

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
