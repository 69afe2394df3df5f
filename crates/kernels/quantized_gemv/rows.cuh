// Two rows at a time on the tensor cores, each read in one run, for the rungs that share it.
//
// A warp reads 512 neighbouring bytes of a row, 16 a lane: eight pieces of four lanes. For mma these are eight rows, and the
// eight pieces of x that go with them are its eight columns. Of the 64 sums of pieces with pieces, those on the diagonal are
// wanted: a piece of the row with its own piece of x. They are in one lane of four, and 56 are thrown away, as before.
#pragma once
#include "tensor.cuh"

// Words of a row that a lane takes, so that four lanes stay within a group; columns of a piece, and of a step of a warp.
constexpr int WORDS = GROUP / 4 / CODES < 4 ? GROUP / 4 / CODES : 4, PIECE = 4 * WORDS * CODES, STEP = 8 * PIECE;
constexpr int ROWS = 2 * PAIRS, THREADS = 32 * WARPS;

// A lane's words of the rows from row0 on, and the scales of its piece; zeros beyond the last piece. Beyond the last row the
// last one is read again, and its result dropped.
struct Pieces {
    u32 words[ROWS][WORDS];
    u32 scales[PAIRS];

    __device__ void load(const u32 *codes, const bf16 *all_scales, int step, int row0, int rows, int columns) {
        int lane = threadIdx.x % 32, piece = 8 * step + lane / 4, length = columns / CODES;
        bool there = piece * PIECE < columns;
        const u32 *from = codes + (size_t)row0 * length + (there ? (piece * 4 + lane % 4) * WORDS : 0);
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const u32 *row = from + (size_t)min(r, rows - 1 - row0) * length;
            if (WORDS == 4) {
                uint4 loaded = there ? load_once((const uint4 *)row) : make_uint4(0, 0, 0, 0);
                words[r][0] = loaded.x, words[r][1 % WORDS] = loaded.y;
                words[r][2 % WORDS] = loaded.z, words[r][3 % WORDS] = loaded.w;
            } else {
                uint2 loaded = there ? *(const uint2 *)row : make_uint2(0, 0);
                words[r][0] = loaded.x, words[r][1] = loaded.y;
            }
        }
        const bf16 *own = all_scales + (size_t)(there ? piece * PIECE / GROUP : 0) * rows;
        // Neighbouring rows' scales are neighbours in memory, and where all groups begin at multiples of 16 bytes, a load
        // takes those of eight.
        if (rows % 8 == 0) {
#pragma unroll
            for (int eight = 0; eight < PAIRS / 4; ++eight) {
                uint4 loaded = *(const uint4 *)(own + min(row0 + 8 * eight, rows - 8));
                scales[4 * eight] = loaded.x, scales[4 * eight + 1] = loaded.y;
                scales[4 * eight + 2] = loaded.z, scales[4 * eight + 3] = loaded.w;
            }
        } else {
            const unsigned short *one = (const unsigned short *)own;
#pragma unroll
            for (int p = 0; p < PAIRS; ++p) {
                scales[p] = one[min(row0 + 2 * p, rows - 1)] | (u32)one[min(row0 + 2 * p + 1, rows - 1)] << 16;
            }
        }
    }

    // sums[r] += row r's pieces times theirs of x; it counts in the lanes that `counts` names.
    __device__ void multiply(const bf16 *all, int step, int columns, float (&sums)[ROWS]) const {
        int lane = threadIdx.x % 32, first = step * STEP + lane * WORDS * CODES;
        uint4 x[WORDS * CODES / 8];
#pragma unroll
        for (int i = 0; i < WORDS * CODES / 8; ++i) {
            x[i] = first < columns ? ((const uint4 *)(all + first))[i] : make_uint4(0, 0, 0, 0);
        }
        Operand<WORDS> operand(x);
#pragma unroll
        for (int p = 0; p < PAIRS; ++p) {
            float out[4];
            operand.multiply(words[2 * p], words[2 * p + 1], out);
            bool odd = lane / 4 % 2;
            sums[2 * p] += (odd ? out[1] : out[0]) * low(scales[p]);
            sums[2 * p + 1] += (odd ? out[3] : out[2]) * high(scales[p]);
        }
    }
};

// Whether the lane has the diagonal's sum of its piece: it holds columns 2 (lane % 4) and the next of row lane / 4.
__device__ bool counts() {
    int lane = threadIdx.x % 32;
    return lane / 4 / 2 == lane % 4;
}

// Adds up what the warps have of each row, in a fixed order, and writes it.
__device__ void finish(const float (&sums)[ROWS], bf16 *y, int row0, int rows) {
    // A sum of each warp and piece; so many threads share a row.
    constexpr int ALL = 8 * WARPS, TOGETHER = THREADS / ROWS < 32 ? THREADS / ROWS : 32;
    __shared__ float shared[ROWS][ALL + 1];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    if (counts()) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            shared[r][warp * 8 + lane / 4] = sums[r];
        }
    }
    __syncthreads();
    int r = threadIdx.x / TOGETHER;
    float sum = 0.0f;
    if (r < ROWS) {
        for (int at = threadIdx.x % TOGETHER; at < ALL; at += TOGETHER) {
            sum += shared[r][at];
        }
    }
    for (int distance = TOGETHER / 2; distance > 0; distance /= 2) {
        sum += __shfl_xor_sync(0xffffffff, sum, distance);
    }
    if (r < ROWS && threadIdx.x % TOGETHER == 0 && row0 + r < rows) {
        y[row0 + r] = sum;
    }
}
