// idea: one thread computes one element of c = a × b, reading a whole row and a whole column from global memory.
// changed: nothing, this is the first rung. a has m rows of k, b has k rows of n, c has m rows of n.
// constants: none; the block's shape is the launch's.
// Metal: the twin of the .cu file beside it. A threadgroup is what CUDA calls a block, a SIMD group a warp.
#include <metal_stdlib>
using namespace metal;

kernel void matmul(device const float *a [[buffer(0)]], device const float *b [[buffer(1)]],
                   device float *c [[buffer(2)]], constant int &m [[buffer(3)]], constant int &n [[buffer(4)]],
                   constant int &k [[buffer(5)]], uint2 position [[thread_position_in_grid]]) {
    int column = int(position.x);
    int row = int(position.y);
    float sum = 0.0f;
    if (row < m && column < n) {
        for (int i = 0; i < k; ++i) {
            sum += a[(size_t)row * k + i] * b[(size_t)i * n + column];
        }
        c[(size_t)row * n + column] = sum;
    }
}
