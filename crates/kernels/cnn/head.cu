// idea: the rest of the forward pass and the beginning of the backward pass, a block for each image.
// constants: none. 128 threads, one for each hidden unit.
#include "network.cuh"

typedef unsigned int u32;
enum { STRETCHES = 36 };

// hidden [batch, 128] after ReLU, d_hidden the gradient before it, d_logits [batch, 10]; losses and hits of each image.
extern "C" __global__ __launch_bounds__(128) void head(
    const float *partial, const unsigned char *labels, const u32 *order, const u32 *state, const float *scale,
    const float *w, float *hidden, float *d_hidden, float *d_logits, float *losses, u32 *hits, int batch
) {
    __shared__ float unit[HIDDEN], logit[CLASSES];
    int item = blockIdx.x, j = threadIdx.x, warp = j / 32, lane = j % 32;

    float sum = w[FC1_BIAS + j];
#pragma unroll
    for (int stretch = 0; stretch < STRETCHES; ++stretch) {
        sum += partial[((size_t)stretch * batch + item) * HIDDEN + j];
    }
    // A NaN stays one, as `fmaxf` would not have it.
    float value = sum <= 0.0f ? 0.0f : sum;
    unit[j] = value;
    hidden[(size_t)item * HIDDEN + j] = value;
    __syncthreads();

    for (int c = warp; c < CLASSES; c += 4) {
        float dot = 0.0f;
        for (int i = lane; i < HIDDEN; i += 32) {
            dot += w[FC2_WEIGHT + c * HIDDEN + i] * unit[i];
        }
        for (int half = 16; half > 0; half /= 2) {
            dot += __shfl_down_sync(0xffffffff, dot, half);
        }
        if (lane == 0) {
            logit[c] = dot + w[FC2_BIAS + c];
        }
    }
    __syncthreads();

    // Ten numbers: each thread does all of them.
    int label = labels[order[state[SEEN] + item]], best = 0;
    float total = 0.0f;
    for (int c = 1; c < CLASSES; ++c) {
        best = logit[c] > logit[best] ? c : best;
    }
    for (int c = 0; c < CLASSES; ++c) {
        total += expf(logit[c] - logit[best]);
    }
    float gradient = 0.0f, each = scale[0] / batch;
    for (int c = 0; c < CLASSES; ++c) {
        float d = (expf(logit[c] - logit[best]) / total - (c == label ? 1.0f : 0.0f)) * each;
        gradient += d * w[FC2_WEIGHT + c * HIDDEN + j];
        if (j == c) {
            d_logits[(size_t)item * CLASSES + c] = d;
        }
    }
    d_hidden[(size_t)item * HIDDEN + j] = value > 0.0f ? gradient : 0.0f;
    if (j == 0) {
        losses[item] = logf(total) - (logit[label] - logit[best]);
        hits[item] = best == label;
    }
}

// Mean loss and hits of the batch, at this step's place in the epoch's history. The last kernel of a step.
extern "C" __global__ __launch_bounds__(32) void tally(
    const float *losses, const u32 *hits, u32 *state, float *loss_history, u32 *hit_history, int batch, int capacity
) {
    float loss = 0.0f;
    u32 right = 0;
    for (int i = threadIdx.x; i < batch; i += 32) {
        loss += losses[i];
        right += hits[i];
    }
    for (int half = 16; half > 0; half /= 2) {
        loss += __shfl_down_sync(0xffffffff, loss, half);
        right += __shfl_down_sync(0xffffffff, right, half);
    }
    if (threadIdx.x == 0) {
        int at = (int)state[BATCHES];
        if (at < capacity) {
            loss_history[at] = loss / batch;
            hit_history[at] = right;
        }
        if (state[BAD] != 0 && state[FIRST_BAD] == 0) {
            state[FIRST_BAD] = at + 1;
        }
        state[BATCHES] = at + 1;
        state[SEEN] += batch;
    }
}
