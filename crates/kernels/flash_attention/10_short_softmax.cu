// idea: the way from the scores to the next product is made shorter: fewer instructions, and fewer that wait for the one before.
// changed: against rung 08, uniform descriptors, made once; masks only in the steps at the edge; a softmax of two rows at once.
// constants: as before.
#include "online.cuh"
#include "wgmma.cuh"

struct Shared {
    bf16 q[HEAD / 64][GROUPS * 64 * 64];
    bf16 k[STAGES][HEAD / 64][KEYS * 64];
    bf16 v[STAGES][HEAD / 64][KEYS * 64];
    u64 q_full;
    u64 k_full[STAGES], k_empty[STAGES], v_full[STAGES], v_empty[STAGES];
};

// As `softmax`, but of both rows at once, and with two partial maxima and sums for each: four chains of instructions that
// do not wait for each other.
template <int N>
__device__ __forceinline__ void softmax_of_both(float (&s)[N][4], Rows &rows, float (&factor)[2], float scale) {
    float most[2][2] = {{rows.most[0], s[0][0]}, {rows.most[1], s[0][2]}};
#pragma unroll
    for (int x = 0; x < N; ++x) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            most[half][x % 2] = fmaxf(most[half][x % 2], fmaxf(s[x][half * 2], s[x][half * 2 + 1]));
        }
    }
    float shift[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        float all = fmaxf(most[half][0], most[half][1]);
        all = fmaxf(all, __shfl_xor_sync(~0u, all, 1));
        all = fmaxf(all, __shfl_xor_sync(~0u, all, 2));
        shift[half] = all * scale;
        factor[half] = power(rows.most[half] * scale - shift[half]);
        rows.most[half] = all;
    }
    float total[2][2] = {};
#pragma unroll
    for (int x = 0; x < N; ++x) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            s[x][i] = power(s[x][i] * scale - shift[i / 2]);
            total[i / 2][i % 2] += s[x][i];
        }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        rows.total[half] = rows.total[half] * factor[half] + (total[half][0] + total[half][1]);
    }
}

// A tile of k or v, panel by panel.
__device__ void fetch(bf16 (&to)[HEAD / 64][KEYS * 64], const TensorMap *map, int row, int head, u64 *full) {
    arrive_and_expect(full, KEYS * HEAD * 2);
    for (int panel = 0; panel < HEAD / 64; ++panel) {
        tma_load(to[panel], map, panel * 64, row, head, full);
    }
}

