// idea: two kernels a layer: attention by a cluster of blocks for each head, the MLP by blocks that own hidden units.
// constants: WIDTH, HIDDEN, HEAD (numbers of a head); THREADS; SPLIT blocks a cluster; ROWS units a block; RESIDENT.
//
// Each half is one kernel because its blocks add to the residual: who owns inputs of a matrix needs no other block's.
// The sums are added by atomics, in any order, so their last bits may differ from step to step. RESIDENT blocks are to
// share a multiprocessor: those of the next half come while those of this one work.
#include "parts.cuh"

constexpr int PART = HEAD / 8;                 // lanes that share a position, or a row of the projection
constexpr int QKV = 3 * HEAD / SPLIT;          // rows of the head's q, k and v in a slice
constexpr int OWN = (QKV + WARPS - 1) / WARPS; // of these, a warp's
constexpr int OUT = WIDTH / SPLIT;             // rows of the projection in a slice
constexpr int OUT_EACH = (OUT * PART + THREADS - 1) / THREADS;
constexpr int UNITS = (ROWS + WARPS - 1) / WARPS;
constexpr int DOWN = (ROWS * EIGHTS + THREADS - 1) / THREADS;
static_assert(THREADS % EIGHTS == 0 && THREADS % HEAD == 0 && WIDTH % SPLIT == 0, "each thread keeps to its columns");

// The blocks of a cluster run at the same time and reach into each other's shared memory.
__device__ int cluster_rank() {
    int rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
__device__ int cluster_blocks() {
    int blocks;
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(blocks));
    return blocks;
}
__device__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Where a variable in this block's shared memory lies in that of another block of the cluster.
__device__ unsigned int in_block(const void *own, int rank) {
    unsigned int there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;"
        : "=r"(there)
        : "r"((unsigned int)__cvta_generic_to_shared(own)), "r"(rank));
    return there;
}
__device__ void store_in_block(float *own, int rank, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(in_block(own, rank)), "f"(value) : "memory");
}
__device__ void store_in_block(bf16 *own, int rank, bf16 value) {
    asm volatile("st.shared::cluster.b16 [%0], %1;" ::"r"(in_block(own, rank)), "h"(__bfloat16_as_ushort(value))
                 : "memory");
}
// 16 bytes from global to shared memory, on their way without a register.
__device__ void copy_async(void *to, const void *from) {
    unsigned int shared = (unsigned int)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
}

