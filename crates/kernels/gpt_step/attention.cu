// idea: flash_attention/09_ping_pong on heads as the product of q, k and v leaves them: nothing is laid out anew.
// constants: those of that rung, and HEADS of a token.
#define STORE_LSE
#include "heads.cuh"

extern "C" __global__ void flash_attention(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                                           const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap o_map,
                                           int length, int group, float scale, int causal, float *lse);

#include "../flash_attention/09_ping_pong.cu"
