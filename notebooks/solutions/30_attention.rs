// Solutions of lesson 30: each section replaces the exercise cell of that name.

// exercise: causal_mask
const CAUSAL_MASK: &str = r#"extern "C" __global__ void mask(float *s, int length) {
    int query = blockIdx.x;
    // A row may be longer than the block: each thread takes several keys.
    for (int key = query + 1 + threadIdx.x; key < length; key += blockDim.x) {
        s[query * length + key] = __int_as_float(0xff800000);
    }
}"#;

// exercise: softmax_row
const SOFTMAX_ROW: &str = r#"extern "C" __global__ void softmax(float *s, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) { return; }
    const float hidden = __int_as_float(0xff800000);
    float *x = s + row * columns, sum = 0.0f, most = hidden;
    for (int i = 0; i < columns; ++i) { most = fmaxf(most, x[i]); }
    for (int i = 0; i < columns; ++i) { sum += expf(x[i] - most); }
    for (int i = 0; i < columns; ++i) { x[i] = most == hidden ? 0.0f : expf(x[i] - most) / sum; }
}"#;

// exercise: grouped
const GROUPED: &str = r#"extern "C" __global__ void scores(const float *q, const float *k, float *s, int batch, int q_heads,
                                  int kv_heads, int length, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * q_heads * length * length) { return; }
    int key = i % length, row = i / length; // a row of q: a query of a head
    int head = row / length % q_heads, sequence = row / length / q_heads;
    int asked = sequence * kv_heads + head / (q_heads / kv_heads);
    float sum = 0.0f;
    for (int d = 0; d < width; ++d) { sum += q[row * width + d] * k[(asked * length + key) * width + d]; }
    s[i] = sum * rsqrtf(float(width));
}"#;