extern "C" __global__ void __launch_bounds__(GROUPS * 128 + 128, 1)
    flash_attention(const __grid_constant__ TensorMap q_map, const __grid_constant__ TensorMap k_map,
                    const __grid_constant__ TensorMap v_map, const __grid_constant__ TensorMap o_map, int length,
                    int group, float scale, int causal) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    // All threads of a warp have the same number. The compiler knows that of a shuffle's result only, and then needs no move
    // into a uniform register for each product.
    int warpgroup = __shfl_sync(~0u, threadIdx.x / 128, 0);
    // Under a causal mask the last queries have most to do: they begin.
    int row0 = (causal ? gridDim.x - 1 - blockIdx.x : blockIdx.x) * GROUPS * 64;
    int head = blockIdx.y;
    // Up to the last key that one of the block's queries sees, from the last tile to the first.
    int keys = causal ? min(length, row0 + GROUPS * 64) : length;
    int tiles = (keys + KEYS - 1) / KEYS;
    if (threadIdx.x == 0) {
        barrier_init(&shared.q_full, 1);
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&shared.k_full[stage], 1);
            barrier_init(&shared.k_empty[stage], GROUPS);
            barrier_init(&shared.v_full[stage], 1);
            barrier_init(&shared.v_empty[stage], GROUPS);
        }
        barriers_are_ready();
    }
    __syncthreads();
    if (warpgroup == 0) {
        give_registers<SPARE>();
        if (threadIdx.x == 0) {
            arrive_and_expect(&shared.q_full, GROUPS * 64 * HEAD * 2);
            for (int panel = 0; panel < HEAD / 64; ++panel) {
                for (int part = 0; part < GROUPS * 64; part += 64) {
                    tma_load(shared.q[panel] + part * 64, &q_map, panel * 64, row0 + part, head, &shared.q_full);
                }
            }
            // k is needed a step before v.
            for (int step = 0; step <= tiles; ++step) {
                // The first round finds its stages free: they count as left by a phase of parity 1.
                // `group` heads of q share one head of k and v.
                if (step < tiles) {
                    int stage = step % STAGES;
                    wait(&shared.k_empty[stage], step / STAGES % 2 ^ 1);
                    fetch(shared.k[stage], &k_map, (tiles - 1 - step) * KEYS, head / group, &shared.k_full[stage]);
                }
                if (step > 0) {
                    int stage = (step - 1) % STAGES;
                    wait(&shared.v_empty[stage], (step - 1) / STAGES % 2 ^ 1);
                    fetch(shared.v[stage], &v_map, (tiles - step) * KEYS, head / group, &shared.v_full[stage]);
                }
            }
        }
        return;
    }
    take_registers<REGISTERS>();
    int consumer = warpgroup - 1;
    int thread = threadIdx.x % 128;
    int first_row = row0 + consumer * 64;
    float s[KEYS / 8][4];
    u32 p[KEYS / 16][4];
    float o_part[HEAD / 8][4] = {};
    float factor[2];
    Rows rows;
    // A stage further on, a descriptor is so many units of 16 bytes larger.
    const u64 STAGE = KEYS * HEAD * 2 / 16;
    u64 q_tile = tile_descriptor(shared.q[0] + consumer * 64 * 64, 16, 1024);
    u64 k_tiles = tile_descriptor(shared.k[0][0], 16, 1024);
    u64 v_tiles = tile_descriptor(shared.v[0][0], KEYS * 128, 1024);
    auto start_scores = [&](int stage) {
        wgmma_fence();
        u64 k_tile = k_tiles + stage * STAGE;
#pragma unroll
        for (int part = 0; part < HEAD / 16; ++part) {
            // Descriptors count in 16 bytes: 16 columns of a panel are 32 bytes, a row of it 128.
            int panel = part / 4;
            int at = part % 4 * 2;
            multiply(s, q_tile + panel * GROUPS * 64 * 8 + at, k_tile + panel * KEYS * 8 + at, part > 0);
        }
        wgmma_commit();
    };
    auto start_output = [&](int stage) {
        wgmma_fence();
        u64 v_tile = v_tiles + stage * STAGE;
#pragma unroll
        for (int part = 0; part < KEYS / 16; ++part) {
            multiply(o_part, p[part], v_tile + part * 128);
        }
        wgmma_commit();
    };
    // The scores of a step: those that are not to be seen hidden, the others as exponentials.
    auto weigh = [&](int step, bool at_the_edge) {
        if (at_the_edge) {
            hide(s, (tiles - 1 - step) * KEYS, first_row + thread / 32 * 16 + thread % 32 / 4, length, causal);
        }
        softmax_of_both(s, rows, factor, scale);
    };
    auto release = [&](u64 *empty) {
        if (thread == 0) {
            arrive(empty);
        }
    };
    wait(&shared.q_full, 0);
    wait(&shared.k_full[0], 0);
    start_scores(0);
    wgmma_wait<0>();
    arrived(s);
    release(&shared.k_empty[0]);
    weigh(0, true);
    pack(p, s);
    auto turn = [&](int step, bool at_the_edge) {
        int stage = step % STAGES;
        int before = (step - 1) % STAGES;
        wait(&shared.k_full[stage], step / STAGES % 2);
        start_scores(stage);
        wait(&shared.v_full[before], (step - 1) / STAGES % 2);
        start_output(before);
        // The scores are here; the output goes on while they are weighed.
        wgmma_wait<1>();
        arrived(s);
        release(&shared.k_empty[stage]);
        weigh(step, at_the_edge);
        wgmma_wait<0>();
        arrived(o_part);
        release(&shared.v_empty[before]);
        multiply_rows(o_part, factor);
        pack(p, s);
    };
    // The last tile may hang over the last key, and under a causal mask the tiles from the warpgroup's first query on have keys
    // behind a query. These come first; the loop after them has no code for masks.
    int at_the_edge = causal ? tiles - first_row / KEYS : 1;
    for (int step = 1; step < min(at_the_edge, tiles); ++step) {
        turn(step, true);
    }
    for (int step = max(at_the_edge, 1); step < tiles; ++step) {
        turn(step, false);
    }
    wait(&shared.v_full[(tiles - 1) % STAGES], (tiles - 1) / STAGES % 2);
    start_output((tiles - 1) % STAGES);
    wgmma_wait<0>();
    arrived(o_part);
    finish(rows, factor);
    multiply_rows(o_part, factor);
    // Whole rows leave through this warpgroup's part of q's place, which nobody reads any more.
#pragma unroll
    for (int panel = 0; panel < HEAD / 64; ++panel) {
        bf16 *tile = shared.q[panel] + consumer * 64 * 64;
        int row = thread / 32 * 16 + thread % 16;
#pragma unroll
        for (int piece = 0; piece < 8; piece += 2) {
            int swizzled = (piece + thread % 32 / 16) ^ (row % 8);
            float(&left)[4] = o_part[panel * 8 + piece];
            float(&right)[4] = o_part[panel * 8 + piece + 1];
            store_matrices(tile + row * 64 + swizzled * 8, both(left[0], left[1]), both(left[2], left[3]),
                           both(right[0], right[1]), both(right[2], right[3]));
        }
    }
    fence_async();
    warpgroup_sync(1 + consumer);
    if (thread == 0 && first_row < length) {
        for (int panel = 0; panel < HEAD / 64; ++panel) {
            tma_store(&o_map, shared.q[panel] + consumer * 64 * 64, panel * 64, first_row, head);
        }
        tma_stores_read<0>();
    }
}
