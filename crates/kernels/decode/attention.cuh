// The first half of a layer, attention: what a block can fetch before the residual is there, and what it does then.
#pragma once
#include "layer.cuh"

constexpr int PART = HEAD / 8;                 // lanes that share a position, or a row of the projection
constexpr int QKV = 3 * HEAD / SPLIT;          // rows of the head's q, k and v in a slice
constexpr int OWN = (QKV + WARPS - 1) / WARPS; // of these, a warp's
constexpr int OUT = WIDTH / SPLIT;             // rows of the projection in a slice
constexpr int OUT_EACH = (OUT * PART + THREADS - 1) / THREADS;
static_assert(THREADS % HEAD == 0 && WIDTH % SPLIT == 0, "each thread keeps to its columns of a head");

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
// What this block has written is to be seen behind the others' wait: that takes as long as its writes are in flight.
__device__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
// This block is there, and no more.
__device__ void cluster_greet() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
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

// sum += x + bias + projection(attention(norm(x))). A cluster takes a head; each of its blocks takes a slice of
// the rows of q, k and v, every SPLIT-th position, and a slice of the projection. A cluster may have fewer blocks than
// slices: then each takes several.
struct Attention {
    struct Shared {
        Row row;
        float query[HEAD], seen[WARPS][HEAD + 2], parts[SPLIT][HEAD + 2], attended[HEAD];
    };
    uint4 qkv[OWN][EACH], out[OUT_EACH];
    Norm norm;
    int head, now, context;
    bf16 kept[OWN]; // of the first slice
    float qkv_bias[OWN], out_bias[OUT_EACH];

