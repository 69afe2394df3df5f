// idea: AdamW over all parameters in one kernel: it clips by the norm of all gradients, and writes the bf16 weights too.
// constants: THREADS of a block.
#include "rows.cuh"

// What a step is given: the learning rate and AdamW's numbers; the corrections 1 / (1 - beta^step) come from the host.
struct Settings {
    float rate, beta1, beta2, epsilon, decay, most, correction1, correction2;
};

// Each block leaves the sum of its squares.
extern "C" __global__ void __launch_bounds__(THREADS) squares(const float *gradient, float *sums, int count) {
    float total = 0.0f;
    int fours = count / 4;
#pragma unroll 4
    for (int at = blockIdx.x * THREADS + threadIdx.x; at < fours; at += gridDim.x * THREADS) {
        float4 g = ((const float4 *)gradient)[at];
        total += g.x * g.x + g.y * g.y + g.z * g.z + g.w * g.w;
    }
    total = block_sum<THREADS / 32>(total);
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = total;
    }
}

// The norm of all gradients, and the mean of all losses: in their order.
extern "C" __global__ void __launch_bounds__(THREADS)
    tally(const float *sums, const float *losses, float *tallied, int blocks, int rows) {
    float total = 0.0f, loss = 0.0f;
    for (int at = threadIdx.x; at < blocks; at += THREADS) {
        total += sums[at];
    }
    for (int at = threadIdx.x; at < rows; at += THREADS) {
        loss += losses[at];
    }
    total = block_sum<THREADS / 32>(total);
    loss = block_sum<THREADS / 32>(loss);
    if (threadIdx.x == 0) {
        tallied[0] = loss / rows;
        tallied[1] = sqrtf(total);
    }
}

// Weights decay, scales, shifts and biases do not: of each layer these are the numbers from `matrices` on. Where the norm or the loss
// is no finite number, nothing is updated.
extern "C" __global__ void __launch_bounds__(THREADS)
    adamw(float *master, float *m, float *v, const float *gradient, bf16 *weights, const float *tallied,
          const float *given, int head, int layer, int layers, int matrices, int from, int to) {
    Settings set = *(const Settings *)given;
    float norm = tallied[1];
    if (!(fabsf(norm + tallied[0]) < 3.0e38f)) {
        return;
    }
    float clip = set.most > 0.0f && norm > set.most ? set.most / norm : 1.0f;
    for (int at = from / 4 + blockIdx.x * THREADS + threadIdx.x; at < to / 4; at += gridDim.x * THREADS) {
        int number = at * 4;
        int inner = number - head;
        bool decays = inner < 0 || (inner < layer * layers && inner % layer < matrices);
        float keep = decays ? 1.0f - set.rate * set.decay : 1.0f;
        float4 g4 = ((const float4 *)gradient)[at];
        float4 p4 = ((float4 *)master)[at], m4 = ((float4 *)m)[at], v4 = ((float4 *)v)[at];
        float(&p)[4] = *(float(*)[4]) & p4;
        float(&first)[4] = *(float(*)[4]) & m4;
        float(&second)[4] = *(float(*)[4]) & v4;
        const float(&g)[4] = *(const float(*)[4]) & g4;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            float d = g[i] * clip;
            first[i] = set.beta1 * first[i] + (1.0f - set.beta1) * d;
            second[i] = set.beta2 * second[i] + (1.0f - set.beta2) * d * d;
            float step = first[i] * set.correction1 / (sqrtf(second[i] * set.correction2) + set.epsilon);
            p[i] = p[i] * keep - set.rate * step;
        }
        ((float4 *)master)[at] = p4;
        ((float4 *)m)[at] = m4;
        ((float4 *)v)[at] = v4;
        __nv_bfloat162 low = __floats2bfloat162_rn(p[0], p[1]), high = __floats2bfloat162_rn(p[2], p[3]);
        ((uint2 *)weights)[at] = make_uint2(*(unsigned int *)&low, *(unsigned int *)&high);
    }
}