// So many bytes (whole 16) come into the L2 cache.
__device__ void prefetch(const void *from, int bytes) {
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// Rows of q, k and v of one head: those of a slice.
__device__ void fetch_qkv(const bf16 *qkv, int head, int slice, uint4 (&weights)[OWN][EACH]) {
#pragma unroll
    for (int own = 0; own < OWN; ++own) {
        int local = own * WARPS + threadIdx.x / 32, row = slice * QKV + local;
        int at = row / HEAD * WIDTH + head * HEAD + row % HEAD;
        fetch_row(qkv + (size_t)at * WIDTH, local < QKV, weights[own]);
    }
}

// Rows of the projection, their columns of one head: those of a slice.
__device__ void fetch_out(const bf16 *out, int head, int slice, uint4 (&weights)[OUT_EACH]) {
#pragma unroll
    for (int each = 0; each < OUT_EACH; ++each) {
        int at = each * THREADS + threadIdx.x, row = slice * OUT + at / PART;
        weights[each] = make_uint4(0, 0, 0, 0);
        if (at < OUT * PART) {
            weights[each] = fetch(out + (size_t)row * WIDTH + head * HEAD + at % PART * 8);
        }
    }
}

// The first half of a layer: sum += x + bias + projection(attention(norm(x))). A cluster takes a head; each of its
// blocks takes a slice of the rows of q, k and v, every SPLIT-th position, and a slice of the projection. A cluster
// may have fewer blocks than slices: then each takes several. `spare` becomes 0: the half behind the next one adds to it.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    attention_half(const float *x, const float *norm_weight, const float *norm_bias, const bf16 *qkv,
                   const float *qkv_bias, const bf16 *out, const float *out_bias, bf16 *cache, const int *position,
                   float *sum, float *spare, int context) {
    extern __shared__ uint4 tiles[];
    __shared__ Row row;
    __shared__ float query[HEAD], seen[WARPS][HEAD + 2], parts[SPLIT][HEAD + 2], attended[HEAD];
    int rank = cluster_rank(), blocks = cluster_blocks(), head = blockIdx.x / blocks;
    int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
    let_next_start();
    cluster_arrive(); // a block must have started before others write into it

    // Before the kernel in front has ended: all weights of this block, and the keys and values of earlier positions.
    uint4 own_qkv[OWN][EACH], own_out[OUT_EACH];
    fetch_qkv(qkv, head, rank, own_qkv);
    fetch_out(out, head, rank, own_out);
    Norm norm;
    norm.fetch_weights(norm_weight, norm_bias);
    int now = *position, slots = (context + blocks - 1) / blocks;
    bf16 *keys = cache + (size_t)head * context * HEAD, *values = keys + (size_t)WIDTH * context;
    uint4 *own_keys = tiles, *own_values = tiles + slots * PART;
    int earlier = (now - rank + blocks - 1) / blocks; // positions rank, rank + blocks, … in front of now
    for (int i = thread; i < earlier * PART; i += THREADS) {
        size_t at = (size_t)(i / PART * blocks + rank) * PART + i % PART;
        copy_async(own_keys + i, (const uint4 *)keys + at);
        copy_async(own_values + i, (const uint4 *)values + at);
    }
    asm volatile("cp.async.commit_group;" ::: "memory");

    wait_for_former();
    norm.apply(x, row);
    float own_x[EACH][8];
    own_part(row, own_x);
    cluster_wait();
    int owner = now % blocks, slot = now / blocks;
    for (int slice = rank; slice < SPLIT; slice += blocks) {
        if (slice != rank) {
            fetch_qkv(qkv, head, slice, own_qkv);
        }
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            int local = own * WARPS + warp, at = slice * QKV + local, of = at % HEAD;
            float value = warp_sum(dot_row(own_qkv[own], own_x));
            if (local >= QKV) {
                continue;
            }
            value += qkv_bias[at / HEAD * WIDTH + head * HEAD + of];
            if (at < HEAD) {
                if (lane < blocks) {
                    store_in_block(&query[of], lane, value);
                }
            } else if (lane == 0) {
                // Keys and values are used as the cache keeps them, now and later.
                bool key = at < 2 * HEAD;
                store_in_block((bf16 *)((key ? own_keys : own_values) + slot * PART) + of, owner, (bf16)value);
                (key ? keys : values)[(size_t)now * HEAD + of] = value;
            }
        }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    cluster_arrive();
    // Meanwhile: what the first head adds for all of them.
    float base[OUT_EACH];
#pragma unroll
    for (int each = 0; each < OUT_EACH; ++each) {
        int at = each * THREADS + thread, to = rank * OUT + at / PART;
        base[each] = head == 0 && at < OUT * PART ? __ldcg(x + to) + out_bias[to] : 0.0f;
    }
    for (int i = blockIdx.x * THREADS + thread; i < WIDTH; i += gridDim.x * THREADS) {
        spare[i] = 0.0f;
    }
    cluster_wait();

    // PART lanes take a position at a time; a warp takes 32 / PART of them.
    int part = lane % PART, count = earlier + (owner == rank);
    const float SCALE = rsqrtf(HEAD) * 1.442695041f; // exp2 is what the hardware has
    float own_query[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        own_query[i] = query[part * 8 + i] * SCALE;
    }
    Partial softmax = {-1e30f, 0.0f, {}};
    for (int first = warp * (32 / PART); first < count; first += THREADS / PART) {
        int at = first + lane / PART;
        bool there = at < count;
        at = there ? at : first;
        softmax.see<PART>(own_keys[at * PART + part], own_values[at * PART + part], own_query, there);
    }
    softmax.merge_warp<PART>(seen[warp]);
    __syncthreads();
    // The block's softmax goes to all blocks of the cluster.
    for (int to = thread / HEAD; to < blocks; to += THREADS / HEAD) {
        float most, total, value = merged(seen, WARPS, thread % HEAD, &most, &total);
        store_in_block(&parts[rank][thread % HEAD], to, value);
        if (thread % HEAD == 0) {
            store_in_block(&parts[rank][HEAD], to, most);
            store_in_block(&parts[rank][HEAD + 1], to, total);
        }
    }
    cluster_arrive();
    cluster_wait();
    if (thread < HEAD) {
        attended[thread] = merged(parts, blocks, thread);
    }
    __syncthreads();

    float own_attended[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        own_attended[i] = attended[part * 8 + i];
    }
    for (int slice = rank; slice < SPLIT; slice += blocks) {
        if (slice != rank) {
            fetch_out(out, head, slice, own_out);
        }
#pragma unroll
        for (int each = 0; each < OUT_EACH; ++each) {
            int at = each * THREADS + thread, to = slice * OUT + at / PART;
            float value = dot(own_out[each], own_attended, 0.0f);
            for (int distance = PART / 2; distance > 0; distance /= 2) {
                value += __shfl_xor_sync(0xffffffff, value, distance);
            }
            if (part == 0 && at < OUT * PART) {
                if (slice != rank) {
                    base[each] = head == 0 ? __ldcg(x + to) + out_bias[to] : 0.0f;
                }
                atomicAdd(sum + to, value + base[each]);
            }
        }
    }
}

