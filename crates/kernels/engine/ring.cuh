// A ring of slots in shared memory, through which a block's weights, keys and values come: one warp (the producer) asks the
// TMA for them, in the order of their use and as far ahead as there are slots; the others (the consumers) never
// wait for memory as long as it keeps up. What is asked for does not depend on what is computed: the producer waits for no
// other block.
#pragma once
#include "shape.cuh"

constexpr int SLOT_BYTES = TILE * stage_bytes(SLOT_STEPS);
// Of keys and values. HEAD / 8 threads see a position, so that all see a round of them; a slot takes whole rounds, if one fits.
constexpr int SLOT_HOLDS = SLOT_BYTES / (4 * HEAD), ROUND = 8 * THREADS / HEAD;
constexpr int SLOT_POSITIONS = SLOT_HOLDS < ROUND ? SLOT_HOLDS : SLOT_HOLDS / ROUND * ROUND;
constexpr int MOST_SLOTS = 32;
static_assert(SLOT_POSITIONS > 0 && SLOT_BYTES % 128 == 0, "a slot takes what is copied");

// The consumers alone.
__device__ void consumers_sync() {
    asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory");
}

__device__ void bulk_copy(void *to, const void *from, int bytes, u64 *barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

// A stage of the ring, and the parity of its phase.
struct Stage {
    int slot = 0, parity = 0;

    __device__ void advance(int slots) {
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
    }
};

// What a launch says, beside what it reads and writes.
struct Launch {
    int layers, context;
    int slots, ahead; // of the ring; so many of them may be in flight
    int layer, phase; // of a kernel for one phase
};

struct Ring {
    char *memory;
    u64 *full, *empty;
    const Share *shares; // of the block, by matrix
    int slots, ahead;
    int sent = 0; // stages that the producer has asked for
    long long waited = 0; // with CLOCKS: cycles that a consumer has waited for stages
    Stage at, landed;

    // By all threads of the block, at its start. There are MOST_SLOTS at most.
    __device__ Ring(char *memory, u64 (&barriers)[2][MOST_SLOTS], const Share *shares, Launch launch)
        : memory(memory), full(barriers[0]), empty(barriers[1]), shares(shares), slots(launch.slots), ahead(launch.ahead) {
        if (threadIdx.x == 0) {
            for (int slot = 0; slot < slots; ++slot) {
                barrier_init(full + slot, 1);
                barrier_init(empty + slot, WARPS);
            }
            barriers_are_ready();
        }
        __syncthreads();
    }

    __device__ char *slot() const { return memory + at.slot * SLOT_BYTES; }

    // ---- The producer.
    // The next slot is free, and is to get so many bytes. No more than `ahead` copies are in flight: what other warps load
    // meanwhile would queue behind them.
    __device__ u64 *claim(int bytes) {
        if (sent >= slots) {
            wait(empty + at.slot, at.parity ^ 1);
        }
        if (sent >= ahead) {
            wait(full + landed.slot, landed.parity);
            landed.advance(slots);
        }
        u64 *barrier = full + at.slot;
        arrive_and_expect(barrier, bytes);
        return barrier;
    }

    __device__ void claimed() {
        ++sent;
        at.advance(slots);
    }

    // This block's rows of a matrix.
    __device__ void send_rows(const char *weights, int matrix, int layer, Share share) {
        const char *from = weights + begin_of(matrix, layer) + (size_t)share.first * row_bytes(matrix);
        int steps = steps_of(matrix);
#pragma unroll 1
        for (int row = 0; row < share.rows; row += TILE) {
            int rows = min(TILE, share.rows - row);
#pragma unroll 1
            for (int step = 0; step < steps; step += SLOT_STEPS) {
                int bytes = rows * stage_bytes(min(SLOT_STEPS, steps - step));
                u64 *barrier = claim(bytes);
                bulk_copy(slot(), from, bytes, barrier);
                from += bytes;
                claimed();
            }
        }
    }

    // So many tiles of `each` steps; a tile is in one stage.
    __device__ void send_tiles(const char *from, int tiles, int each) {
#pragma unroll 1
        for (int many = each > 0 ? SLOT_STEPS / each : 0; many > 0 && tiles > 0; tiles -= many) {
            int bytes = min(many, tiles) * each * TILE * STEP_BYTES;
            u64 *barrier = claim(bytes);
            bulk_copy(slot(), from, bytes, barrier);
            from += bytes;
            claimed();
        }
    }

    // The keys and values of earlier positions.
    __device__ void send_positions(const bf16 *caches, int layer, int now, int context) {
#pragma unroll 1
        for (int unit = rank_in(ATTENTION); unit < Positions::COUNT; unit += blocks()) {
            send_positions(caches, layer, now, context, unit);
        }
    }

    __device__ void send_positions(const bf16 *caches, int layer, int now, int context, int unit) {
        Positions part(unit, now);
        const bf16 *keys = caches + ((size_t)layer * 2 * KV_HEADS + part.head) * context * HEAD;
        const bf16 *values = keys + (size_t)KEYS * context;
#pragma unroll 1
        for (int from = part.from; from < part.to; from += SLOT_POSITIONS) {
            int bytes = 2 * HEAD * min(SLOT_POSITIONS, part.to - from);
            u64 *barrier = claim(2 * bytes);
            bulk_copy(slot(), keys + (size_t)from * HEAD, bytes, barrier);
            bulk_copy(slot() + 2 * HEAD * SLOT_POSITIONS, values + (size_t)from * HEAD, bytes, barrier);
            claimed();
        }
    }

    // What a phase takes.
    __device__ void send(const char *weights, const bf16 *caches, int layer, int phase, int now, int context) {
        if (WITHOUT & WEIGHTS) {
            return;
        }
        if (CLUSTER == 1 && phase == ATTENTION) {
            return send_positions(caches, layer, now, context);
        }
        // Attention in one phase: what a block of a cluster takes of a head, until there is no other head for it.
        bool heads = phase == ATTENTION, units = MERGED && phase == UP;
        int unit = blockIdx.x;
        if (heads && unit >= Positions::COUNT) {
            return;
        }
#pragma unroll 1
        do {
            Units own;
            Share share = heads ? Share{unit * SLICE, SLICE} : units ? own.rows() : shares[phase];
            send_rows(weights, heads ? QKV : phase, layer, share);
            if constexpr (CLUSTER > 1) {
                if (heads) {
                    send_positions(caches, layer, now, context, unit);
                }
            }
            if constexpr (CLUSTER > 1 || MERGED) {
                constexpr int TILES = WIDTH / CLUSTER / TILE, EACH = HEAD / STEP;
                if (heads || units) {
                    size_t first = heads ? (size_t)unit * TILES * EACH * TILE : (size_t)own.first * WIDTH;
                    const char *from = weights + begin_of(heads ? OUT : DOWN, layer) + first * STEP_BYTES;
                    send_tiles(from, heads ? TILES : WIDTH / TILE, heads ? EACH : own.steps);
                }
            }
            unit += blocks();
        } while (heads && unit < Positions::COUNT);
    }

    // ---- The consumers: every warp takes every stage.
    __device__ const char *take() {
        long long begin = CLOCKS ? clock64() : 0;
        if (!(WITHOUT & WEIGHTS)) {
            wait(full + at.slot, at.parity);
        }
        waited += CLOCKS ? clock64() - begin : 0;
        return slot();
    }

    __device__ void release() {
        __syncwarp();
        if (!(WITHOUT & WEIGHTS) && threadIdx.x % 32 == 0) {
            arrive(empty + at.slot);
        }
        at.advance(slots);
    }
};
