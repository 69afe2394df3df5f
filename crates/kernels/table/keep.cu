// idea: a bit for each row says whether it stays. A warp looks at a tile of 1024 rows: 32 words of 32 bits, and their count.
// constants: the limits within which a ride is believed, ZONES (the filter on the CPU takes the same); WARPS per block, BATCH
//            rows that a thread loads at once.
__device__ bool sound(unsigned zone, unsigned metres, unsigned seconds, unsigned cents) {
    return zone >= 1 && zone < ZONES && metres >= MIN_METRES && metres <= MAX_METRES && seconds >= MIN_SECONDS &&
           seconds <= MAX_SECONDS && cents >= MIN_CENTS && cents <= MAX_CENTS && metres <= MAX_METRES_A_SECOND * seconds;
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
keep(const unsigned *zone, const unsigned *metres, const unsigned *seconds, const unsigned *cents, const unsigned *rows,
     unsigned *bits, unsigned *counts) {
    unsigned n = *rows, lane = threadIdx.x % 32;
    unsigned tile = blockIdx.x * WARPS + threadIdx.x / 32, first = tile * 1024;
    if (first >= n) {
        return; // the whole warp: no tile
    }
    unsigned word = 0;
    for (unsigned round = 0; round < 32; round += BATCH) {
        // All loaded before the first is looked at: 4 * BATCH loads of a thread are in flight at once.
        unsigned z[BATCH], m[BATCH], s[BATCH], c[BATCH];
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            unsigned i = first + (round + k) * 32 + lane;
            bool inside = i < n;
            z[k] = inside ? zone[i] : 0; // zone 0 is not believed
            m[k] = inside ? metres[i] : 0;
            s[k] = inside ? seconds[i] : 0;
            c[k] = inside ? cents[i] : 0;
        }
#pragma unroll
        for (int k = 0; k < BATCH; ++k) {
            unsigned ballot = __ballot_sync(0xffffffff, sound(z[k], m[k], s[k], c[k]));
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
