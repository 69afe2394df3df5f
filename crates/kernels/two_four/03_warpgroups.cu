// idea: wgmma.sp: two warpgroups multiply tiles of shared memory, and each thread hands over the places of the numbers of a.
// changed: from 02 to what lesson 12d ends with (matmul_bf16/10_cluster): TMA, a warpgroup that fetches, persistent clusters.
// constants: TILE_M rows and TILE_N columns of c a block; TILE_K columns of a a step, half of them stored; the others as there.
#include "../matmul_bf16/hopper.cuh"

// A row of a's tile has 128 bytes: 64 numbers that stand for 128 columns.
struct Shared {
    bf16 a[STAGES][TILE_M * TILE_K / 2];
    bf16 b[STAGES][TILE_N / 64][TILE_K * 64];
    bf16 c[2][C_BUFFERS][64 * 64];
    u64 full[STAGES];
    u64 empty[STAGES];
};

struct Tile {
    int row, column;
};

// Bands of GROUP tile rows, walked downwards and then to the right: tiles worked on together share rows and columns.
__device__ Tile tile_of(int index, int rows, int columns) {
    int band = index / (GROUP * columns) * GROUP;
    int height = min(GROUP, rows - band);
    int within = index % (GROUP * columns);
    return {band + within % height, within / height};
}

// sum (64 × 256) += a (64 × 32, half of it stored, rows along k) × b (32 × 256, rows along n). Of each four threads the
// PAIR-th two say where a's numbers are.
template <int PAIR>
__device__ __forceinline__ void wgmma_sparse_64x256x32(float (&s)[128], u64 a, u64 b, u32 places) {
    asm volatile(
        "wgmma.mma_async.sp.sync.aligned.m64n256k32.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
        "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "
        "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "
        "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "
        "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "
        "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "
        "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, "
        "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, %130, %131, 1, 1, 1, 0, 1;"
        : "+f"(s[0]), "+f"(s[1]), "+f"(s[2]), "+f"(s[3]), "+f"(s[4]), "+f"(s[5]),
          "+f"(s[6]), "+f"(s[7]), "+f"(s[8]), "+f"(s[9]), "+f"(s[10]), "+f"(s[11]),
          "+f"(s[12]), "+f"(s[13]), "+f"(s[14]), "+f"(s[15]), "+f"(s[16]), "+f"(s[17]),
          "+f"(s[18]), "+f"(s[19]), "+f"(s[20]), "+f"(s[21]), "+f"(s[22]), "+f"(s[23]),
          "+f"(s[24]), "+f"(s[25]), "+f"(s[26]), "+f"(s[27]), "+f"(s[28]), "+f"(s[29]),
          "+f"(s[30]), "+f"(s[31]), "+f"(s[32]), "+f"(s[33]), "+f"(s[34]), "+f"(s[35]),
          "+f"(s[36]), "+f"(s[37]), "+f"(s[38]), "+f"(s[39]), "+f"(s[40]), "+f"(s[41]),
          "+f"(s[42]), "+f"(s[43]), "+f"(s[44]), "+f"(s[45]), "+f"(s[46]), "+f"(s[47]),
          "+f"(s[48]), "+f"(s[49]), "+f"(s[50]), "+f"(s[51]), "+f"(s[52]), "+f"(s[53]),
          "+f"(s[54]), "+f"(s[55]), "+f"(s[56]), "+f"(s[57]), "+f"(s[58]), "+f"(s[59]),
          "+f"(s[60]), "+f"(s[61]), "+f"(s[62]), "+f"(s[63]), "+f"(s[64]), "+f"(s[65]),
          "+f"(s[66]), "+f"(s[67]), "+f"(s[68]), "+f"(s[69]), "+f"(s[70]), "+f"(s[71]),
          "+f"(s[72]), "+f"(s[73]), "+f"(s[74]), "+f"(s[75]), "+f"(s[76]), "+f"(s[77]),
          "+f"(s[78]), "+f"(s[79]), "+f"(s[80]), "+f"(s[81]), "+f"(s[82]), "+f"(s[83]),
          "+f"(s[84]), "+f"(s[85]), "+f"(s[86]), "+f"(s[87]), "+f"(s[88]), "+f"(s[89]),
          "+f"(s[90]), "+f"(s[91]), "+f"(s[92]), "+f"(s[93]), "+f"(s[94]), "+f"(s[95]),
          "+f"(s[96]), "+f"(s[97]), "+f"(s[98]), "+f"(s[99]), "+f"(s[100]), "+f"(s[101]),
          "+f"(s[102]), "+f"(s[103]), "+f"(s[104]), "+f"(s[105]), "+f"(s[106]), "+f"(s[107]),
          "+f"(s[108]), "+f"(s[109]), "+f"(s[110]), "+f"(s[111]), "+f"(s[112]), "+f"(s[113]),
          "+f"(s[114]), "+f"(s[115]), "+f"(s[116]), "+f"(s[117]), "+f"(s[118]), "+f"(s[119]),
          "+f"(s[120]), "+f"(s[121]), "+f"(s[122]), "+f"(s[123]), "+f"(s[124]), "+f"(s[125]),
          "+f"(s[126]), "+f"(s[127])
        : "l"(a), "l"(b), "r"(places), "n"(PAIR));
}

// This thread's words for the columns from k0 on, in the order of tiles.cuh; beyond the matrix, any that are valid.
struct Places {
    u32 words[TILE_K / 64];
};

