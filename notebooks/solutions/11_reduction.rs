// Solutions of lesson 11: each section replaces the exercise cell of that name.

// exercise: largest
const LARGEST: &str = r#"extern "C" __global__ void largest(const float *a, float *partial, int n) {
    __shared__ float most[256];
    int thread = threadIdx.x;
    most[thread] = a[min(blockIdx.x * 256 + thread, n - 1)];
    __syncthreads(); // all elements are there
    for (int distance = 128; distance > 0; distance /= 2) {
        if (thread < distance) {
            most[thread] = fmaxf(most[thread], most[thread + distance]);
        }
        __syncthreads(); // this step is done by all, before anybody begins with the next
    }
    if (thread == 0) { partial[blockIdx.x] = most[0]; }
}"#;

// exercise: row_sums
const ROW_SUMS: &str = r#"extern "C" __global__ void row_sums(const float *a, float *sums, int rows) {
    // Rows of 33: lane t reads word 33 * t + column, in bank (t + column) % 32.
    __shared__ float tile[32][33];
    int lane = threadIdx.x, first = blockIdx.x * 32;
    for (int row = 0; row < 32 && first + row < rows; ++row) {
        tile[row][lane] = a[(first + row) * 32 + lane];
    }
    __syncthreads();
    if (first + lane < rows) {
        float sum = 0.0f;
        for (int column = 0; column < 32; ++column) { sum += tile[lane][column]; }
        sums[first + lane] = sum;
    }
}"#;

// exercise: dot
const DOT: &str = r#"extern "C" __global__ void dot(const float *a, const float *b, float *result, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        sum += a[i] * b[i];
    }
    for (int distance = 16; distance > 0; distance /= 2) {
        sum += __shfl_down_sync(0xffffffff, sum, distance);
    }
    if (threadIdx.x % 32 == 0) {
        atomicAdd(result, sum);
    }
}"#;
