// idea: a warp of its own fetches, so nobody waits for the block any more; products run while the next codes are unpacked.
// changed: bulk copies bring codes, the TMA brings x, and two barriers a stage say "full" and "empty"; wgmma again.
// constants: BATCH, GROUP, TILES, CLUSTER, BLOCKS, SPLIT as before; WARPS that multiply; STAGES of STEPS, and TURN of them before the
// products of all are waited for.
#include "stages.cuh"
#include "wgmma.cuh"
#include "cluster.cuh"

// Steps of a stage that a warp has: SPLIT warps with the same rows share them.
constexpr int RUN = STEPS / SPLIT, ACROSS = WARPS / SPLIT;
static_assert(STEPS % SPLIT == 0 && ACROSS % 4 == 0, "as many steps for each warp, and whole warpgroups");
// Blocks of a cluster and warps of a block that share rows: each adds up its part of all that they have.
constexpr int PARTIES = CLUSTER * SPLIT, EACH = 4 / PARTIES;
static_assert(PARTIES == 1 || PARTIES == 2 || PARTIES == 4, "of eight vectors, a lane has four sums");

// Registers of a thread that fetches and of one that multiplies, by what a quarter of a multiprocessor has.
constexpr int GROUPS = WARPS / 4, REGISTERS = 512 / (BLOCKS * (GROUPS + 1)) / 8 * 8, GIVEN = 40;
constexpr int TAKEN = (REGISTERS * (GROUPS + 1) - GIVEN) / GROUPS / 8 * 8;

struct Fetched {
    Panels x[STEPS];
    uint4 codes[ROWS / 16][2 * STEPS][32];
};

struct Shared {
    Fetched stages[STAGES];
    // A lane's own part of the sums, as the other parties have it.
    float sums[PARTIES > 1 ? PARTIES - 1 : 1][EIGHTS * EACH * TILES][THREADS];
    u64 full[STAGES], empty[STAGES];
};

// One thread asks for bytes that lie in a row; the barrier counts them.
__device__ void bulk_copy(void *to, const void *from, int bytes, u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// Writes a float of another block of the cluster.
__device__ void store_to(float *own, int rank, float number) {
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; st.shared::cluster.f32 [there], %2; }" ::"r"(
                     shared_address(own)),
                 "r"(rank), "f"(number)
                 : "memory");
}

// four[EACH · party + at]. Registers have no index that is known only when the kernel runs.
__device__ float selected(const float (&four)[4], int party, int at) {
    float number = four[at];
#pragma unroll
    for (int i = 1; i < PARTIES; ++i) {
        number = party == i ? four[i * EACH + at] : number;
    }
    return number;
}

