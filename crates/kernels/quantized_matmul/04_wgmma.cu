// idea: a warpgroup multiplies at the full rate: x comes from shared memory, the codes from the registers they were unpacked in.
// changed: wgmma for mma, 64 rows at a time; while the products of one piece run, the next piece is unpacked.
// constants: as before; WARPS is a multiple of 4.
#include "fragments.cuh"
#include "../matmul_bf16/hopper.cuh"

constexpr int THREADS = 32 * WARPS, ROWS = 16 * TILES * WARPS;
// Columns of a stage: two pieces of 64.
constexpr int STEP = 128;

struct Stage {
    // Two panels of 64 columns, as the matrix units take them: the 16 bytes of column c lie at c ^ vector % 8.
    uint4 x[2][BATCH][8];
    uint4 codes[WARPS][TILES][2][32];
};

#define SUMS(s, e) "+f"(s[e][0]), "+f"(s[e][1]), "+f"(s[e][2]), "+f"(s[e][3])
#define SUMS_4(s, e) SUMS(s, e), SUMS(s, e + 1), SUMS(s, e + 2), SUMS(s, e + 3)

// part (64 × BATCH) = a (64 × 16, in registers) · xᵀ (16 × BATCH), or added to it. Starts the product and returns: part and
// a are not to be touched before wgmma_wait.
__device__ __forceinline__ void start(float (&s)[1][4], const u32 (&a)[4], u64 x, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %9, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, p, 1, 1, 0; }"
                 : SUMS(s, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}
__device__ __forceinline__ void start(float (&s)[2][4], const u32 (&a)[4], u64 x, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %13, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7},"
                 " {%8, %9, %10, %11}, %12, p, 1, 1, 0; }"
                 : SUMS(s, 0), SUMS(s, 1)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}
__device__ __forceinline__ void start(float (&s)[4][4], const u32 (&a)[4], u64 x, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %21, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11,"
                 " %12, %13, %14, %15}, {%16, %17, %18, %19}, %20, p, 1, 1, 0; }"
                 : SUMS_4(s, 0)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}
__device__ __forceinline__ void start(float (&s)[8][4], const u32 (&a)[4], u64 x, int add) {
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %37, 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11,"
                 " %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31},"
                 " {%32, %33, %34, %35}, %36, p, 1, 1, 0; }"
                 : SUMS_4(s, 0), SUMS_4(s, 4)
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(x), "r"(add));
}

// After wgmma_wait: the compiler is not to use what the registers held before.
__device__ __forceinline__ void arrived(Sums &s) {
#pragma unroll
    for (int e = 0; e < EIGHTS; ++e) {
        asm volatile("" : SUMS(s, e)::"memory");
    }
}

