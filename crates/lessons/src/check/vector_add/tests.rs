//! Right kernels pass, and each wrong one is told what is wrong with it.

use super::*;
use crate::check::kernels::expect;

const AXPY: &str = "extern \"C\" __global__ void axpy(float s, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { y[i] = s * x[i] + y[i]; }
}";

const SCALE: &str = "extern \"C\" __global__ void scale(const float *x, float *y, int n) {
    int threads = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads) { y[i] = 2.0f * x[i]; }
}";

const TWO_KINDS: &str = "extern \"C\" __global__ void two_kinds(float *x, int n) {
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    int i = t / 64 * 64 + t % 32 * 2 + t / 32 % 2;
    if (i < n) {
        float value = x[i];
        if (i % 2 == 0) { for (int k = 0; k < 64; ++k) { value = value * 0.5f + 1.0f; } }
        else { for (int k = 0; k < 64; ++k) { value = value * value - 0.5f; } }
        x[i] = value;
    }
}";

#[test]
fn axpy_knows_its_mistakes() {
    expect(
        axpy,
        AXPY,
        &[
            ("if (i < n) ", "", "block (0, 0, 0), thread (1, 0, 0)"),
            ("if (i < n)", "if (i <= n)", "kernel.cu:3"),
            ("blockIdx.x * blockDim.x + ", "", "nothing orders the blocks"),
            ("+ y[i]", "", "look at the formula"),
            ("s * x[i]", "s * x[i", "the compiler"),
            ("axpy", "saxpy", "no kernel `axpy`"),
            (", int n", ", float n", "keep its name and its parameters"),
            ("+ threadIdx.x", "+ threadIdx.x + 1", "no thread takes it"),
            ("if (i < n)", "while (i < n)", "what ends the loop"),
            ("if (i < n)", "if (i % 2) __syncthreads(); if (i < n)", "without a barrier"),
            ("blockIdx.x * blockDim.x", "blockIdx.x * gridDim.x", "which elements do these two take"),
        ],
    );
}

#[test]
fn scale_counts_sectors() {
    let pieces = "int first = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
    for (int i = first; i < first + 4 && i < n; ++i)";
    // Right with one block.
    let within_block =
        "for (int k = 0, i = blockIdx.x * blockDim.x + threadIdx.x; k < 4 && i < n; ++k, i += blockDim.x)";
    let begin = "for (int i = ";
    let off_by_one = format!("if (blockIdx.x + threadIdx.x == 0) {{ y[0] = 2.0f * x[0]; }} {begin}1 + ");
    let strided = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += threads)";
    expect(
        scale,
        SCALE,
        &[
            (strided, pieces, "touch 512 sectors, 16.0 a request"),
            ("; i < n; i += threads", "; i < n; i += n", "never written"),
            ("; i < n;", "; i <= n;", "past the end"),
            ("2.0f", "3.0f", "element 0 is"),
            (strided, within_block, "with n = 5000 element 2048 was never written"),
            (begin, &off_by_one, "begin where a sector does"),
        ],
    );
    // Wide loads are as good.
    let wide = "extern \"C\" __global__ void scale(const float *x, float *y, int n) {
        int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);
        if (i + 3 < n) {
            float4 v = *(const float4 *)(x + i);
            *(float4 *)(y + i) = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
        } else { for (; i < n; ++i) { y[i] = 2 * x[i]; } }
    }";
    assert!(scale(wide).passed(), "{}", scale(wide).text());
}

#[test]
fn two_kinds_sees_lanes_part() {
    let by_thread = "int i = t;";
    let own = "int i = t / 64 * 64 + t % 32 * 2 + t / 32 % 2;";
    let arms = "if (i % 2 == 0) { for (int k = 0; k < 64; ++k) { value = value * 0.5f + 1.0f; } }
        else { for (int k = 0; k < 64; ++k) { value = value * value - 0.5f; } }";
    let both = "float a = value, b = value;
        for (int k = 0; k < 64; ++k) { a = a * 0.5f + 1.0f; b = b * b - 0.5f; }
        value = i % 2 == 0 ? a : b;";
    expect(
        two_kinds,
        TWO_KINDS,
        &[
            (own, by_thread, "lanes of a warp part"),
            ("i % 2 == 0", "t / 32 % 2 == 1", "element 0 is"),
            ("t % 32 * 2", "t % 32", "element"),
            ("if (i < n)", "", "past the end"),
        ],
    );
    let source = TWO_KINDS.replace(own, by_thread).replace(arms, both);
    let text = two_kinds(&source).text();
    assert!(text.contains("computing both"), "{text}");
}