// The second half: sum += x + bias + down(gelu(up(norm(x)))). A block owns ROWS hidden units: their rows of `up`, and
// their columns of `down`, which lie in memory as rows. While it waits, `bytes` of `ahead` come into the L2 cache.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    mlp_half(const float *x, const float *norm_weight, const float *norm_bias, const bf16 *up, const float *up_bias,
             const bf16 *down, const float *down_bias, float *sum, float *spare, const bf16 *ahead, int from,
             int bytes) {
    __shared__ Row row;
    __shared__ float units[ROWS];
    __shared__ float4 shares[2][THREADS];
    int thread = threadIdx.x, warp = thread / 32, first = blockIdx.x * ROWS;
    let_next_start();
    uint4 own_up[UNITS][EACH], own_down[DOWN];
#pragma unroll
    for (int own = 0; own < UNITS; ++own) {
        int unit = own * WARPS + warp;
        fetch_row(up + (size_t)(first + unit) * WIDTH, unit < ROWS && first + unit < HIDDEN, own_up[own]);
    }
#pragma unroll
    for (int each = 0; each < DOWN; ++each) {
        int at = each * THREADS + thread, unit = at / EIGHTS;
        own_down[each] = make_uint4(0, 0, 0, 0);
        if (unit < ROWS && first + unit < HIDDEN) {
            own_down[each] = fetch(down + (size_t)first * WIDTH + 8 * (size_t)at);
        }
    }
    Norm norm;
    norm.fetch_weights(norm_weight, norm_bias);
    if (thread == 0 && bytes > 0) {
        prefetch((const char *)ahead + from + (size_t)blockIdx.x * bytes, bytes);
    }

    wait_for_former();
    norm.apply(x, row);
    float own_x[EACH][8];
    own_part(row, own_x);
#pragma unroll
    for (int own = 0; own < UNITS; ++own) {
        int unit = own * WARPS + warp;
        float value = warp_sum(dot_row(own_up[own], own_x));
        if (thread % 32 == 0 && unit < ROWS) {
            units[unit] = first + unit < HIDDEN ? gelu(value + up_bias[first + unit]) : 0.0f;
        }
    }
    for (int i = blockIdx.x * THREADS + thread; i < WIDTH; i += gridDim.x * THREADS) {
        spare[i] = 0.0f;
    }
    __syncthreads();
    float share[8] = {};
#pragma unroll
    for (int each = 0; each < DOWN; ++each) {
        int unit = (each * THREADS + thread) / EIGHTS;
        add_scaled(own_down[each], unit < ROWS ? units[unit] : 0.0f, share);
    }
    // A thread has eight columns of some units; those of the other units lie with other threads.
    shares[0][thread] = make_float4(share[0], share[1], share[2], share[3]);
    shares[1][thread] = make_float4(share[4], share[5], share[6], share[7]);
    __syncthreads();
    const float *flat = (const float *)shares;
    for (int column = thread; column < WIDTH; column += THREADS) {
        float total = blockIdx.x == 0 ? __ldcg(x + column) + down_bias[column] : 0.0f;
        int at = column % 8 / 4 * 4 * THREADS + column / 8 * 4 + column % 4;
#pragma unroll
        for (int other = 0; other < THREADS / EIGHTS; ++other) {
            total += flat[at + 4 * other * EIGHTS];
        }
        atomicAdd(sum + column, total);
    }
}
