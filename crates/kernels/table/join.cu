// idea: the small table goes into a hash table, a slot of 8 bytes each (key above, value below); each row looks its key up.
// constants: WARPS per block; BATCH look-ups that a thread has in flight.
typedef unsigned long long u64;
#define EMPTY 0xffffffffffffffffull

// Slots are a power of two, 2^(32 - shift). Multiplying spreads neighbouring keys; the high bits depend on all of the key.
__device__ unsigned first_slot(unsigned key, unsigned shift) { return (key * 2654435769u) >> shift; }

// All slots must be EMPTY before (all bytes 0xff), and more than there are keys.
extern "C" __global__ void build(const unsigned *keys, const unsigned *values, unsigned n, u64 *slots, unsigned shift) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x, last = (1u << (32 - shift)) - 1;
    if (i < n) {
        u64 entry = (u64)keys[i] << 32 | values[i];
        unsigned slot = first_slot(keys[i], shift);
        // Whoever finds the slot empty has it; the others go on to the next one.
        while (atomicCAS(&slots[slot], EMPTY, entry) != EMPTY) {
            slot = (slot + 1) & last;
        }
    }
}

// Bits, counts and tiles as in keep.cu. Where a key is found its value is written, at the row's own place.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
probe(const unsigned *keys, const unsigned *rows, const u64 *slots, unsigned shift, unsigned *values, unsigned *bits,
      unsigned *counts) {
    unsigned n = *rows, lane = threadIdx.x % 32, last = (1u << (32 - shift)) - 1;
    unsigned tile = blockIdx.x * WARPS + threadIdx.x / 32, first = tile * 1024;
    if (first >= n) {
        return;
    }
    unsigned word = 0;
    for (unsigned round = 0; round < 32; round += BATCH) {
        unsigned key[BATCH], slot[BATCH];
        u64 entry[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            unsigned i = first + (round + k) * 32 + lane;
            key[k] = i < n ? keys[i] : 0;
            slot[k] = first_slot(key[k], shift);
        }
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            entry[k] = slots[slot[k]];
        }
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            unsigned i = first + (round + k) * 32 + lane;
            while (entry[k] != EMPTY && (unsigned)(entry[k] >> 32) != key[k]) {
                slot[k] = (slot[k] + 1) & last;
                entry[k] = slots[slot[k]];
            }
            bool found = i < n && entry[k] != EMPTY;
            if (found) {
                values[i] = (unsigned)entry[k];
            }
            unsigned ballot = __ballot_sync(0xffffffff, found);
            word = lane == round + k ? ballot : word;
        }
    }
    bits[tile * 32 + lane] = word;
    unsigned count = __popc(word);
    for (int distance = 16; distance > 0; distance /= 2) {
        count += __shfl_down_sync(0xffffffff, count, distance);
    }
    if (lane == 0) {
        counts[tile] = count;
    }
}
