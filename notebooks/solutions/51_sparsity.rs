// Solutions of lesson 51: each section replaces the exercise cell of that name.

// exercise: spmv_eight
const SPMV: &str = r#"extern "C" __global__ void spmv(const int *starts, const int *indices, const float *values, const float *x,
                                 float *y, int rows) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 8, lane = threadIdx.x % 8;
    // The rows of a warp end at different times: all its lanes stay until the shuffles are over.
    int first = row < rows ? starts[row] : 0, last = row < rows ? starts[row + 1] : 0;
    float sum = 0.0f;
    for (int at = first + lane; at < last; at += 8) {
        sum += values[at] * x[indices[at]];
    }
    for (int distance = 4; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance); // stays within the eight lanes
    }
    if (lane == 0 && row < rows) {
        y[row] = sum;
    }
}"#;

// exercise: break_even
// 5 bytes per entry and 4 per start against 1 per number: 5 d n² + 4 (n + 1) = n². With a sector for x, 37 bytes per entry.
let my_even: [Option<f64>; 2] = [5.0, 37.0].map(|entry| Some(100.0 * (8192.0 * 8192.0 - 4.0 * 8193.0) / (entry * 8192.0 * 8192.0)));

// exercise: diagnose_sparse
// A report of one row of 13 entries shows 12: a share. Row r begins at entry 5 r, and is right where 5 r mod 12 is at most 7.
let my_diagnosis: Option<(check::SparseFault, f64)> = Some((check::SparseFault::ShareBorder, 67.0));