    // Rows of q, k and v of the head: those of a slice.
    __device__ void fetch_qkv(const Layer &layer, int slice) {
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            int local = own * WARPS + threadIdx.x / 32, row = slice * QKV + local;
            int at = row / HEAD * WIDTH + head * HEAD + row % HEAD;
            fetch_row(layer.qkv + (size_t)at * WIDTH, local < QKV, qkv[own]);
            qkv_bias[own] = local < QKV ? fetch_one(layer.qkv_bias + at) : 0.0f;
        }
    }

    // Rows of the projection, their columns of the head: those of a slice.
    __device__ void fetch_out(const Layer &layer, int slice) {
#pragma unroll
        for (int each = 0; each < OUT_EACH; ++each) {
            int at = each * THREADS + threadIdx.x, row = slice * OUT + at / PART;
            out[each] = make_uint4(0, 0, 0, 0);
            if (at < OUT * PART) {
                out[each] = fetch(layer.out + (size_t)row * WIDTH + head * HEAD + at % PART * 8);
            }
            // The first head adds it for all of them.
            out_bias[each] = head == 0 && at < OUT * PART ? fetch_one(layer.out_bias + row) : 0.0f;
        }
    }

    // Positions in front of `now` that this block has: rank, rank + blocks, …
    __device__ int earlier() const { return (now - cluster_rank() + cluster_blocks() - 1) / cluster_blocks(); }
    __device__ int slots() const { return (context + cluster_blocks() - 1) / cluster_blocks(); }

    // What does not depend on the residual: weights, and the keys and values of earlier positions.
    __device__ void fetch_all(const Layer &layer, const bf16 *cache, uint4 *tiles) {
        int rank = cluster_rank(), blocks = cluster_blocks();
        fetch_qkv(layer, rank);
        fetch_out(layer, rank);
        norm.fetch_weights(layer.norm_1, layer.norm_1 + WIDTH);
        const uint4 *keys = (const uint4 *)(cache + (size_t)head * context * HEAD);
        const uint4 *values = keys + (size_t)WIDTH * context / 8;
        for (int i = threadIdx.x; i < earlier() * PART; i += THREADS) {
            size_t at = (size_t)(i / PART * blocks + rank) * PART + i % PART;
            copy_async(tiles + i, keys + at);
            copy_async(tiles + slots() * PART + i, values + at);
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    }

    __device__ void finish(const Layer &layer, bf16 *cache, const Residual &residual, uint4 *tiles, Shared &shared) {
        int rank = cluster_rank(), blocks = cluster_blocks();
        int thread = threadIdx.x, lane = thread % 32, warp = thread / 32;
        bf16 *keys = cache + (size_t)head * context * HEAD, *values = keys + (size_t)WIDTH * context;
        uint4 *own_keys = tiles, *own_values = tiles + slots() * PART;
        norm.apply(residual.x, shared.row);
        float own_x[EACH][8];
        own_part(shared.row, own_x);
        int owner = now % blocks, slot = now / blocks;
        for (int slice = rank; slice < SPLIT; slice += blocks) {
            if (slice != rank) {
                fetch_qkv(layer, slice);
            }
#pragma unroll
            for (int own = 0; own < OWN; ++own) {
                int local = own * WARPS + warp, at = slice * QKV + local, of = at % HEAD;
                float value = warp_sum(dot_row(qkv[own], own_x));
                if (local >= QKV) {
                    continue;
                }
                value += qkv_bias[own];
                if (at < HEAD) {
                    if (lane < blocks) {
                        store_in_block(&shared.query[of], lane, value);
                    }
                } else if (lane == 0) {
                    // Keys and values are used as the cache keeps them, now and later.
                    bool key = at < 2 * HEAD;
                    store_in_block((bf16 *)((key ? own_keys : own_values) + slot * PART) + of, owner, (bf16)value);
                    kept[own] = value;
                    if (slice != rank) {
                        (key ? keys : values)[(size_t)now * HEAD + of] = value;
                    }
                }
            }
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
        cluster_arrive();
        // Meanwhile: what the first head adds for all of them, beside the bias.
        float base[OUT_EACH];
#pragma unroll
        for (int each = 0; each < OUT_EACH; ++each) {
            int at = each * THREADS + thread, to = rank * OUT + at / PART;
            base[each] = head == 0 && at < OUT * PART ? __ldcg(residual.x + to) : 0.0f;
        }
        cluster_wait();

        // PART lanes take a position at a time; a warp takes 32 / PART of them.
        int part = lane % PART, count = earlier() + (owner == rank);
        const float SCALE = rsqrtf(HEAD) * 1.442695041f; // exp2 is what the hardware has
        float own_query[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            own_query[i] = shared.query[part * 8 + i] * SCALE;
        }
        Partial softmax = {-1e30f, 0.0f, {}};
        for (int first = warp * (32 / PART); first < count; first += THREADS / PART) {
            int at = first + lane / PART;
            bool there = at < count;
            at = there ? at : first;
            softmax.see<PART>(own_keys[at * PART + part], own_values[at * PART + part], own_query, there);
        }
        softmax.merge_warp<PART>(shared.seen[warp]);
        __syncthreads();
        // The block's softmax goes to all blocks of the cluster.
        for (int to = thread / HEAD; to < blocks; to += THREADS / HEAD) {
            float most, total, value = merged(shared.seen, WARPS, thread % HEAD, &most, &total);
            store_in_block(&shared.parts[rank][thread % HEAD], to, value);
            if (thread % HEAD == 0) {
                store_in_block(&shared.parts[rank][HEAD], to, most);
                store_in_block(&shared.parts[rank][HEAD + 1], to, total);
            }
        }
        cluster_arrive();
        cluster_wait();
        if (thread < HEAD) {
            shared.attended[thread] = merged(shared.parts, blocks, thread);
        }
        __syncthreads();
        // Global memory is written behind the cluster's barriers, which would wait for that.
        residual.zero_spare();
#pragma unroll
        for (int own = 0; own < OWN; ++own) {
            int local = own * WARPS + warp, at = rank * QKV + local;
            if (lane == 0 && local < QKV && at >= HEAD) {
                (at < 2 * HEAD ? keys : values)[(size_t)now * HEAD + at % HEAD] = kept[own];
            }
        }

        float own_attended[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            own_attended[i] = shared.attended[part * 8 + i];
        }
        for (int slice = rank; slice < SPLIT; slice += blocks) {
            if (slice != rank) {
                fetch_out(layer, slice);
            }
#pragma unroll
            for (int each = 0; each < OUT_EACH; ++each) {
                int at = each * THREADS + thread, to = slice * OUT + at / PART;
                float value = dot(out[each], own_attended, 0.0f);
                for (int distance = PART / 2; distance > 0; distance /= 2) {
                    value += __shfl_xor_sync(0xffffffff, value, distance);
                }
                if (part == 0 && at < OUT * PART) {
                    if (slice != rank) {
                        base[each] = head == 0 ? __ldcg(residual.x + to) : 0.0f;
                    }
                    atomicAdd(residual.sum + to, value + base[each] + out_bias[each]);
                }
            }
        }
    }
};