extern "C" __global__ void __launch_bounds__(THREADS + 128, BLOCKS) __cluster_dims__(CLUSTER, 1, 1)
    quantized_matmul(const u32 *fragments, const bf16 *scales, const __grid_constant__ TensorMap x, bf16 *y, int batch,
                     int rows, int columns) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    // The compiler sees that all lanes have the same warp, and takes registers that they share.
    int lane = threadIdx.x % 32, warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0), rank = blockIdx.x % CLUSTER;
    int row0 = blockIdx.x / CLUSTER * ROWS;
    int steps = (columns + STEP - 1) / STEP;
    int first = steps * rank / CLUSTER, last = steps * (rank + 1) / CLUSTER;
    // Stages come in whole turns, the last ones with zeros.
    int end = first + (last - first + TURN * STEPS - 1) / (TURN * STEPS) * (TURN * STEPS);
    // The next kernel may start as soon as each block of this one has come here.
    asm volatile("griddepcontrol.launch_dependents; barrier.cluster.arrive.release;" ::: "memory");
    if (warp >= WARPS) {
        give_registers<GIVEN>();
        // Lane t asks for the codes of tile t; beyond the last tile the last one is read again, and its results dropped.
        const char *codes = (const char *)fragments + (size_t)min(row0 / 16 + lane, (rows - 1) / 16) * columns * 8;
        auto ask_codes = [&](int stage, int step) {
            int bytes = max(min(min(STEPS, last - step) * STEP, columns - step * STEP), 0) * 8;
            if (lane == 0) {
                arrive_and_expect(&shared.full[stage], ROWS / 16 * bytes + STEPS * (int)sizeof(Panels));
            }
            __syncwarp();
            if (lane < ROWS / 16 && bytes > 0) {
                bulk_copy(shared.stages[stage].codes[lane], codes + (size_t)step * STEP * 8, bytes, &shared.full[stage]);
            }
        };
        auto ask_x = [&](int stage, int step) {
            // Zeros where there is no such step: all columns of the box lie beyond the matrix.
            int at = step + lane / 2, column = at < last ? at * STEP + lane % 2 * 64 : columns;
            if (lane < 2 * STEPS) {
                tma_load(shared.stages[stage].x[lane / 2][lane % 2], &x, column, 0, &shared.full[stage]);
            }
        };
        if (warp == WARPS && lane == 0) {
            for (int stage = 0; stage < STAGES; ++stage) {
                barrier_init(&shared.full[stage], 1);
                barrier_init(&shared.empty[stage], WARPS);
            }
            barriers_are_ready();
        }
        __syncwarp();
        if (warp == WARPS) {
            for (int stage = 0; stage < STAGES && first + stage * STEPS < end; ++stage) {
                ask_codes(stage, first + stage * STEPS);
            }
        }
        __syncthreads();
        if (warp == WARPS) {
            // Everything that the kernel in front wrote, x, can be seen behind this line.
            asm volatile("griddepcontrol.wait;" ::: "memory");
            for (int stage = 0; stage < STAGES && first + stage * STEPS < end; ++stage) {
                ask_x(stage, first + stage * STEPS);
            }
            int stage = 0, parity = 0;
            for (int step = first + STAGES * STEPS; step < end; step += STEPS) {
                wait(&shared.empty[stage], parity);
                ask_codes(stage, step);
                ask_x(stage, step);
                parity ^= stage == STAGES - 1;
                stage = stage == STAGES - 1 ? 0 : stage + 1;
            }
        }
        asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
        cluster_meet();
        return;
    }
    take_registers<TAKEN>();
    int group = warp / ACROSS, tile = warp % ACROSS * TILES, row = row0 + tile * 16 + lane / 4;
    // Scales come a stage ahead.
    Scales ahead[RUN], of_part;
    if (first < last) {
#pragma unroll
        for (int i = 0; i < RUN; ++i) {
            ahead[i].load(scales, first + group * RUN + i, row, rows, columns);
        }
    }
    __syncthreads();
    // y may still be read by the kernel in front.
    asm volatile("griddepcontrol.wait;" ::: "memory");
    Sums sums[TILES] = {}, part[2][TILES];
    // Operands of the products that run, and of those that are unpacked meanwhile.
    u32 a[2][TILES][4][4];
    auto add = [&](int which, int p) {
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            arrived(part[which][t]);
            add_scaled(sums[t], part[which][t], of_part.scale[p][t][0], of_part.scale[p][t][1]);
        }
    };
    int now = 0, parity = 0, before = 0;
    for (int begin = first; begin < end; begin += TURN * STEPS) {
#pragma unroll
        for (int n = 0; n < TURN * RUN; ++n) {
            int at = group * RUN + n % RUN, step = begin + n / RUN * STEPS + at;
            Fetched &stage = shared.stages[now];
            if (n % RUN == 0) {
                wait(&shared.full[now], parity);
            }
#pragma unroll
            for (int p = 0; p < 2; ++p) {
                bool inside = step < last && (PARTS == 1 || step * STEP + 64 * p < columns);
                uint4 words[TILES];
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    words[t] = inside ? stage.codes[tile + t][2 * at + p][lane] : make_uint4(0, 0, 0, 0);
                }
                // All products but the last ones are done, and with the registers that are written now.
                wgmma_wait<1>();
                if (p == 1 && n > 0 && n % RUN == 0 && lane == 0) {
                    // So is this warp with the stage before.
                    arrive(&shared.empty[before]);
                }
                if (n > 0 && (PARTS == 2 || p == 1)) {
                    add(PARTS == 2 ? p : 1 - n % 2, PARTS == 2 ? p : 0);
                }
                if (p == 1) {
                    of_part = ahead[n % RUN];
                    ahead[n % RUN].load(scales, step + STEPS, row, rows, columns);
                }
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    unpack(words[t].x, a[p][t][0]);
                    unpack(words[t].y, a[p][t][1]);
                    unpack(words[t].z, a[p][t][2]);
                    unpack(words[t].w, a[p][t][3]);
                }
                wgmma_fence();
                u64 panel = tile_descriptor(stage.x[at][p], 16, 1024);
#pragma unroll
                for (int w = 0; w < 4; ++w) {
#pragma unroll
                    for (int t = 0; t < TILES; ++t) {
                        // Descriptors count in 16 bytes: 16 columns are 32 bytes.
                        start(part[PARTS == 2 ? p : n % 2][t], a[p][t][w], panel + 2 * w, PARTS == 1 ? p + w : w);
                    }
                }
                wgmma_commit();
            }
            if (n % RUN == RUN - 1) {
                before = now;
                parity ^= now == STAGES - 1;
                now = now == STAGES - 1 ? 0 : now + 1;
            }
        }
        wgmma_wait<0>();
        if (lane == 0) {
            arrive(&shared.empty[before]);
        }
        if (PARTS == 2) {
            add(0, 0);
        }
        add(PARTS == 2 ? 1 : (TURN * RUN - 1) % 2, PARTS - 1);
    }
    // Every block of the cluster has begun.
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    // Each lane's sums go to the party whose part they are.
    int own = rank * SPLIT + group;
#pragma unroll
    for (int away = 1; away < PARTIES; ++away) {
        int to = own ^ away, thread = (to % SPLIT * ACROSS + warp % ACROSS) * 32 + lane;
#pragma unroll
        for (int at = 0; at < EIGHTS * EACH * TILES; ++at) {
            float number = selected(sums[at / EACH / EIGHTS][at / EACH % EIGHTS], to, at % EACH);
            store_to(&shared.sums[away - 1][at][thread], to / SPLIT, number);
        }
    }
    cluster_meet();
#pragma unroll
    for (int at = 0; at < EIGHTS * EACH * TILES; ++at) {
        float mine = selected(sums[at / EACH / EIGHTS][at / EACH % EIGHTS], own, at % EACH), sum = 0.0f;
        // Always in the same order.
#pragma unroll
        for (int from = 0; from < PARTIES; ++from) {
            sum += from == own ? mine : shared.sums[(from ^ own) - 1][at][threadIdx.x];
        }
        int i = own * EACH + at % EACH, vector = at / EACH % EIGHTS * 8 + lane % 4 * 2 + i % 2;
        int to = row + at / EACH / EIGHTS * 16 + i / 2 * 8;
        if (vector < batch && to < rows) {
            y[(size_t)vector * rows + to] = sum;
        }
    }
}
