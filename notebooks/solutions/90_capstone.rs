// Solutions of lesson 90: each section replaces the exercise cell of that name.

// exercise: add_layer_norm
const NORM: &str = r#"use gpulab_device::*;

const EACH: usize = 8; // 128 threads: rows of at most 1,024 numbers

/// The sum over the block, in all threads.
fn block_sum(value: f32, parts: SharedArray<f32>) -> f32 {
    let sum = warp::sum(value);
    sync_threads(); // the sums of before have been read
    if warp::lane() == 0 { parts.set(thread_x() as usize / 32, sum); }
    sync_threads();
    parts.get(0) + parts.get(1) + parts.get(2) + parts.get(3)
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn add_layer_norm(x: *const f32, r: *const f32, weight: *const f32, bias: *const f32, s: *mut f32, y: *mut f32, columns: u32) {
    let (columns, row) = (columns as usize, block_x() as usize);
    let n = blocks_x() as usize * columns;
    // SAFETY: the launch passes n numbers of x, r, s and y, and a row of weight and bias.
    let (x, r, weight, bias) = unsafe { (Slice::new(x, n), Slice::new(r, n), Slice::new(weight, columns), Slice::new(bias, columns)) };
    let (mut s, mut y) = unsafe { (DisjointSlice::new(s, n), DisjointSlice::new(y, n)) };
    let parts = shared!(PARTS: [f32; 4]);
    let column = |i: usize| thread_x() as usize + 128 * i;
    let mut own = [0.0_f32; EACH];
    let mut sum = 0.0;
    for i in 0..EACH {
        if column(i) < columns {
            let at = row * columns + column(i);
            own[i] = x[at] + r[at];
            sum += own[i];
            // SAFETY: this thread's column of the block's row.
            unsafe { *s.own_at(at) = own[i] };
        }
    }
    let mean = block_sum(sum, parts) / columns as f32;
    let mut squares = 0.0;
    for i in 0..EACH {
        if column(i) < columns { squares += (own[i] - mean) * (own[i] - mean); }
    }
    let scale = 1.0 / (block_sum(squares, parts) / columns as f32 + 1e-5).square_root();
    for i in 0..EACH {
        if column(i) < columns {
            // SAFETY: as above.
            unsafe { *y.own_at(row * columns + column(i)) = (own[i] - mean) * scale * weight[column(i)] + bias[column(i)] };
        }
    }
}"#;

// exercise: linear4
const LINEAR: &str = r#"extern "C" __global__ void linear4(const unsigned *codes, const float *scales, const float *x, const float *bias, float *y, int rows, int columns) {
    int row = blockIdx.x * 4 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (row >= rows) { return; }
    float sum = 0.0f;
    for (int word = lane; word < columns / 8; word += 32) {
        unsigned eight = codes[row * (columns / 8) + word];
        float4 a = ((const float4 *)x)[2 * word], b = ((const float4 *)x)[2 * word + 1];
        float x_i[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w}, part = 0.0f;
        for (int i = 0; i < 8; ++i) { part += ((int)(eight >> 4 * i & 15) - 8) * x_i[i]; }
        sum += part * scales[row * (columns / 32) + word / 4];
    }
    for (int d = 16; d > 0; d /= 2) { sum += __shfl_xor_sync(~0u, sum, d); }
    if (lane == 0) { y[row] = sum + bias[row]; }
}"#;

// exercise: sample
const SAMPLE: &str = r#"extern "C" __global__ void sample(const float *logits, const float *uniform, int *token, int vocab, float temperature, int k) {
    __shared__ float row[1024], sums[256];
    __shared__ int best;
    int t = threadIdx.x;
    for (int i = t; i < vocab; i += 256) { row[i] = logits[blockIdx.x * vocab + i]; }
    __syncthreads();
    float largest = row[0];
    for (int i = 1; i < vocab; ++i) { largest = fmaxf(largest, row[i]); }
    int each = (vocab + 255) / 256, from = min(t * each, vocab), to = min(from + each, vocab);
    float weights[4], sum = 0.0f;
    for (int i = from; i < to; ++i) {
        int before = 0;
        for (int j = 0; j < vocab; ++j) { before += row[j] > row[i] || (row[j] == row[i] && j < i); }
        weights[i - from] = before < k ? expf((row[i] - largest) / temperature) : 0.0f;
        sum += weights[i - from];
    }
    sums[t] = sum;
    if (t == 0) { best = 0; }
    __syncthreads();
    float below = 0.0f, total = 0.0f;
    for (int i = 0; i < 256; ++i) { below += i < t ? sums[i] : 0.0f; total += sums[i]; }
    float place = uniform[blockIdx.x] * total;
    for (int i = from; i < to; ++i) {
        if (weights[i - from] > 0.0f && below <= place) { atomicMax(&best, i); }
        below += weights[i - from];
    }
    __syncthreads();
    if (t == 0) { token[blockIdx.x] = best; }
}"#;
