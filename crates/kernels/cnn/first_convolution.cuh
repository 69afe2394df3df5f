// The first convolution and its ReLU: 26 × 26 pixels of 32 channels, for both passes.
#pragma once
#include "network.cuh"
#include "tensor.cuh"

// Pixels that a warp computes at a time: half a row. Their 45 inputs are loaded once, and used for all nine taps.
enum { HALF = SIDE1 / 2, HALVES = 2 * SIDE1 };

// Pixels left to left + 14 of rows y to y + 2.
__device__ __forceinline__ void load_half(float (&rows)[3][HALF + 2], const float *image, int y, int left) {
#pragma unroll
    for (int row = 0; row < 3; ++row) {
#pragma unroll
        for (int x = 0; x < HALF + 2; ++x) {
            rows[row][x] = image[(y + row) * IMAGE + left + x];
        }
    }
}

// A lane computes a channel; what it finds goes to `store(y, x, value)`, as a product takes it.
template <class Store>
__device__ __forceinline__ void first_convolution(const float *image, const float *w, Store store) {
    int channel = threadIdx.x % 32;
    float weight[9], bias = w[CONV1_BIAS + channel];
#pragma unroll
    for (int i = 0; i < 9; ++i) {
        weight[i] = w[CONV1_WEIGHT + channel * 9 + i];
    }
    for (int half = threadIdx.x / 32; half < HALVES; half += blockDim.x / 32) {
        int y = half / 2, left = half % 2 * HALF;
        float rows[3][HALF + 2];
        load_half(rows, image, y, left);
#pragma unroll
        for (int x = 0; x < HALF; ++x) {
            float sum = bias;
#pragma unroll
            for (int i = 0; i < 9; ++i) {
                sum += weight[i] * rows[i / 3][x + i % 3];
            }
            store(y, left + x, rounded(fmaxf(sum, 0.0f)));
        }
    }
}

// An image's bytes as numbers from 0 to 1.
__device__ __forceinline__ void load_image(float *image, const unsigned char *pixels) {
    for (int i = threadIdx.x; i < IMAGE * IMAGE / 4; i += blockDim.x) {
        uchar4 four = ((const uchar4 *)pixels)[i];
        const float scale = 1.0f / 255.0f;
        ((float4 *)image)[i] = make_float4(four.x * scale, four.y * scale, four.z * scale, four.w * scale);
    }
}
