// Solutions of lesson 10: each section replaces the exercise cell of that name.

// exercise: axpy
const AXPY: &str = r#"extern "C" __global__ void axpy(float s, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = s * x[i] + y[i];
    }
}"#;

// exercise: scale
const SCALE: &str = r#"extern "C" __global__ void scale(const float *x, float *y, int n) {
    int threads = gridDim.x * blockDim.x;
    // A grid-stride loop: in each step all threads together take one run of neighbours.
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) {
        y[i] = 2.0f * x[i];
    }
}"#;

// exercise: two_kinds
const TWO_KINDS: &str = r#"extern "C" __global__ void two_kinds(float *x, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    // Two warps share 64 elements: the even warp takes the even ones.
    int i = t / 64 * 64 + t % 32 * 2 + t / 32 % 2;
    if (i < n) {
        float value = x[i];
        if (i % 2 == 0) { for (int k = 0; k < 64; ++k) { value = value * 0.5f + 1.0f; } }
        else { for (int k = 0; k < 64; ++k) { value = value * value - 0.5f; } }
        x[i] = value;
    }
}"#;
