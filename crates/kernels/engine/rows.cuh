// Rows of weights times a vector, by the tensor cores.
//
// mma multiplies sixteen rows of weights by a matrix of eight columns, and one vector fills one of them. Others are free, so
// that x comes in parts that are summed up at the end, and loses nothing. The order of the columns of W does not matter to a
// sum, as long as x has the same: a lane takes 16 bytes as they lie in memory.
//
// bf16: two parts, x rounded and what rounding took off, again rounded: 16 bits of mantissa.
// int8 and int4: codes are whole numbers, and x becomes some: within a step its numbers count in the same power of two,
// chosen so that the largest has 22 bits. Three parts are the bytes of these, each with a sign. A code of 4 bits is
// multiplied as the upper half of a byte, 16 times what it is. All products and the sums of a step are exact.
#pragma once
#include "ring.cuh"
#include "work.cuh"

__device__ constexpr int most_of(int a, int b) {
    return a > b ? a : b;
}
// Of x: where the MLP is one phase, its units are few at a time.
constexpr int MOST_COLUMNS = most_of(MERGED ? SLOT_STEPS * STEP : INNER, most_of(QUERY, WIDTH));
constexpr int GROUP_ROWS = WARPS > 8 ? 64 : 128; // rows whose sums wait in shared memory
constexpr int PARTS = BITS == 16 ? 2 : 3; // of x
// Bytes of a part of x that go with a lane's 16 bytes of weights, in 16 bytes.
constexpr int PIECES = BITS == 4 ? 2 : 1;
constexpr int X_BYTES = PIECES * PARTS * 4 * 16; // of a step

struct Shared {
    union {
        // As lanes read it: of each step, piece and part 16 bytes for each of four lanes.
        alignas(16) char x[MOST_COLUMNS / STEP * X_BYTES];
        float seen[HEADS_EACH][WARPS][HEAD + 2]; // attention has no x
    };
    float units[MOST_COLUMNS / STEP]; // what a step's whole numbers count in
    union {
        alignas(8) float sums[2][WARPS][GROUP_ROWS];
        float parts[CLUSTER][HEAD + 2]; // what each block of a cluster has gathered, when it has no sums
    };
    float2 block[WARPS];
    // Of phases that add to the residual: what one block adds for all; the units of the MLP.
    alignas(16) float base[ADDING > 0 ? WIDTH : 4], units_of_block[MERGED ? SLOT_STEPS * STEP : 4];
    // Attention by a cluster: the query, the token's own key and value; barriers.
    alignas(16) float query[HEAD];
    alignas(16) bf16 own[2][HEAD];
    u64 met[2];
    float2 angles[HEAD / 2]; // cosine and sine, of the token's position
    u64 barriers[2][MOST_SLOTS];
    bool last;
    Share shares[LOGITS + 1]; // of this block
    u64 *clocks; // of this phase, in global memory

    // With CLOCKS: when the block's first thread came here.
    __device__ void clock(int which) const {
        if (CLOCKS && threadIdx.x == 0) {
            clocks[which] = clock64();
        }
    }
};

static_assert(sizeof(Shared) <= 48 << 10, "what is not asked for by a launch has an end");

// Where the 16 bytes of a part of x lie.
__device__ int place_of(int step, int piece, int part, int lane) {
    return step * X_BYTES + ((piece * PARTS + part) * 4 + lane) * 16;
}

// Four neighbours of x go to shared memory, or none; by whole warps, whose lanes have neighbouring fours.
__device__ void put(Shared &shared, int column, bool there, float4 four) {
    int step = column / STEP, inside = column % STEP, lane = inside / (STEP / 4), byte = inside % (STEP / 4);
    float numbers[4] = {four.x, four.y, four.z, four.w};
#if BITS == 16
    if (there) {
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
            u32 first = pair(numbers[0], numbers[1]), second = pair(numbers[2], numbers[3]);
            *(uint2 *)(shared.x + place_of(step, 0, part, lane) + 2 * byte) = make_uint2(first, second);
            numbers[0] -= low(first), numbers[1] -= high(first);
            numbers[2] -= low(second), numbers[3] -= high(second);
        }
    }
#else
    // The largest of the step's numbers, as bits: those of a larger number are larger, and those of no number the largest.
    u32 most = 0;
