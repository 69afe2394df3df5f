// idea: codes are read by the lane that multiplies them, so they need no shared memory: only x does, and few vectors fit whole.
// changed: codes go to registers, DEPTH steps ahead; x of SLICE steps is copied at once. Between them no barrier. And mma again.
// constants: BATCH, GROUP, WARPS, TILES, CLUSTER and BLOCKS as before; DEPTH, and SLICE, a multiple of it.
#include "stages.cuh"
#include "cluster.cuh"

// What a lane multiplies in a step.
struct Codes {
    u32 words[TILES][2][4];
    Scales scales;

    __device__ void load(const Source &source, const bf16 *all_scales, int step, int row, int rows, int columns) {
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
#pragma unroll
            for (int p = 0; p < 2; ++p) {
                bool there = PARTS == 1 || step * STEP + 64 * p < columns;
                uint4 loaded = make_uint4(0, 0, 0, 0);
                if (there) {
                    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                                 : "=r"(loaded.x), "=r"(loaded.y), "=r"(loaded.z), "=r"(loaded.w)
                                 : "l"(source.codes[t] + (2 * step + p) * 32));
                }
                words[t][p][0] = loaded.x, words[t][p][1] = loaded.y, words[t][p][2] = loaded.z, words[t][p][3] = loaded.w;
            }
        }
        scales.load(all_scales, step, row, rows, columns);
    }

    // sums += these codes times x of the step: two panels of 64 columns, as Stage has them.
    __device__ void multiply(const Panels &x, Sums (&sums)[TILES]) const {
        int lane = threadIdx.x % 32;
        Sums part[TILES] = {};
#pragma unroll
        for (int p = 0; p < 2; ++p) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                // Two mma's operand b for eight vectors: their 32 columns.
                u32 b[EIGHTS][4];
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) {
                    int vector = 8 * e + lane % 8, at = 4 * half + lane / 8;
                    load_matrices(b[e], (const bf16 *)&x[p][vector][at ^ vector % 8]);
                }
#pragma unroll
                for (int w = 0; w < 2; ++w) {
#pragma unroll
                    for (int t = 0; t < TILES; ++t) {
                        u32 a[4];
                        unpack(words[t][p][2 * half + w], a);
#pragma unroll
                        for (int e = 0; e < EIGHTS; ++e) {
                            ::multiply(part[t][e], a, b[e][2 * w], b[e][2 * w + 1]);
                        }
                    }
                }
            }
            if (PARTS == 2 || p == 1) {
#pragma unroll
                for (int t = 0; t < TILES; ++t) {
                    const bf16 (&scale)[2] = scales.scale[p * PARTS / 2][t];
                    add_scaled(sums[t], part[t], scale[0], scale[1]);
#pragma unroll
                    for (int e = 0; e < EIGHTS; ++e) {
                        part[t][e][0] = part[t][e][1] = part[t][e][2] = part[t][e][3] = 0.0f;
                    }
                }
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) __cluster_dims__(CLUSTER, 1, 1)
    quantized_matmul(const u32 *fragments, const bf16 *scales, const bf16 *x, bf16 *y, int batch, int rows, int columns) {
    extern __shared__ __align__(1024) unsigned char memory[];
    Panels *panels = (Panels *)memory;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % CLUSTER;
    int row0 = blockIdx.x / CLUSTER * ROWS, row = row0 + warp * TILES * 16 + lane / 4;
    int steps = (columns + STEP - 1) / STEP;
    int first = steps * rank / CLUSTER, last = steps * (rank + 1) / CLUSTER;
    Source source(fragments, x, row0 / 16 + warp * TILES, batch, rows, columns);
    Sums sums[TILES] = {};
    Codes codes[DEPTH];
    // The next kernel may start as soon as each block of this one has come here.
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
        if (first + d < last) {
            codes[d].load(source, scales, first + d, row, rows, columns);
        }
    }
    // Everything that the kernel in front wrote, x, can be seen behind this line.
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int slice = first; slice < last; slice += SLICE) {
        int end = min(slice + SLICE, last);
        if (slice > first) {
            // Everyone is done with the slice before.
            __syncthreads();
        }
        for (int step = slice; step < end; ++step) {
            source.copy_x(panels[step - slice], step);
        }
        copies_commit();
        copies_wait<0>();
        __syncthreads();
        for (int step = slice; step < end; step += DEPTH) {
#pragma unroll
            for (int d = 0; d < DEPTH; ++d) {
                if (step + d < end) {
                    codes[d].multiply(panels[step + d - slice], sums);
                    if (step + d + DEPTH < last) {
                        codes[d].load(source, scales, step + d + DEPTH, row, rows, columns);
                    }
                }
            }
        }
    }
    __syncthreads();
    finish(sums, (float *)memory, y, row0, batch, rows);
}
