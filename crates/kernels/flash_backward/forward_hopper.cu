// idea: the forward pass that a backward pass follows, on Hopper: it leaves the log-sum-exp of each query, too.
// constants: those of flash_attention/09_ping_pong, whose kernel it is.
#define STORE_LSE
#include "../matmul_bf16/hopper.cuh"

extern "C" __global__ void flash_attention(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                                           const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap o_map,
                                           int length, int group, float scale, int causal, float *lse);

#include "../flash_attention/09_ping_pong.cu"
