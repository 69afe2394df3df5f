// Solutions of lesson 30: each section replaces the exercise cell of that name.

// exercise: softmax_row
const SOFTMAX_ROW: &str = r#"extern "C" __global__ void softmax(float *s, int rows, int columns) {
    const float hidden = __int_as_float(0xff800000);
    float *x = s + blockIdx.x * columns, sum = 0.0f, most = hidden;
    // Each lane its own numbers, 32 apart; then all lanes exchange what they found.
    for (int i = threadIdx.x; i < columns; i += 32) { most = fmaxf(most, x[i]); }
    for (int d = 16; d > 0; d /= 2) { most = fmaxf(most, __shfl_xor_sync(~0u, most, d)); }
    for (int i = threadIdx.x; i < columns; i += 32) { sum += most == hidden ? 0.0f : expf(x[i] - most); }
    for (int d = 16; d > 0; d /= 2) { sum += __shfl_xor_sync(~0u, sum, d); }
    for (int i = threadIdx.x; i < columns; i += 32) { x[i] = most == hidden ? 0.0f : expf(x[i] - most) / sum; }
}"#;

// exercise: grouped
const GROUPED: &str = r#"extern "C" __global__ void scores(const float *q, const float *k, float *s, int batch, int length,
                                  int q_heads, int kv_heads, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * q_heads * length * length) { return; }
    int key = i % length, query = i / length % length;
    int head = i / length / length % q_heads, sequence = i / length / length / q_heads;
    int shared_head = head / (q_heads / kv_heads);
    const float *x = q + ((sequence * length + query) * q_heads + head) * width;
    const float *y = k + ((sequence * length + key) * kv_heads + shared_head) * width;
    float sum = 0.0f;
    for (int d = 0; d < width; ++d) { sum += x[d] * y[d]; }
    s[i] = sum * rsqrtf(float(width));
}"#;

// exercise: longest_sequence
// 4 sequences · 32 heads · T² scores · 4 bytes = 16 · 10⁹ bytes.
let my_longest: Option<f64> = Some((16e9_f64 / (4.0 * 32.0 * 4.0)).sqrt().floor());

// exercise: diagnose_leak
// Hidden keys have weights of 0, and a hidden score that changes moves the others all the same: it is in the sum. 100 equal terms are
// in each sum, and query 23 keeps 24 of them.
let my_leak: Option<(check::Leak, f64)> = Some((check::Leak::HiddenInSum, 24.0 / 100.0));
