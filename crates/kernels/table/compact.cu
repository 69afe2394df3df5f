// idea: the kept rows of a column move together. A row's place: what earlier tiles keep, then earlier words, then lower bits.
// constants: WARPS per block, each moves a tile of 1024 rows; BATCH rows that a thread loads at once.
template <typename T>
__device__ void move_kept(const T *from, const unsigned *bits, const unsigned *offsets, unsigned n, T *to) {
    unsigned lane = threadIdx.x % 32, tile = blockIdx.x * WARPS + threadIdx.x / 32;
    if (tile * 1024 >= n) {
        return; // the whole warp: no tile
    }
    unsigned word = bits[tile * 32 + lane], own = __popc(word), place = own;
    for (unsigned distance = 1; distance < 32; distance *= 2) {
        unsigned left = __shfl_up_sync(0xffffffff, place, distance);
        place += lane >= distance ? left : 0;
    }
    place += offsets[tile] - own; // where the first row of this lane's word goes
    unsigned lower = (1u << lane) - 1;
    for (unsigned round = 0; round < 32; round += BATCH) {
        // All loaded before the first is stored: as far as the compiler knows, a store may change what is loaded next.
        unsigned kept[BATCH];
        T value[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            kept[k] = __shfl_sync(0xffffffff, word, round + k);
            if (kept[k] >> lane & 1) {
                value[k] = from[tile * 1024 + (round + k) * 32 + lane];
            }
        }
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            unsigned first = __shfl_sync(0xffffffff, place, round + k);
            if (kept[k] >> lane & 1) {
                to[first + __popc(kept[k] & lower)] = value[k];
            }
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
compact_u32(const unsigned *from, const unsigned *bits, const unsigned *offsets, const unsigned *rows, unsigned *to) {
    move_kept(from, bits, offsets, *rows, to);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
compact_f32(const float *from, const unsigned *bits, const unsigned *offsets, const unsigned *rows, float *to) {
    move_kept(from, bits, offsets, *rows, to);
}
