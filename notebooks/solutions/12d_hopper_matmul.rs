// Solutions of lesson 12d: each section replaces the exercise cell of that name.

// exercise: wgmma_tile
// One stage: phase `step` of the barrier ends when the five boxes of that step are there, and the next ones are asked for once all four
// warps have seen their products end.
const TILE: &str = r#"#include "hopper.cuh"
extern "C" __global__ void wgmma_tile(const __grid_constant__ TensorMap a_map, const __grid_constant__ TensorMap b_map,
                                      float *c, int m, int n, int k) {
    __shared__ __align__(1024) bf16 a_tile[64 * 64], b_tile[4][64 * 64];
    __shared__ u64 full;
    int thread = threadIdx.x, row0 = blockIdx.y * 64, column0 = blockIdx.x * 256;
    if (thread == 0) {
        barrier_init(&full, 1);
        barriers_are_ready();
    }
    __syncthreads(); // made
    float sum[128] = {};
    for (int step = 0; step * 64 < k; ++step) {
        if (thread == 0) {
            arrive_and_expect(&full, sizeof a_tile + sizeof b_tile);
            tma_load(a_tile, &a_map, step * 64, row0, &full);
            for (int panel = 0; panel < 4; ++panel) {
                tma_load(b_tile[panel], &b_map, column0 + panel * 64, step * 64, &full);
            }
        }
        wait(&full, step % 2);
        wgmma_fence();
        u64 of_a = tile_descriptor(a_tile, 16, 1024), of_b = tile_descriptor(b_tile[0], 64 * 128, 1024);
        for (int part = 0; part < 64; part += 16) {
            wgmma_64x256x16(sum, of_a + part / 8, of_b + part * 8);
        }
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads(); // used
    }
    for (int i = 0; i < 128; ++i) {
        int row = row0 + thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
        int column = column0 + i / 4 * 8 + thread % 4 * 2 + i % 2;
        if (row < m && column < n) c[(size_t)row * n + column] = sum[i];
    }
}"#;

// exercise: narrow_product
// 64 · 32 · 16 · 2 operations at 4096 per cycle are 16 cycles. a has 64 · 16 numbers and b 16 · 32, 3072 bytes: 24 cycles at 128.
let my_busy: Option<f64> = Some(100.0 * 16.0 / 24.0);

// exercise: ring_suspect
// With 8 steps both tiles are right, so sums and places are; with one tile the ring is right at any length. At one step the second tile is
// the first one again: who multiplies asks once more for stage 0 and parity 0, and finds that phase ended. Four stages of two parities:
// after a multiple of 8 steps a count from 0 asks for what is next anyway, and there are 4 of these up to 32.
let my_fault = check::RingFault::Recount;
let my_lengths: Option<usize> = Some(4);
