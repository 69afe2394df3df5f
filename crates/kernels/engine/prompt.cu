// idea: a prompt's part reads each key once for many queries: TOKENS neighbouring tokens, and all heads that share a head of keys, are the
// rows of a tile on tensor cores (flash_attention/05_swizzle); keys and values come through the text's blocks.
// constants: HEADS, KV_HEADS, HEAD of the model; BLOCK: tokens of a block of the pool.
#include "../flash_attention/online.cuh"
#include "../matmul_bf16/ampere.cuh"

constexpr int WARPS = 4, STAGES = 2, KEYS = 4096 / HEAD, GROUPED = HEADS / KV_HEADS, TOKENS = WARPS * 16 / GROUPED;
constexpr int ROW = (HEADS + 2 * KV_HEADS) * HEAD; // of q, k and v
static_assert(HEAD % 64 == 0, "panels are 64 numbers wide");

// Where 8 numbers of a panel lie: rows of 64 numbers, their eight pieces in an order that depends on the row.
__device__ __forceinline__ int swizzled(int row, int piece) {
    return row * 64 + (piece ^ row % 8) * 8;
}

// The plan lists each tile's first row of the step at `tiles_at`, and `most` numbers behind it how many tokens the tile has (at most TOKENS);
// its rows' positions follow one another. blockIdx.y: the head of keys.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
    prompt_attend(const bf16 *qkv, const bf16 *cache, const int *plan, int tiles_at, int most, int positions_at, int texts_at,
                  int tables_at, int slots, bf16 *attended) {
    __shared__ __align__(128) bf16 k[STAGES][HEAD / 64][KEYS * 64], v[STAGES][HEAD / 64][KEYS * 64];
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
        int key0 = step * KEYS, stage = step % STAGES;
        if (key0 < keys) {
#pragma unroll
            for (int i = threadIdx.x; i < KEYS * HEAD / 8; i += WARPS * 32) {
                int key = i / (HEAD / 8), piece = i % (HEAD / 8), position = min(key0 + key, keys - 1);
                size_t at = (((size_t)blocks[position / BLOCK] * KV_HEADS + head) * BLOCK + position % BLOCK) * HEAD + piece * 8;
                int there = swizzled(key, piece % 8);
                copy_8<1, 1, 64>(&k[stage][piece / 8][there], cache + at, HEAD, keys - key0 - key, HEAD);
                copy_8<1, 1, 64>(&v[stage][piece / 8][there], cache + (size_t)slots * KV_HEADS * HEAD + at, HEAD, keys - key0 - key, HEAD);
            }
        }
        copies_commit();
    };
    float s[KEYS / 8][4], o[HEAD / 8][4] = {}, factor[2];
    u32 p[KEYS / 16][4];
    Rows rows;
    const float scale = rsqrtf((float)HEAD) * 1.4426950408889634f; // exponentials are powers of two
    load(0);
    for (int step = 0; step * KEYS < keys; ++step) {
        int key0 = step * KEYS, stage = step % STAGES;
        copies_wait<0>();
        // This step's tiles are here, and everyone is done with the stage that is filled next.
        __syncthreads();
        load(step + 1);
#pragma unroll
        for (int x = 0; x < KEYS / 8; x += 2) {
            for (int i = 0; i < 4; ++i) {
                s[x][i] = s[x + 1][i] = 0.0f;
            }
#pragma unroll
            for (int part = 0; part < HEAD / 16; ++part) {
                u32 b[4];
                int key = x * 8 + lane / 16 * 8 + lane % 8;
                load_matrices(b, &k[stage][part / 4][swizzled(key, part % 4 * 2 + lane / 8 % 2)]);
                multiply(s[x], q[part], b[0], b[1]);
                multiply(s[x + 1], q[part], b[2], b[3]);
            }
        }
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
        softmax(s, rows, factor, scale);
        multiply_rows(o, factor);
        pack(p, s);
#pragma unroll
        for (int part = 0; part < KEYS / 16; ++part) {
#pragma unroll
            for (int x = 0; x < HEAD / 8; x += 2) {
                u32 b[4];
                load_transposed(b, &v[stage][x / 8][swizzled(part * 16 + lane % 16, x % 8 + lane / 16)]);
                multiply(o[x], p[part], b[0], b[1]);
                multiply(o[x + 1], p[part], b[2], b[3]);
            }
        }
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
