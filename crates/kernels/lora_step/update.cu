// idea: AdamW over all adapters of a model in one kernel: `offsets` says where a number of A or B stands among the bf16 weights.
// constants: THREADS of a block.
#include "../gpt_step/rows.cuh"

// As gpt_step/update has them.
struct Settings {
    float rate, beta1, beta2, epsilon, decay, most, correction1, correction2;
};

// Of A's numbers: the weights hold them times `scale`, alpha / rank. -1 is no parameter: of B what would let an adapter read another
// one's products.
const int OF_A = 1 << 30;

__device__ __forceinline__ float factor_of(int offset, float scale) {
    return offset < 0 ? 0.0f : offset & OF_A ? scale : 1.0f;
}

// Each block leaves the sum of its squares.
extern "C" __global__ void __launch_bounds__(THREADS)
    lora_squares(const float *gradient, const int *offsets, float *sums, float scale, int count) {
    float total = 0.0f;
    for (int at = blockIdx.x * THREADS + threadIdx.x; at < count; at += gridDim.x * THREADS) {
        float factor = factor_of(offsets[at], scale);
        float own = factor == 0.0f ? 0.0f : gradient[at] * factor;
        total += own * own;
    }
    total = block_sum<THREADS / 32>(total);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = total;
    }
}

// Where the norm or the loss is no finite number, nothing is updated.
extern "C" __global__ void __launch_bounds__(THREADS)
    lora_adamw(float *master, float *m, float *v, const float *gradient, const int *offsets, bf16 *weights,
               const float *tallied, const float *given, float scale, int count) {
    Settings set = *(const Settings *)given;
    float norm = tallied[1];
    int at = blockIdx.x * THREADS + threadIdx.x;
    if (at >= count || !(fabsf(norm + tallied[0]) < 3.0e38f)) {
        return;
    }
    int offset = offsets[at];
    if (offset < 0) {
        return;
    }
    float factor = factor_of(offset, scale);
    float clip = set.most > 0.0f && norm > set.most ? set.most / norm : 1.0f;
    float g = gradient[at] * factor * clip;
    float first = m[at] = set.beta1 * m[at] + (1.0f - set.beta1) * g;
    float second = v[at] = set.beta2 * v[at] + (1.0f - set.beta2) * g * g;
    float x = master[at];
    x -= set.rate * (first * set.correction1 / (sqrtf(second * set.correction2) + set.epsilon) + set.decay * x);
    master[at] = x;
    weights[offset & ~OF_A] = __float2bfloat16(x * factor);
}