#pragma unroll
    for (int i = 0; there && i < 4; ++i) {
        most = max(most, __float_as_uint(numbers[i]) & 0x7fffffff);
    }
    u32 lanes = STEP == 128 ? 0xffffffff : 0xffff << (threadIdx.x & 16);
    most = __reduce_max_sync(lanes, most);
    // 2^e ≤ most < 2^(e + 1), by the bits of the exponent; times 2^(21 − e), all numbers are below 2^22.
    bool finite = most < 0x7f800000;
    int exponent = max((int)(most >> 23), 32);
    float larger = __int_as_float((127 + 21 + 127 - exponent) << 23);
    u32 bytes[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        // Beside 1.5 · 2^23 a whole number stands in the lower bits. The lower bytes have a sign as well: what that takes from
        // them comes to the next byte.
        u32 whole = __float_as_uint(__fmaf_rn(numbers[i], larger, 12582912.0f)) - 0x4b400000;
        bytes[i] = (whole + 0x8080) ^ 0x8080;
    }
    if (!there) {
        return;
    }
    if (inside == 0) {
        float counts = __int_as_float((exponent - 21 - (BITS == 4 ? 4 : 0)) << 23);
        shared.units[step] = finite ? counts : __int_as_float(0x7fffffff);
    }
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
        // The first part is the highest byte.
        int which = PARTS - 1 - part, select = which | (4 + which) << 4;
        u32 even = __byte_perm(bytes[0], bytes[2], select), odd = __byte_perm(bytes[1], bytes[3], select);
        if (BITS == 4) {
            // Of eight columns, the even ones come from the lower halves of bytes, and the odd ones from the upper halves.
            char *to = shared.x + place_of(step, byte / 16, part, lane) + byte % 16 / 8 * 8 + byte % 8 / 2;
            *(unsigned short *)to = even, *(unsigned short *)(to + 4) = odd;
        } else {
            *(u32 *)(shared.x + place_of(step, 0, part, lane) + byte) = __byte_perm(even, odd, 0x5140);
        }
    }
#endif
}

// This thread's fours of COLUMNS numbers from `begin` on: those at 4 · (i · THREADS + thread).
template <int COLUMNS>
struct Fours {
    static constexpr int COUNT = (COLUMNS / 4 + THREADS - 1) / THREADS;
    float4 four[COUNT];

    __device__ Fours(const Work &work, int begin) {
#pragma unroll
        for (int i = 0; i < COUNT; ++i) {
            // Beyond the end the first four are read again, and dropped.
            four[i] = work.read_four(begin + (is_there(i) ? column(i) : 4 * (int)(threadIdx.x % (COLUMNS / 4))));
        }
    }

    __device__ static int column(int i) { return 4 * (i * THREADS + (int)threadIdx.x); }
    __device__ static bool is_there(int i) { return column(i) < COLUMNS; }
};

// COLUMNS numbers from `begin` on, which the former phase has left, become x. All are asked for before the first is used.
template <int COLUMNS>
__device__ void put_all_of(Shared &shared, const Work &work, int begin) {
    Fours<COLUMNS> all(work, begin);
#pragma unroll
    for (int i = 0; i < all.COUNT; ++i) {
        put(shared, all.column(i), all.is_there(i), all.four[i]);
    }
    consumers_sync();
}

#if BITS < 16
// sum (16 × 8) += a (16 × 32) × b (32 × 8), of whole numbers.
__device__ void multiply(int (&sum)[4], u32 a0, u32 a1, u32 a2, u32 a3, u32 b0, u32 b1) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9},"
                 " {%0, %1, %2, %3};"
                 : "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
                 : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
#endif

// A lane's part of a step of x: columns lane / 4 of eight have its parts, and then nothing.
struct StepOfX {
    u32 words[4 * PIECES];
    float unit;

    __device__ void load(const Shared &shared, int step) {
        int lane = threadIdx.x % 32;
#pragma unroll
        for (int piece = 0; piece < PIECES; ++piece) {
            uint4 four = make_uint4(0, 0, 0, 0);
            if (lane < 4 * PARTS) {
                four = *(const uint4 *)(shared.x + place_of(step, piece, 0, lane));
            }
            words[4 * piece] = four.x, words[4 * piece + 1] = four.y;
            words[4 * piece + 2] = four.z, words[4 * piece + 3] = four.w;
        }
        unit = BITS == 16 ? 1.0f : shared.units[step];
    }
};

