//! Right kernels pass, and each wrong one is told what is wrong with it.

use super::*;
use crate::check::kernels::expect;

const MASK: &str = "extern \"C\" __global__ void mask(float *s, int length) {
    int query = blockIdx.x;
    for (int key = query + 1 + threadIdx.x; key < length; key += blockDim.x) {
        s[query * length + key] = __int_as_float(0xff800000);
    }
}";

const SOFTMAX: &str = "extern \"C\" __global__ void softmax(float *s, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) { return; }
    float lowest = __int_as_float(0xff800000);
    float *x = s + row * columns, most = lowest, sum = 0.0f;
    for (int i = 0; i < columns; ++i) { most = fmaxf(most, x[i]); }
    for (int i = 0; i < columns; ++i) { sum += expf(x[i] - most); }
    for (int i = 0; i < columns; ++i) { x[i] = most == lowest ? 0.0f : expf(x[i] - most) / sum; }
}";

const GROUPED: &str =
    "extern \"C\" __global__ void scores(const float *q, const float *k, float *s, int batch, int q_heads,
                                int kv_heads, int length, int width) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= batch * q_heads * length * length) { return; }
    int key = i % length, row = i / length;
    int head = row / length % q_heads, sequence = row / length / q_heads;
    int asked = sequence * kv_heads + head / (q_heads / kv_heads);
    float sum = 0.0f;
    for (int d = 0; d < width; ++d) { sum += q[row * width + d] * k[(asked * length + key) * width + d]; }
    s[i] = sum * rsqrtf(float(width));
}";

#[test]
fn the_causal_mask_hides_what_comes_after() {
    let store = "s[query * length + key] = __int_as_float(0xff800000);";
    expect(
        causal_mask,
        MASK,
        &[
            ("query + 1 + threadIdx.x", "query + threadIdx.x", "a token may look at itself"),
            ("query + 1 + threadIdx.x", "query + 2 + threadIdx.x", "does a thread get to it?"),
            (
                "key = query + 1 + threadIdx.x; key < length",
                "key = threadIdx.x; key < query",
                "which of the two is the row",
            ),
            ("key += blockDim.x", "key += 1000", "a row may be longer than the block"),
            ("__int_as_float(0xff800000)", "-1e9f", "is not -infinity"),
            ("__int_as_float(0xff800000)", "__int_as_float(0x7fc00000)", "and no NaN"),
            (store, "s[query * length + key] += __int_as_float(0xff800000);", "right, but it reads scores"),
            ("key < length", "key <= length", "do the sum for that thread by hand"),
            ("mask(", "hide(", "no kernel `mask`"),
        ],
    );
}

#[test]
fn softmax_is_right_for_scores_of_any_size() {
    expect(
        softmax_row,
        SOFTMAX,
        &[
            ("sum += expf(x[i] - most)", "sum += expf(x[i])", "weights of a row are exp(score) over the sum"),
            ("lowest, sum = 0.0f", "0.0f, sum = 0.0f", "take the row's largest score off"),
            ("most = fmaxf(most, x[i]);", "most = 0.0f;", "take the row's largest score off"),
            ("most == lowest ? 0.0f : expf", "expf", "has no weights, and gets 0"),
            ("if (row >= rows) { return; }", "", "do the sum for that thread by hand"),
            ("/ sum", "", "add up to 1"),
        ],
    );
}

#[test]
fn grouped_heads_ask_their_own_head() {
    let right = "sequence * kv_heads + head / (q_heads / kv_heads)";
    expect(
        grouped,
        GROUPED,
        &[
            (right, "sequence * kv_heads + head % kv_heads", "heads 0 and 1 ask head 0"),
            (right, "head / (q_heads / kv_heads)", "begins at sequence · kv_heads"),
            (right, "sequence * q_heads + head", "by hand: of which head"),
            ("* rsqrtf(float(width))", "", "that is the score of no head"),
            ("key = i % length", "key = i / length % length", "that is the score of no head"),
            ("d < width", "d <= width", "by hand: of which head"),
        ],
    );
}
