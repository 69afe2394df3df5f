// idea: attention through texts' blocks, on tensor cores, where each key is read once for all heads that share it (flash_attention/05_swizzle).
// constants: HEADS, KV_HEADS, HEAD of the model; BLOCK: tokens of a block of the pool.
// A tile of a prompt is some neighbouring tokens times those heads; a single token's tile has its heads alone, and warps share its keys out.
#include "../flash_attention/online.cuh"
#include "../matmul_bf16/ampere.cuh"

constexpr int WARPS = 4, GROUPED = HEADS / KV_HEADS;
constexpr int ROW = (HEADS + 2 * KV_HEADS) * HEAD; // of q, k and v
// Rows of a head lie in panels of at most 64 numbers, which are PIECES times 16 bytes.
constexpr int PANEL = HEAD < 64 ? HEAD : 64, PANELS = HEAD / PANEL, PIECES = PANEL / 8;
// Of a prompt's tiles: keys of a step.
constexpr int KEYS = HEAD < 64 ? 64 : 4096 / HEAD;
// Of single tokens: a warp reads 16 keys at a time, STAGES - 1 times ahead.
constexpr int STAGES = HEAD <= 64 ? 3 : 2, STRIDE = WARPS * 16;
static_assert(HEADS % KV_HEADS == 0 && GROUPED <= 8 && HEAD % PANEL == 0, "groups are whole, and so are panels");

// Where 8 numbers of a panel lie: its rows' pieces are in an order that depends on the row, so that no two of eight rows fall into one bank.
__device__ __forceinline__ int swizzled(int row, int piece) {
    return row * PANEL + (piece ^ row * PIECES / 8 % PIECES) * 8;
}

// Starts copying keys key0 .. of a text to a tile of N, the values behind them; from `end` on stand zeros. WORKERS threads share the work, of which
// this is number `thread`.
template <int N, int WORKERS>
__device__ __forceinline__ void load_keys(bf16 (&k)[PANELS][N * PANEL], bf16 (&v)[PANELS][N * PANEL], const bf16 *cache,
                                          const int *blocks, int slots, int head, int key0, int end, int thread) {
#pragma unroll
    for (int i = 0; i < N * HEAD / 8; i += WORKERS) {
        int key = (i + thread) / (HEAD / 8), piece = (i + thread) % (HEAD / 8), position = min(key0 + key, end - 1);
        size_t at = (((size_t)blocks[position / BLOCK] * KV_HEADS + head) * BLOCK + position % BLOCK) * HEAD + piece * 8;
        int to = swizzled(key, piece % PIECES);
        copy_8<1, 1, PANEL>(&k[piece / PIECES][to], cache + at, HEAD, end - key0 - key, HEAD);
        copy_8<1, 1, PANEL>(&v[piece / PIECES][to], cache + (size_t)slots * KV_HEADS * HEAD + at, HEAD, end - key0 - key, HEAD);
    }
}

// s = q · kᵀ of N keys.
template <int N>
__device__ __forceinline__ void scores(float (&s)[N / 8][4], const u32 (&q)[HEAD / 16][4], const bf16 (&k)[PANELS][N * PANEL]) {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int x = 0; x < N / 8; x += 2) {
        for (int i = 0; i < 4; ++i) {
            s[x][i] = s[x + 1][i] = 0.0f;
        }
#pragma unroll
        for (int part = 0; part < HEAD / 16; ++part) {
            u32 b[4];
            int key = x * 8 + lane / 16 * 8 + lane % 8;
            load_matrices(b, &k[part * 2 / PIECES][swizzled(key, part * 2 % PIECES + lane / 8 % 2)]);
            multiply(s[x], q[part], b[0], b[1]);
            multiply(s[x + 1], q[part], b[2], b[3]);
        }
    }
}

// o += weights · v of N keys.
template <int N>
__device__ __forceinline__ void gather(float (&o)[HEAD / 8][4], const float (&weights)[N / 8][4], const bf16 (&v)[PANELS][N * PANEL]) {
    int lane = threadIdx.x % 32;
    u32 p[N / 16][4];
    pack(p, weights);
#pragma unroll
    for (int part = 0; part < N / 16; ++part) {
#pragma unroll
        for (int x = 0; x < HEAD / 8; x += 2) {
            u32 b[4];
            load_transposed(b, &v[x / PIECES][swizzled(part * 16 + lane % 16, x % PIECES + lane / 16)]);
            multiply(o[x], p[part], b[0], b[1]);
            multiply(o[x + 1], p[part], b[2], b[3]);
        }
    }
}

// Exponentials are powers of two.
__device__ __forceinline__ float scale() {
    return rsqrtf((float)HEAD) * 1.4426950408889634f;
}

