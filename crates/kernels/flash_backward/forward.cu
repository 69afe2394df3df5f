// idea: the forward pass that a backward pass follows: it leaves the log-sum-exp of each query, too.
// constants: those of flash_attention/05_swizzle, whose kernel it is.
#define STORE_LSE
#include "../matmul_bf16/ampere.cuh"

extern "C" __global__ void flash_attention(const bf16 *q, const bf16 *k, const bf16 *v, bf16 *o, int length, int group,
                                           float scale, int causal, float *lse);

#include "../flash_attention/05_swizzle.cu"