__device__ Places places(const u32 *metadata, int row, int m, int k0, int padded) {
    Places own;
    for (int part = 0; part < TILE_K / 64; ++part) {
        int column = k0 + part * 64;
        size_t at = ((size_t)(row / 16) * (padded / 64) + column / 64) * 32 + threadIdx.x % 32;
        own.words[part] = row < m && column < padded ? metadata[at] : 0x44444444;
    }
    return own;
}

extern "C" __global__ void __cluster_dims__(CLUSTER) __launch_bounds__(384, 1)
    two_four(const __grid_constant__ TensorMap values_map, const u32 *metadata, const __grid_constant__ TensorMap b_map,
             const __grid_constant__ TensorMap c_map, int m, int n, int k) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Shared &shared = *(Shared *)memory;
    int warpgroup = threadIdx.x / 128;
    int rank = cluster_rank();
    int rows = (m + TILE_M * CLUSTER - 1) / (TILE_M * CLUSTER);
    int columns = (n + TILE_N - 1) / TILE_N;
    if (threadIdx.x == 0) {
        for (int stage = 0; stage < STAGES; ++stage) {
            barrier_init(&shared.full[stage], 1);
            barrier_init(&shared.empty[stage], 2 * CLUSTER);
        }
        barriers_are_ready();
    }
    cluster_sync();
    u32 step = 0;
    if (warpgroup == 0) {
        give_registers<40>();
        if (threadIdx.x == 0) {
            for (int index = blockIdx.x / CLUSTER; index < rows * columns; index += gridDim.x / CLUSTER) {
                Tile tile = tile_of(index, rows, columns);
                int row0 = (tile.row * CLUSTER + rank) * TILE_M;
                int column0 = tile.column * TILE_N;
                for (int k0 = 0; k0 < k; k0 += TILE_K, ++step) {
                    u32 stage = step % STAGES;
                    wait(&shared.empty[stage], step / STAGES % 2 ^ 1);
                    arrive_and_expect(&shared.full[stage], (TILE_M / 2 + TILE_N) * TILE_K * 2);
                    tma_load(shared.a[stage], &values_map, k0 / 2, row0, &shared.full[stage]);
                    // Of each panel of b a block fetches its share of the rows, for all blocks of the cluster.
                    constexpr int SHARE = TILE_K / CLUSTER;
                    for (int panel = 0; panel < TILE_N / 64; ++panel) {
                        tma_load_to(shared.b[stage][panel] + rank * SHARE * 64, &b_map, column0 + panel * 64,
                                    k0 + rank * SHARE, &shared.full[stage], (1 << CLUSTER) - 1);
                    }
                }
            }
        }
    } else {
        take_registers<232>();
        int consumer = warpgroup - 1;
        int thread = threadIdx.x % 128;
        int padded = (k + 63) / 64 * 64;
        for (int index = blockIdx.x / CLUSTER; index < rows * columns; index += gridDim.x / CLUSTER) {
            Tile tile = tile_of(index, rows, columns);
            int row0 = (tile.row * CLUSTER + rank) * TILE_M + consumer * 64;
            int column0 = tile.column * TILE_N;
            float sum[TILE_N / 2] = {};
            Places next = places(metadata, row0 + thread / 32 * 16, m, 0, padded);
            for (int k0 = 0; k0 < k; k0 += TILE_K, ++step) {
                u32 stage = step % STAGES;
                Places own = next;
                next = places(metadata, row0 + thread / 32 * 16, m, k0 + TILE_K, padded);
                wait(&shared.full[stage], step / STAGES % 2);
                wgmma_fence();
                u64 a_tile = tile_descriptor(shared.a[stage] + consumer * 64 * TILE_K / 2, 16, 1024);
                u64 b_tile = tile_descriptor(shared.b[stage][0], TILE_K * 128, 1024);
#pragma unroll
                for (int part = 0; part < TILE_K / 64; ++part) {
                    // Descriptors count in 16 bytes: 32 columns of a are 32 bytes, 32 rows of b 4096.
                    wgmma_sparse_64x256x32<0>(sum, a_tile + part * 4, b_tile + part * 512, own.words[part]);
                    wgmma_sparse_64x256x32<1>(sum, a_tile + part * 4 + 2, b_tile + part * 512 + 256, own.words[part]);
                }
                wgmma_commit();
                // Places are registers, and products in flight hold on to them: while this warpgroup waits, the
                // other one multiplies. Then the stage is free, in this block and in its neighbour.
                wgmma_wait<0>();
                if (thread < CLUSTER) {
                    arrive_at(&shared.empty[stage], thread);
                }
            }
            // 64 columns at a time: registers to shared memory, and from there by the TMA.
#pragma unroll
            for (int panel = 0; panel < TILE_N / 64; ++panel) {
                bf16 *c_tile = shared.c[consumer][panel % C_BUFFERS];
                if (thread == 0) {
                    tma_stores_read<C_BUFFERS - 1>();
                }
                warpgroup_sync(1 + consumer);
                int row = thread / 32 * 16 + thread % 16;
#pragma unroll
                for (int piece = 0; piece < 8; piece += 2) {
                    float *s = sum + panel * 32 + piece * 4;
                    int swizzled = (piece + thread % 32 / 16) ^ (row % 8);
                    store_matrices(c_tile + row * 64 + swizzled * 8, pair(s[0], s[1]), pair(s[2], s[3]),
                                   pair(s[4], s[5]), pair(s[6], s[7]));
                }
                fence_async();
                warpgroup_sync(1 + consumer);
                if (thread == 0) {
                    tma_store(&c_map, c_tile, column0 + panel * 64, row0);
                }
            }
        }
        if (thread == 0) {
            tma_stores_read<0>();
        }
    }
    // A block stays until its neighbour sends nothing more into its shared memory.
    cluster_sync();
}
