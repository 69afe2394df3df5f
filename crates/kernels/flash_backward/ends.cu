// idea: what comes before and after the backward pass: delta, the sum of o · do of each query; and dq from f32 to bf16.
// constants: HEAD, the head dimension; THREADS of a block.
#include "backward.cuh"

// What the weights are worked out from again, for each head the log-sum-exp of all its queries, as the forward pass left
// it, and then delta of all of them. Heads are `padded` queries long here: those beyond the last one get weights of 0 by a
// log-sum-exp of infinity.
__device__ void prepare_row(const bf16 *o, const bf16 *d_o, const float *lse, float *rows, int length, int padded) {
    // Neighbours share a query, 8 numbers each.
    int piece = threadIdx.x % (HEAD / 8);
    int row = blockIdx.x * (THREADS * 8 / HEAD) + threadIdx.x / (HEAD / 8);
    int head = blockIdx.y;
    float delta = 0.0f;
    if (row < length) {
        size_t at = ((size_t)head * length + row) * HEAD + piece * 8;
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
        float infinity = __int_as_float(0x7f800000);
        rows += (size_t)head * 2 * padded;
        rows[row] = row < length ? lse[(size_t)head * length + row] : infinity;
        rows[padded + row] = delta;
    }
}

// For rungs that write dq themselves.
extern "C" __global__ void prepare(const bf16 *o, const bf16 *d_o, const float *lse, float *rows, int length, int padded) {
    prepare_row(o, d_o, lse, rows, length, padded);
}

// For rungs that add to sums of dq: these begin at 0. As many numbers as a thread reads are zeroed by it.
extern "C" __global__ void prepare_sums(const bf16 *o, const bf16 *d_o, const float *lse, float *rows, float *sums,
                                        int length, int padded) {
    size_t block = (size_t)blockIdx.y * gridDim.x + blockIdx.x;
    float4 *to = (float4 *)&sums[(block * THREADS + threadIdx.x) * 8];
    to[0] = to[1] = float4{};
    prepare_row(o, d_o, lse, rows, length, padded);
}

// Sums of dq, as add_4 leaves them, to rows of bf16: 16 queries × 16 numbers a warp, whole sectors of 32 bytes.
extern "C" __global__ void round_dq(const float *sums, bf16 *dq, int length, int padded, float scale) {
    int lane = threadIdx.x % 32;
    // Two units of 8 columns, one beside the other.
    int unit = (blockIdx.x * (THREADS / 32) + threadIdx.x / 32) * 2;
    int row = unit / (HEAD / 8) * 16 + lane / 4;
    int head = blockIdx.y;
    const float4 *from = (const float4 *)&sums[(size_t)head * padded * HEAD + (size_t)unit * 128 + lane * 4];
    float4 left = from[0];
    float4 right = from[32];
    unsigned int left_part[2] = {both(left.x * scale, left.y * scale), both(left.z * scale, left.w * scale)};
    unsigned int right_part[2] = {both(right.x * scale, right.y * scale), both(right.z * scale, right.w * scale)};
    // Of two neighbours the even one takes four columns of the left unit, the odd one of the right.
    bool odd = lane % 2;
    int column = unit % (HEAD / 8) * 8 + (odd ? 8 : 0) + lane % 4 / 2 * 4;
    dq += (size_t)head * length * HEAD;
    for (int half = 0; half < 2; ++half) {
        unsigned int other = __shfl_xor_sync(~0u, odd ? left_part[half] : right_part[half], 1);
        uint2 four = odd ? uint2{other, right_part[half]} : uint2{left_part[half], other};
        if (row + half * 8 < length) {
            *(uint2 *)&dq[(size_t)(row + half * 8) * HEAD + column] = four;
        }
    }
}
