// Solutions of lesson 11: each section replaces the exercise cell of that name.

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

// exercise: scan
const SCAN: &str = r#"extern "C" __global__ void scan(const float *a, float *out, float *sums, int n) {
    __shared__ float ends[8];
    int t = threadIdx.x, lane = t % 32, warp = t / 32, i = blockIdx.x * 256 + t;
    float x = i < n ? a[i] : 0.0f;
    // Within the warp: after the step of distance d, x is the sum of up to 2 * d elements.
    for (int d = 1; d < 32; d *= 2) {
        float left = __shfl_up_sync(0xffffffff, x, d);
        if (lane >= d) { x += left; }
    }
    if (lane == 31) { ends[warp] = x; }
    __syncthreads();
    for (int w = 0; w < warp; ++w) { x += ends[w]; }
    if (i < n) { out[i] = x; }
    if (t == 255) { sums[blockIdx.x] = x; }
}"#;

// exercise: least_occupancy
// 3.35e12 B/s * 600e-9 s = 2.01 MB, 15.2 KB of it for each of 132 multiprocessors: 952 threads of 2048.
let my_least_occupancy: Option<f64> = Some(46.5);

// exercise: diagnose_total
// 17 sectors for every 2 that the array has: block b reads all elements up to its own share, (16 + 1) / 2 times the array.
let my_diagnosis: Option<(check::Excess, f64)> = Some((check::Excess::RepeatedReads, 8.5));
