// idea: flash_backward/06_warp_specialised on heads as they lie beside each other, with what comes before and after it.
// constants: those of that rung, and HEADS of a token; THREADS of a block of the two small kernels; ORDERED or not, see below.
#include "heads.cuh"
#include "../flash_backward/backward.cuh"

#if ORDERED
// In place of adding to sums that all blocks share, in any order, each block of keys has an area of its own: round_dq adds them
// up, always in the same order.
__device__ __forceinline__ size_t own_unit(int head, int padded, int query, int column) {
    return (size_t)blockIdx.x * gridDim.y * padded * HEAD + dq_unit(head, padded, query, column);
}
__device__ __forceinline__ void set_4(float *to, const float (&sum)[4]) {
    *(float4 *)to = make_float4(sum[0], sum[1], sum[2], sum[3]);
}
#define dq_unit own_unit
#define add_4 set_4
#endif

extern "C" __global__ void flash_backward(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                                          const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap d_o_map,
                                          const float *rows, float *dq_sums, const __grid_constant__ TensorMap dk_map,
                                          const __grid_constant__ TensorMap dv_map, int length, int group, float scale,
                                          int causal);

#include "../flash_backward/06_warp_specialised.cu"

// As flash_backward/ends: log-sum-exp and delta of each query, heads filled up to `padded`; sums of dq begin at 0.
extern "C" __global__ void __launch_bounds__(THREADS)
    prepare_sums(const bf16 *o, const bf16 *d_o, const float *lse, float *rows, float *sums, int length, int padded) {
#if !ORDERED
    size_t block = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
    float4 *to = (float4 *)&sums[(block * THREADS + threadIdx.x) * 8];
    to[0] = to[1] = float4{};
#endif
    int piece = threadIdx.x % (HEAD / 8);
    int row = blockIdx.x * (THREADS * 8 / HEAD) + threadIdx.x / (HEAD / 8);
    int head = blockIdx.y;
    float delta = 0.0f;
    if (row < length) {
        size_t at = ((size_t)(head / HEADS) * length + row) * (HEADS * HEAD) + head % HEADS * HEAD + piece * 8;
        uint4 o_part = *(const uint4 *)&o[at];
        uint4 d_part = *(const uint4 *)&d_o[at];
        for (int i = 0; i < 8; ++i) {
            delta += (float)((const bf16 *)&o_part)[i] * (float)((const bf16 *)&d_part)[i];
        }
    }
    for (int distance = HEAD / 16; distance > 0; distance /= 2) {
        delta += __shfl_xor_sync(~0u, delta, distance);
    }
    if (piece == 0 && row < padded) {
        rows += (size_t)head * 2 * padded;
        rows[row] = row < length ? lse[(size_t)head * length + row] : __int_as_float(0x7f800000);
        rows[padded + row] = delta;
    }
}

// Sums of dq, as add_4 leaves them, to the first third of each token's row: 16 queries × 16 numbers a warp.
extern "C" __global__ void __launch_bounds__(THREADS)
    round_dq(const float *sums, bf16 *d_qkv, int length, int padded, float scale) {
    int lane = threadIdx.x % 32;
    int unit = (blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * 2;
    int row = unit / (HEAD / 8) * 16 + lane / 4;
    int head = blockIdx.y;
    const float4 *from = (const float4 *)&sums[(size_t)head * padded * HEAD + (size_t)unit * 128 + lane * 4];
    float4 left = from[0];
    float4 right = from[32];
#if ORDERED
    // Of the causal mask's blocks of keys those that some query of the tile sees.
    int last = unit / (HEAD / 8) * 16 / QUERIES * QUERIES + QUERIES - 1;
    for (int block = 1; block * KEYS <= min(last, length - 1); ++block) {
        const float4 *more = from + (size_t)block * gridDim.y * padded * (HEAD / 4);
        float4 a = more[0], b = more[32];
        left = make_float4(left.x + a.x, left.y + a.y, left.z + a.z, left.w + a.w);
        right = make_float4(right.x + b.x, right.y + b.y, right.z + b.z, right.w + b.w);
    }
#endif
    unsigned int left_part[2] = {both(left.x * scale, left.y * scale), both(left.z * scale, left.w * scale)};
    unsigned int right_part[2] = {both(right.x * scale, right.y * scale), both(right.z * scale, right.w * scale)};
    // Of two neighbours the even one takes four columns of the left unit, the odd one of the right.
    bool odd = lane % 2;
    int column = unit % (HEAD / 8) * 8 + (odd ? 8 : 0) + lane % 4 / 2 * 4;
    d_qkv += (size_t)(head / HEADS) * length * (3 * HEADS * HEAD) + head % HEADS * HEAD;
    for (int half = 0; half < 2; ++half) {
        unsigned int other = __shfl_xor_sync(~0u, odd ? left_part[half] : right_part[half], 1);
        uint2 four = odd ? uint2{other, right_part[half]} : uint2{left_part[half], other};
        if (row + half * 8 < length) {
            *(uint2 *)&d_qkv[(size_t)(row + half * 8) * (3 * HEADS * HEAD) + column] = four;
        }
    }
}