// The plan lists each tile's first row of the step at `tiles_at`, and `most` numbers behind it how many tokens the tile has (with their heads at most WARPS * 16 rows);
// its rows' positions follow one another. blockIdx.y: the head of keys.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    prompt_attend(const bf16 *qkv, const bf16 *cache, const int *plan, int tiles_at, int most, int positions_at, int texts_at,
                  int tables_at, int slots, bf16 *attended) {
    __shared__ __align__(128) bf16 k[2][PANELS][KEYS * PANEL], v[2][PANELS][KEYS * PANEL];
    int lane = threadIdx.x % 32, head = blockIdx.y, column = lane % 4 * 2;
    int row0 = plan[tiles_at + blockIdx.x], tokens = plan[tiles_at + most + blockIdx.x], position0 = plan[positions_at + row0];
    const int *blocks = plan + tables_at + plan[texts_at + row0];
    int keys = position0 + tokens;
    // The two rows of the tile that this thread holds numbers of: a token's heads lie one behind the other.
    int token[2], last[2];
    const bf16 *from[2];
    bf16 *to[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
        int row = threadIdx.x / 32 * 16 + lane / 4 + half * 8;
        token[half] = row / GROUPED < tokens ? row / GROUPED : tokens; // the latter is none
        last[half] = position0 + token[half];
        size_t of_step = row0 + token[half];
        from[half] = qkv + of_step * ROW + (head * GROUPED + row % GROUPED) * HEAD;
        to[half] = attended + (of_step * HEADS + head * GROUPED + row % GROUPED) * HEAD;
    }
    u32 q[HEAD / 16][4];
#pragma unroll
    for (int part = 0; part < HEAD / 16; ++part) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            q[part][i] = token[i % 2] < tokens ? *(const u32 *)&from[i % 2][part * 16 + i / 2 * 8 + column] : 0;
        }
    }
    auto load = [&](int step) {
        if (step * KEYS < keys) {
            load_keys<KEYS, WARPS * 32>(k[step % 2], v[step % 2], cache, blocks, slots, head, step * KEYS, keys, threadIdx.x);
        }
        copies_commit();
    };
    float s[KEYS / 8][4], o[HEAD / 8][4] = {}, factor[2];
    Rows rows;
    load(0);
    for (int step = 0; step * KEYS < keys; ++step) {
        int key0 = step * KEYS;
        copies_wait<0>();
        // This step's tiles are here, and everyone is done with those that are filled next.
        __syncthreads();
        load(step + 1);
        scores<KEYS>(s, q, k[step % 2]);
        if (key0 + KEYS > position0 + 1) {
#pragma unroll
            for (int x = 0; x < KEYS / 8; ++x) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    int key = key0 + x * 8 + column + i % 2;
                    s[x][i] = key >= keys || key > last[i / 2] ? HIDDEN : s[x][i];
                }
            }
        }
        softmax(s, rows, factor, scale());
        multiply_rows(o, factor);
        gather<KEYS>(o, s, v[step % 2]);
    }
    finish(rows, factor);
    multiply_rows(o, factor);
#pragma unroll
    for (int x = 0; x < HEAD / 8; ++x) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            if (token[half] < tokens) {
                *(u32 *)&to[half][x * 8 + column] = both(o[x][half * 2], o[x][half * 2 + 1]);
            }
        }
    }
}

struct Ring {
    bf16 k[STAGES][PANELS][16 * PANEL], v[STAGES][PANELS][16 * PANEL];
};