// sums += rows of step `number` of a stage times that step of x: sums[0] and sums[1] belong to row lane / 4, the others to
// the row eight below. Beyond the tile's last row that one is read again, and its sum dropped.
__device__ void multiply_step(const char *stage, int number, int steps, int rows, const StepOfX &of_x, float (&sums)[4]) {
    int lane = threadIdx.x % 32, above = min(lane / 4, rows - 1), below = min(lane / 4 + 8, rows - 1);
    const char *own = stage + (number * rows) * STEP_BYTES + lane % 4 * 16;
    uint4 upper = *(const uint4 *)(own + above * STEP_BYTES), lower = *(const uint4 *)(own + below * STEP_BYTES);
    const u32(&x)[4 * PIECES] = of_x.words;
#if BITS == 16
    u32 first[4] = {upper.x, lower.x, upper.y, lower.y}, second[4] = {upper.z, lower.z, upper.w, lower.w};
    multiply(sums, first, x[0], x[1]);
    multiply(sums, second, x[2], x[3]);
#else
    u32 up[4] = {upper.x, upper.y, upper.z, upper.w}, down[4] = {lower.x, lower.y, lower.z, lower.w};
    int sum[4] = {};
#pragma unroll
    for (int w = 0; w < 4; w += 4 / (2 * PIECES)) {
#if BITS == 4
        multiply(sum, up[w] << 4 & 0xf0f0f0f0, down[w] << 4 & 0xf0f0f0f0, up[w] & 0xf0f0f0f0, down[w] & 0xf0f0f0f0,
                 x[2 * w], x[2 * w + 1]);
#else
        multiply(sum, up[w], down[w], up[w + 1], down[w + 1], x[w], x[w + 1]);
#endif
    }
    const bf16 *scales = (const bf16 *)(stage + steps * rows * STEP_BYTES) + number;
    int pitch = (stage_bytes(steps) - steps * STEP_BYTES) / 2;
    // The first of four lanes has the parts that count 65536 and 256, the second one the last part.
    bool first = lane % 4 == 0;
    float unit = of_x.unit * (first ? 256.0f : 1.0f);
    sums[0] += (float)(first ? 256 * sum[0] + sum[1] : sum[0]) * (unit * (float)scales[above * pitch]);
    sums[2] += (float)(first ? 256 * sum[2] + sum[3] : sum[2]) * (unit * (float)scales[below * pitch]);
#endif
}

__device__ void multiply_step(const char *stage, int number, int steps, int rows, const Shared &shared, int step,
                              float (&sums)[4]) {
    StepOfX x;
    x.load(shared, step);
    multiply_step(stage, number, steps, rows, x, sums);
}

// Row `row` (0: lane / 4, 1: eight below), in every fourth lane.
__device__ float sum_of(const float (&sums)[2][4], int row) {
    float sum = sums[0][2 * row] + sums[1][2 * row];
    if (BITS == 16) {
        return sum + sums[0][2 * row + 1] + sums[1][2 * row + 1];
    }
    return sum + __shfl_down_sync(0xffffffff, sum, 1);
}

// A phase or matrix that is not known at compile time.
constexpr int ANY = -1;
__device__ constexpr bool has_whole_stages(int matrix) {
    return matrix != ANY && SLOT_STEPS % WARPS == 0 && steps_of(matrix) % SLOT_STEPS == 0;
}

// A tile's rows times x, as far as this warp takes part: warps take turns along the rows. It has two sums: products for the one
// wait for those before them, and meanwhile those for the other come.
template <int MATRIX, bool WHOLE = has_whole_stages(MATRIX)>
struct Tile {
    int all; // steps of a row

    __device__ Tile(int matrix, const Shared &) : all(steps_of(matrix)) {}

    __device__ void multiply(Ring &ring, const Shared &shared, int rows, float (&sums)[2][4]) {
        int warp = threadIdx.x / 32;
#pragma unroll 1
        for (int first = 0; first < all; first += SLOT_STEPS) {
            int steps = min(SLOT_STEPS, all - first);
            const char *stage = ring.take();
            int step = (first + WARPS - 1 - warp) / WARPS * WARPS + warp;
#pragma unroll 1
            for (; !(WITHOUT & PRODUCTS) && step + WARPS < first + steps; step += 2 * WARPS) {
                multiply_step(stage, step - first, steps, rows, shared, step, sums[0]);
                multiply_step(stage, step + WARPS - first, steps, rows, shared, step + WARPS, sums[1]);
            }
            if (!(WITHOUT & PRODUCTS) && step < first + steps) {
                multiply_step(stage, step - first, steps, rows, shared, step, sums[0]);
            }
            ring.release();
        }
    }
};

// The same for a matrix whose rows are whole stages, of which each warp has as many steps: the place of all that it loads is known
// at compile time, so that no load waits for another. A short row's x stays in registers from tile to tile.
template <int MATRIX>
struct Tile<MATRIX, true> {
    static constexpr int EACH = SLOT_STEPS / WARPS, STAGES = steps_of(MATRIX) / SLOT_STEPS;
    static constexpr bool KEPT = STAGES * EACH * PIECES <= 8;
    StepOfX x[KEPT ? STAGES : 1][EACH];

    __device__ Tile(int, const Shared &shared) {
#pragma unroll
        for (int stage = 0; KEPT && stage < STAGES; ++stage) {
            load(shared, stage);
        }
    }

