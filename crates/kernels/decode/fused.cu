// idea: five kernels a layer: norm, bias, cache, GELU and residual belong to the kernel that reads the next matrix.
// constants: WIDTH, HIDDEN, HEAD (the head dimension) of the model; THREADS per block, a warp for each row of a matrix.
#include "parts.cuh"

// The row of the matrix that this warp multiplies.
__device__ int own_row() { return blockIdx.x * WARPS + threadIdx.x / 32; }

// weights[own row] · norm(x), in each lane. The row is fetched before the kernel in front has ended.
__device__ float norm_dot(const float *x, const float *norm_weight, const float *norm_bias, const bf16 *weights,
                          int rows) {
    __shared__ Row row;
    let_next_start();
    uint4 own[EACH];
    fetch_row(weights + (size_t)own_row() * WIDTH, own_row() < rows, own);
    Norm norm;
    norm.fetch_weights(norm_weight, norm_bias);
    wait_for_former();
    norm.apply(x, row);
    float own_x[EACH][8];
    own_part(row, own_x);
    return warp_sum(dot_row(own, own_x));
}

// q, k and v of norm(x); k and v go into the cache.
extern "C" __global__ void __launch_bounds__(THREADS)
    norm_qkv(const float *x, const float *norm_weight, const float *norm_bias, const bf16 *weights, const float *bias,
             float *qkv, bf16 *caches, const int *state, int layer, int context) {
    int row = own_row();
    float value = norm_dot(x, norm_weight, norm_bias, weights, 3 * WIDTH);
    if (threadIdx.x % 32 == 0 && row < 3 * WIDTH) {
        value += bias[row];
        int kind = row / WIDTH, column = row % WIDTH;
        if (kind == 0) {
            qkv[row] = value;
        } else {
            bf16 *cache = caches + (size_t)layer * 2 * WIDTH * context;
            size_t at = ((size_t)(column / HEAD) * context + state[0]) * HEAD + column % HEAD;
            cache[at + (size_t)(kind - 1) * WIDTH * context] = value;
        }
    }
}

// The hidden units: gelu(weights · norm(x) + bias).
extern "C" __global__ void __launch_bounds__(THREADS)
    norm_up(const float *x, const float *norm_weight, const float *norm_bias, const bf16 *weights, const float *bias,
            float *units) {
    int row = own_row();
    float value = norm_dot(x, norm_weight, norm_bias, weights, HIDDEN);
    if (threadIdx.x % 32 == 0 && row < HIDDEN) {
        units[row] = gelu(value + bias[row]);
    }
}

// x += weights · from + bias.
template <int COLUMNS>
__device__ void project(const bf16 *weights, const float *bias, const float *from, float *x) {
    constexpr int MANY = (COLUMNS / 8 + 31) / 32;
    int row = own_row(), lane = threadIdx.x % 32;
    let_next_start();
    uint4 own[MANY];
#pragma unroll
    for (int each = 0; each < MANY; ++each) {
        int at = each * 32 + lane;
        own[each] = make_uint4(0, 0, 0, 0);
        if (row < WIDTH && at < COLUMNS / 8) {
            own[each] = fetch(weights + (size_t)row * COLUMNS + 8 * at);
        }
    }
    wait_for_former();
    float sum = 0.0f;
#pragma unroll
    for (int each = 0; each < MANY; ++each) {
        int at = each * 32 + lane;
        if (at < COLUMNS / 8) {
            float4 a = __ldcg((const float4 *)from + 2 * at), b = __ldcg((const float4 *)from + 2 * at + 1);
            float numbers[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
            sum = dot(own[each], numbers, sum);
        }
    }
    sum = warp_sum(sum);
    if (lane == 0 && row < WIDTH) {
        x[row] = __ldcg(x + row) + sum + bias[row];
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    project_attended(const bf16 *weights, const float *bias, const float *attended, float *x) {
    project<WIDTH>(weights, bias, attended, x);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    project_units(const bf16 *weights, const float *bias, const float *units, float *x) {
    project<HIDDEN>(weights, bias, units, x);
}