// Rows whose text reads no other token in this step; the plan lists them at `rows_at`. A block takes a row, a head of keys, and one of `splits` parts
// of the text; its warps take 16 keys in turn. Of several parts each leaves what it has in `parts`.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    token_attend(const bf16 *qkv, const bf16 *cache, const int *plan, int rows_at, int positions_at, int texts_at, int tables_at,
                 int slots, int splits, float *parts, bf16 *attended) {
    extern __shared__ __align__(128) unsigned char memory[];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.y, column = lane % 4 * 2;
    Ring &ring = ((Ring *)memory)[warp];
    int row = plan[rows_at + blockIdx.x], keys = plan[positions_at + row] + 1;
    const int *blocks = plan + tables_at + plan[texts_at + row];
    // Whole rounds, so that no position is in two parts.
    int each = (keys + splits * STRIDE - 1) / (splits * STRIDE) * STRIDE;
    int begin = blockIdx.z * each + warp * 16, end = min(keys, (int)(blockIdx.z + 1) * each);
    u32 q[HEAD / 16][4];
#pragma unroll
    for (int part = 0; part < HEAD / 16; ++part) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int g = lane / 4 + i % 2 * 8;
            const bf16 *from = qkv + (size_t)row * ROW + (head * GROUPED + g) * HEAD + part * 16 + i / 2 * 8 + column;
            q[part][i] = g < GROUPED ? *(const u32 *)from : 0;
        }
    }
    auto load = [&](int step) {
        int key0 = begin + step * STRIDE, stage = step % STAGES;
        if (key0 < end) {
            load_keys<16, 32>(ring.k[stage], ring.v[stage], cache, blocks, slots, head, key0, end, lane);
        }
        copies_commit();
    };
    float s[2][4], o[HEAD / 8][4] = {}, factor[2];
    Rows rows;
    for (int step = 0; step < STAGES - 1; ++step) {
        load(step);
    }
    for (int step = 0; begin + step * STRIDE < end; ++step) {
        int key0 = begin + step * STRIDE, stage = step % STAGES;
        copies_wait<STAGES - 2>();
        // The warp's own keys are here, and all its lanes are done with the stage that is filled next.
        __syncwarp();
        load(step + STAGES - 1);
        scores<16>(s, q, ring.k[stage]);
        if (key0 + 16 > end) {
#pragma unroll
            for (int x = 0; x < 2; ++x) {
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    s[x][i] = key0 + x * 8 + column + i % 2 >= end ? HIDDEN : s[x][i];
                }
            }
        }
        softmax(s, rows, factor, scale());
        multiply_rows(o, factor);
        gather<16>(o, s, ring.v[stage]);
    }
    // The warps' largest scores, sums and weighted values, to be put together; they lie where the keys did.
    copies_wait<0>();
    __syncthreads();
    float(&mosts)[WARPS][8] = *(float(*)[WARPS][8])memory;
    float(&sums)[WARPS][8] = *(float(*)[WARPS][8])(memory + sizeof(mosts));
    float(&all)[WARPS][8][HEAD] = *(float(*)[WARPS][8][HEAD])(memory + 2 * sizeof(mosts));
    float total = rows.total[0] + __shfl_xor_sync(~0u, rows.total[0], 1);
    total += __shfl_xor_sync(~0u, total, 2);
    int g = lane / 4;
    if (g < GROUPED) {
        if (lane % 4 == 0) {
            mosts[warp][g] = rows.most[0] * scale(), sums[warp][g] = total;
        }
#pragma unroll
        for (int x = 0; x < HEAD / 8; ++x) {
            *(float2 *)&all[warp][g][x * 8 + column] = make_float2(o[x][0], o[x][1]);
        }
    }
    __syncthreads();
    for (int at = threadIdx.x; at < GROUPED * HEAD; at += WARPS * 32) {
        int g = at / HEAD, i = at % HEAD;
        float largest = mosts[0][g], total = 0.0f, weighted = 0.0f;
        for (int other = 1; other < WARPS; ++other) {
            largest = fmaxf(largest, mosts[other][g]);
        }
        for (int other = 0; other < WARPS; ++other) {
            float factor = exp2f(mosts[other][g] - largest);
            total += factor * sums[other][g];
            weighted += factor * all[other][g][i];
        }
        if (splits == 1) {
            attended[((size_t)row * HEADS + head * GROUPED + g) * HEAD + i] = __float2bfloat16(weighted / total);
        } else {
            float *to = parts + (((size_t)blockIdx.x * HEADS + head * GROUPED + g) * splits + blockIdx.z) * (HEAD + 2);
            to[i] = weighted;
            if (i == 0) {
                to[HEAD] = largest, to[HEAD + 1] = total;
            }
        }
    }
}

// Puts the parts of token_attend together. A block takes a row's head.
extern "C" __global__ void __launch_bounds__(HEAD)
    attend_gather(const float *parts, const int *plan, int rows_at, int splits, bf16 *attended) {
    int head = blockIdx.y, i = threadIdx.x;
    const float *from = parts + ((size_t)blockIdx.x * HEADS + head) * splits * (HEAD + 2);
    float largest = from[HEAD], total = 0.0f, weighted = 0.0f;
#pragma unroll 8
    for (int part = 1; part < splits; ++part) {
        largest = fmaxf(largest, from[part * (HEAD + 2) + HEAD]);
    }
#pragma unroll 8
    for (int part = 0; part < splits; ++part) {
        const float *own = from + part * (HEAD + 2);
        float factor = exp2f(own[HEAD] - largest);
        total += factor * own[HEAD + 1];
        weighted += factor * own[i];
    }
    attended[((size_t)plan[rows_at + blockIdx.x] * HEADS + head) * HEAD + i] = __float2bfloat16(weighted / total);
}