__device__ void copy_16(void *to, const void *from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((u32)__cvta_generic_to_shared(to)), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

// A float of another block of the cluster.
__device__ float load_from(const float *own, int rank) {
    float number;
    asm volatile("{ .reg .b32 there; mapa.shared::cluster.u32 there, %1, %2; ld.shared::cluster.f32 %0, [there]; }"
                 : "=f"(number)
                 : "r"((u32)__cvta_generic_to_shared(own)), "r"(rank)
                 : "memory");
    return number;
}

// All threads of the cluster; what they wrote before can be seen behind it.
__device__ void cluster_meet() {
    asm volatile("barrier.cluster.arrive.release; barrier.cluster.wait.acquire;" ::: "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) __cluster_dims__(CLUSTER, 1, 1)
    quantized_matmul(const u32 *fragments, const bf16 *scales, const bf16 *x, bf16 *y, int batch, int rows, int columns) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Stage *stages = (Stage *)memory;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % CLUSTER;
    int tile0 = blockIdx.x / CLUSTER * WARPS * TILES;
    int row0 = tile0 * 16, tiles = (rows + 15) / 16, pieces = columns / 64;
    int steps = (columns + STEP - 1) / STEP;
    int first = steps * rank / CLUSTER, last = steps * (rank + 1) / CLUSTER;
    auto fetch = [&](int step) {
        if (step < last) {
            Stage &stage = stages[(step - first) % STAGES];
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                int tile = tile0 + warp * TILES + t;
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    int piece = 2 * step + p;
                    bool there = tile < tiles && piece < pieces;
                    const uint4 *from = (const uint4 *)fragments + (there ? ((size_t)tile * pieces + piece) * 32 : 0);
                    copy_16(&stage.codes[warp][t][p][lane], from + lane, there);
                }
            }
            for (int i = threadIdx.x; i < BATCH * 16; i += THREADS) {
                int vector = i / 16, at = i % 16, column = step * STEP + at * 8;
                bool there = vector < batch && column < columns;
                copy_16(&stage.x[at / 8][vector][at % 8 ^ vector % 8], x + (there ? (size_t)vector * columns + column : 0), there);
            }
        }
        copies_commit();
    };
    // The scales of a group for the rows that the lane has sums of.
    auto load_scales = [&](int column, bf16 (&to)[TILES][2]) {
        const bf16 *of_group = scales + (size_t)min(column / GROUP, columns / GROUP - 1) * rows;
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
            int row = row0 + (warp * TILES + t) * 16 + lane / 4;
            to[t][0] = of_group[min(row, rows - 1)];
            to[t][1] = of_group[min(row + 8, rows - 1)];
        }
    };
    constexpr int PARTS = GROUP < STEP ? 2 : 1;
    Sums sums[TILES] = {};
    bf16 scale[PARTS][TILES][2] = {}, coming[PARTS][TILES][2] = {};
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        fetch(first + stage);
    }
    if (first < last) {
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            load_scales(first * STEP + 64 * p, scale[p]);
        }
    }
    for (int step = first; step < last; ++step) {
#pragma unroll
        for (int p = 0; p < PARTS; ++p) {
            load_scales((step + 1) * STEP + 64 * p, coming[p]);
        }
        copies_wait<STAGES - 2>();
        // What the copies wrote is for the matrix units, too.
        fence_async();
        // This step's stage is here for everyone, and everyone is done with the one that is filled next.
        __syncthreads();
        fetch(step + STAGES - 1);
        Stage &stage = stages[(step - first) % STAGES];
        Sums part[TILES];
        u32 a[2][TILES][4][4];
#pragma unroll
        for (int p = 0; p < 2; ++p) {
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
                uint4 loaded = stage.codes[warp][t][p][lane];
                unpack(loaded.x, a[p][t][0]);
                unpack(loaded.y, a[p][t][1]);
                unpack(loaded.z, a[p][t][2]);
                unpack(loaded.w, a[p][t][3]);
            }
            wgmma_fence();
            u64 panel = tile_descriptor(stage.x[p], 16, 1024);
#pragma unroll
            for (int w = 0; w < 4; ++w) {
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    // Descriptors count in 16 bytes: 16 columns are 32 bytes.
                    start(part[t], a[p][t][w], panel + 2 * w, PARTS == 1 ? p + w : w);
                }
            }
            wgmma_commit();
            if (PARTS == 2 || p == 1) {
                wgmma_wait<0>();
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    arrived(part[t]);
                    add_scaled(sums[t], part[t], scale[p * PARTS / 2][t][0], scale[p * PARTS / 2][t][1]);
                }
            }
        }
#pragma unroll
        for (int i = 0; i < PARTS * TILES * 2; ++i) {
            scale[i / 2 / TILES][i / 2 % TILES][i % 2] = coming[i / 2 / TILES][i / 2 % TILES][i % 2];
        }
    }
    copies_wait<0>();
    __syncthreads();
    // BATCH × ROWS sums, where the stages were.
    float *shared = (float *)memory;
#pragma unroll
    for (int t = 0; t < TILES; ++t) {
#pragma unroll
        for (int i = 0; i < 4 * EIGHTS; ++i) {
            int vector = i / 4 * 8 + lane % 4 * 2 + i % 2, row = (warp * TILES + t) * 16 + lane / 4 + i % 4 / 2 * 8;
            shared[vector * (ROWS + 4) + row] = sums[t][i / 4][i % 4];
        }
    }
    cluster_meet();
    // Each block adds up the rows of its rank.
    constexpr int OWN = ROWS / CLUSTER;
    for (int i = threadIdx.x; i < BATCH * OWN; i += THREADS) {
        int vector = i / OWN, row = rank * OWN + i % OWN;
        float sum = 0.0f;
#pragma unroll
        for (int from = 0; from < CLUSTER; ++from) {
            sum += load_from(&shared[vector * (ROWS + 4) + row], from);
        }
        if (vector < batch && row0 + row < rows) {
            y[(size_t)vector * rows + row0 + row] = sum;
        }
    }
    // Nobody leaves while others read its sums.
    cluster_meet();
}
