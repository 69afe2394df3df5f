// idea: a lane can load the codes that it multiplies, past shared memory; what is left to wait for are a few pieces of x.
// changed: codes go to registers, DEPTH turns ahead, and come as 24 + code; x of SLICE steps is copied at once, in CHUNKS. mma again.
// constants: BATCH, GROUP, WARPS, TILES, CLUSTER and BLOCKS as before; DEPTH, SLICE, CHUNKS, and SPLIT warps that share rows.
#include "stages.cuh"
#include "cluster.cuh"

// bf16 from 16 to 31 are the whole numbers, the upper four bits of the mantissa count, and ^ makes code + 8 of two's
// complement: codes come as 24 + code. Shift, select and ^ are two instructions.
template <int I>
__device__ u32 two_raised(u32 word) {
    u32 moved = I == 0 ? word << 3 : word >> (4 * I - 3);
    return select_xor(moved, 0x00780078, 0x41c041c0);
}

// x of a slice, and what 24 in place of each code would make of each group's columns, with the other sign.
struct Slice {
    Panels x[SLICE];
    float less[SLICE][PARTS][BATCH];

    // A warp works `less` out for a step.
    __device__ void work_out(int at) {
        int lane = threadIdx.x % 32;
        const u32 minus = 0xc1c0c1c0, all[4] = {minus, minus, minus, minus};
        Sums sums = {};
#pragma unroll
        for (int p = 0; p < 2; ++p) {
#pragma unroll
            for (int half = 0; half < 2; ++half) {
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) {
                    u32 b[4];
                    load(b, at, p, half, e);
                    multiply(sums[e], all, b[0], b[1]);
                    multiply(sums[e], all, b[2], b[3]);
                }
            }
            if (PARTS == 2 || p == 1) {
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) {
                    if (lane < 4) {
                        less[at][p * PARTS / 2][8 * e + 2 * lane] = sums[e][0];
                        less[at][p * PARTS / 2][8 * e + 2 * lane + 1] = sums[e][1];
                    }
                    sums[e][0] = sums[e][1] = sums[e][2] = sums[e][3] = 0.0f;
                }
            }
        }
    }

    // Two mma's operand b for eight vectors: 32 columns of theirs.
    __device__ void load(u32 (&b)[4], int at, int p, int half, int e) const {
        int lane = threadIdx.x % 32, vector = 8 * e + lane % 8, column = 4 * half + lane / 8;
        load_matrices(b, (const bf16 *)&x[at][p][vector][column ^ vector % 8]);
    }
};

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

    // sums += these codes times x of the step.
    __device__ void multiply(const Slice &slice, int at, Sums (&sums)[TILES]) const {
        int lane = threadIdx.x % 32;
        Sums part[TILES];
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            if (PARTS == 2 || p == 0) {
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) {
                    float2 less = *(const float2 *)&slice.less[at][p][8 * e + lane % 4 * 2];
#pragma unroll
                    for (int t = 0; t < TILES; ++t) {
                        part[t][e][0] = part[t][e][2] = less.x, part[t][e][1] = part[t][e][3] = less.y;
                    }
                }
            }
#pragma unroll
            for (int half = 0; half < 2; ++half) {
                u32 b[EIGHTS][4];
#pragma unroll
                for (int e = 0; e < EIGHTS; ++e) {
                    slice.load(b[e], at, p, half, e);
                }
#pragma unroll
                for (int w = 0; w < 2; ++w) {
#pragma unroll
                    for (int t = 0; t < TILES; ++t) {
                        u32 word = words[t][p][2 * half + w];
                        u32 a[4] = {two_raised<0>(word), two_raised<1>(word), two_raised<2>(word), two_raised<3>(word)};
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
                }
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) __cluster_dims__(CLUSTER, 1, 1)
    quantized_matmul(const u32 *fragments, const bf16 *scales, const bf16 *x, bf16 *y, int batch, int rows, int columns) {
    extern __shared__ __align__(1024) unsigned char memory[];
    constexpr int CHUNK = SLICE / CHUNKS, ACROSS = WARPS / SPLIT;
    static_assert(CHUNK % (DEPTH * SPLIT) == 0, "a chunk is whole rounds of a warp's registers");
    Slice &slice = *(Slice *)memory;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, rank = blockIdx.x % CLUSTER, group = warp / ACROSS;
    int row0 = blockIdx.x / CLUSTER * ROWS, row = row0 + warp % ACROSS * TILES * 16 + lane / 4;
    int steps = (columns + STEP - 1) / STEP;
    int first = steps * rank / CLUSTER, last = steps * (rank + 1) / CLUSTER;
    Source source(fragments, x, row0 / 16 + warp % ACROSS * TILES, batch, rows, columns);
    Sums sums[TILES] = {};
    Codes codes[DEPTH];
    // The next kernel may start as soon as each block of this one has come here.
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    // The warp's steps are first + group, SPLIT further, and so on.
#pragma unroll
    for (int d = 0; d < DEPTH; ++d) {
        if (first + group + d * SPLIT < last) {
            codes[d].load(source, scales, first + group + d * SPLIT, row, rows, columns);
        }
    }
    // Everything that the kernel in front wrote, x, can be seen behind this line.
    asm volatile("griddepcontrol.wait;" ::: "memory");
    for (int begin = first; begin < last; begin += SLICE) {
        if (begin > first) {
            // Everyone is done with the slice before.
            __syncthreads();
        }
        for (int at = 0; at < SLICE; ++at) {
            if (begin + at < last) {
                source.copy_x(slice.x[at], begin + at);
            }
            if ((at + 1) % CHUNK == 0) {
                copies_commit();
            }
        }
#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            switch (CHUNKS - 1 - chunk) {
            case 0: copies_wait<0>(); break;
            case 1: copies_wait<1>(); break;
            case 2: copies_wait<2>(); break;
            default: copies_wait<3>();
            }
            __syncthreads();
            int from = chunk * CHUNK, end = min(from + CHUNK, last - begin);
            for (int at = from + warp; at < end; at += WARPS) {
                slice.work_out(at);
            }
            __syncthreads();
            for (int at = from + group; at < end; at += DEPTH * SPLIT) {
#pragma unroll
                for (int d = 0; d < DEPTH; ++d) {
                    int now = at + d * SPLIT, next = begin + now + DEPTH * SPLIT;
                    if (now < end) {
                        codes[d].multiply(slice, now, sums);
                        if (next < last) {
                            codes[d].load(source, scales, next, row, rows, columns);
                        }
                    }
                }
            }
        }
    }
    __syncthreads();
    finish(sums, (float *)memory, y, row0, batch, rows);
}
