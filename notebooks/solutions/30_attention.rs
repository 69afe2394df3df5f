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

// exercise: longest_sequence
// 4 sequences · 32 heads · T² scores · 4 bytes = 16 · 10⁹ bytes.
let my_longest: Option<f64> = Some((16e9_f64 / (4.0 * 32.0 * 4.0)).sqrt().floor());

// exercise: diagnose_leak
// Hidden keys have weights of 0, and a hidden score that changes moves the others all the same: it is in the sum. 100 equal terms are
// in each sum, and query 23 keeps 24 of them.
let my_leak: Option<(check::Leak, f64)> = Some((check::Leak::HiddenInSum, 24.0 / 100.0));
