// idea: a bit for each row says whether it stays. A warp looks at a tile of 1024 rows: 32 words of 32 bits, and their count.
// constants: the limits within which a ride is believed, ZONES, and WARPS a block; the filter on the CPU takes the same.
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
#pragma unroll 8
    for (unsigned round = 0; round < 32; ++round) {
        unsigned i = first + round * 32 + lane;
        // Loaded before they are compared: all loads are in flight at once.
        bool stays = false;
        if (i < n) {
            stays = sound(zone[i], metres[i], seconds[i], cents[i]);
        }
        unsigned ballot = __ballot_sync(0xffffffff, stays);
        word = lane == round ? ballot : word;
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