    __device__ void load(const Shared &shared, int stage) {
#pragma unroll
        for (int i = 0; i < EACH; ++i) {
            x[KEPT ? stage : 0][i].load(shared, stage * SLOT_STEPS + i * WARPS + (int)threadIdx.x / 32);
        }
    }

    __device__ void multiply(Ring &ring, const Shared &shared, int rows, float (&sums)[2][4]) {
#pragma unroll
        for (int stage = 0; stage < STAGES; ++stage) {
            if (!KEPT) {
                load(shared, stage);
            }
            const char *from = ring.take();
#pragma unroll
            for (int i = 0; !(WITHOUT & PRODUCTS) && i < EACH; ++i) {
                int number = i * WARPS + threadIdx.x / 32;
                multiply_step(from, number, SLOT_STEPS, rows, x[KEPT ? stage : 0][i], sums[i % 2]);
            }
            ring.release();
        }
    }
};

// This block's rows of a matrix times x. `before` is called with the first row of a pair as early as can be and may load
// what `finish` adds; `finish` gets it with the row and both sums. MATRIX: `matrix`, where it is known at compile time, else ANY.
template <int MATRIX, class Before, class Finish>
__device__ void multiply_rows(Ring &ring, Shared &shared, int matrix, Share share, Before before, Finish finish) {
    static_assert(THREADS >= GROUP_ROWS / 2, "a thread finishes one pair");
    Tile<MATRIX> own(matrix, shared);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, buffer = 0;
#pragma unroll 1
    for (int group = 0; group < share.rows; group += GROUP_ROWS, buffer ^= 1) {
        int many = min(GROUP_ROWS, share.rows - group), row = share.first + group + 2 * threadIdx.x;
        bool finishes = 2 * threadIdx.x < many;
        float2 kept = make_float2(0, 0);
        if (finishes) {
            kept = before(row, group == 0);
        }
#pragma unroll 1
        for (int tile = 0; tile < many; tile += TILE) {
            float sums[2][4] = {};
            own.multiply(ring, shared, min(TILE, many - tile), sums);
            float above = sum_of(sums, 0), below = sum_of(sums, 1);
            if (lane % 4 == 0) {
                shared.sums[buffer][warp][tile + lane / 4] = above;
                shared.sums[buffer][warp][tile + lane / 4 + 8] = below;
            }
        }
        consumers_sync();
        if (finishes) {
            float2 sum = make_float2(0, 0);
#pragma unroll
            for (int from = 0; from < WARPS; ++from) {
                float2 both = *(const float2 *)&shared.sums[buffer][from][2 * threadIdx.x];
                sum.x += both.x, sum.y += both.y;
            }
            finish(row, sum, kept);
        }
    }
}

// Tiles of `each` steps times x, each by one warp: `finish` gets a row (from 0 on) and its sum, in some lanes. EACH: `each`, where
// it is known at compile time, else 0.
template <int EACH, class Finish>
__device__ void multiply_tiles(Ring &ring, const Shared &shared, int tiles, int each, Finish finish) {
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, in_stage = SLOT_STEPS / (EACH > 0 ? EACH : each);
    constexpr int AT_ONCE = EACH > 0 ? (SLOT_STEPS / EACH + WARPS - 1) / WARPS : 1; // tiles of a warp
    StepOfX x[EACH > 0 ? EACH : 1];
#pragma unroll
    for (int step = 0; step < EACH; ++step) {
        x[step].load(shared, step);
    }
#pragma unroll 1
    for (int first = 0; first < tiles; first += in_stage) {
        int many = min(in_stage, tiles - first);
        const char *stage = ring.take();
#pragma unroll 1
        for (int tile = warp; tile < many; tile += AT_ONCE * WARPS) {
            float sums[AT_ONCE][2][4] = {};
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                int own = min(tile + k * WARPS, many - 1);
#pragma unroll
                for (int step = 0; !(WITHOUT & PRODUCTS) && step < EACH; ++step) {
                    multiply_step(stage, own * EACH + step, many * EACH, TILE, x[step], sums[k][step % 2]);
                }
#pragma unroll 1
                for (int step = 0; EACH == 0 && !(WITHOUT & PRODUCTS) && step < each; ++step) {
                    multiply_step(stage, own * each + step, many * each, TILE, shared, step, sums[k][0]);
                }
            }
#pragma unroll
            for (int k = 0; k < AT_ONCE; ++k) {
                int row = (first + tile + k * WARPS) * TILE + lane / 4;
                float above = sum_of(sums[k], 0), below = sum_of(sums[k], 1);
                if (lane % 4 == 0 && tile + k * WARPS < many) {
                    finish(row, above);
                    finish(row + 8, below);
                }
            }
        }
        ring.release();
    }
}
