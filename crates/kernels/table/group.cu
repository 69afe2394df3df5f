// idea: each block has a table of its own in shared memory, adds its rows to that, and then the table to the common one.
// constants: ZONES, the groups; THREADS per block; MAX_METRES of a row, so that the block's sums of 32 bits cannot overflow.
typedef unsigned long long u64;

// So many rows may a block add before its sums go to the common table.
#define MOST_ROWS (0xffffffffu / MAX_METRES)

__device__ void hand_over(unsigned table[3][ZONES], unsigned *rides, u64 *cents_sum, u64 *metres_sum) {
    __syncthreads(); // all rows are added
    for (int z = threadIdx.x; z < ZONES; z += THREADS) {
        if (table[0][z] > 0) {
            atomicAdd(&rides[z], table[0][z]);
            atomicAdd(&cents_sum[z], (u64)table[1][z]);
            atomicAdd(&metres_sum[z], (u64)table[2][z]);
        }
        table[0][z] = table[1][z] = table[2][z] = 0;
    }
    __syncthreads();
}

// Adds to the three results, which must be 0 before. A row of another zone is passed over.
extern "C" __global__ void __launch_bounds__(THREADS)
group(const unsigned *zone, const unsigned *cents, const unsigned *metres, const unsigned *rows, unsigned *rides,
      u64 *cents_sum, u64 *metres_sum) {
    __shared__ unsigned table[3][ZONES];
    for (int z = threadIdx.x; z < ZONES; z += THREADS) {
        table[0][z] = table[1][z] = table[2][z] = 0;
    }
    __syncthreads();
    unsigned n = *rows, added = 0;
    for (unsigned first = blockIdx.x * 4 * THREADS; first < n; first += gridDim.x * 4 * THREADS) {
        if (added + 4 * THREADS > MOST_ROWS) {
            hand_over(table, rides, cents_sum, metres_sum);
            added = 0;
        }
        added += 4 * THREADS;
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            unsigned i = first + k * THREADS + threadIdx.x;
            unsigned z = ZONES, fare = 0, distance = 0;
            if (i < n) {
                z = zone[i], fare = cents[i], distance = metres[i];
            }
            if (z < ZONES) {
                atomicAdd(&table[0][z], 1u);
                atomicAdd(&table[1][z], fare);
                atomicAdd(&table[2][z], distance);
            }
        }
    }
    hand_over(table, rides, cents_sum, metres_sum);
}
