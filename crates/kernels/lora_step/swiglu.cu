// idea: SwiGLU, silu(gate) · up, with its adapters' products behind each row, and backwards.
// constants: WIDTH of a row of the result, of which `both` has two beside each other; THREADS of a block, a warp a row.
#include "low.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
    lora_swiglu(const bf16 *both, const bf16 *weights, bf16 *to, int a_at, int lows, int rows) {
    int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    const bf16 *own = both + (size_t)row * 2 * WIDTH;
    float x[EIGHTS][8] = {};
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            Eight gate = load_8(own + column_of(e)), up = load_8(own + WIDTH + column_of(e));
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                x[e][i] = gate[i] / (1.0f + __expf(-gate[i])) * up[i];
            }
        }
    }
    to += (size_t)row * (WIDTH + lows);
    store_row(to, x);
    low_of_row(x, weights + a_at, to + WIDTH, lows);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    lora_swiglu_backward(const bf16 *d, const bf16 *weights, const bf16 *both, bf16 *d_both, int a_at, int lows, int rows) {
    int row = blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    if (row >= rows) {
        return;
    }
    const bf16 *own = both + (size_t)row * 2 * WIDTH;
    bf16 *to = d_both + (size_t)row * 2 * WIDTH;
    float x[EIGHTS][8];
    load_gradient(x, d + (size_t)row * (WIDTH + lows), weights + a_at, lows);
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        if (inside(e)) {
            Eight gate = load_8(own + column_of(e)), up = load_8(own + WIDTH + column_of(e));
            float d_gate[8], d_up[8];
#pragma unroll
            for (int i = 0; i < 8; ++i) {
                float sigmoid = 1.0f / (1.0f + __expf(-gate[i]));
                d_up[i] = x[e][i] * gate[i] * sigmoid;
                d_gate[i] = x[e][i] * up[i] * sigmoid * (1.0f + gate[i] * (1.0f - sigmoid));
            }
            store_8(to + column_of(e), d_gate);
            store_8(to + WIDTH + column_of(e), d_up);
        }
    }
}
