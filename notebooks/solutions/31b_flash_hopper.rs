// Solutions of lesson 31b. Each section replaces the exercise cell of that name.

// exercise: tensor_busy
// Products: 4 · 128 · 64 · 192 operations at 8192 per cycle, 768 cycles. Powers: 128 · 64 at 16 per cycle, 512 cycles.
// Beside the powers only the product with V runs: 2 · d ÷ 8192 cycles for a score, and a power takes 1 ÷ 16.
let my_busy: Option<(f64, f64)> = Some((100.0 * 768.0 / (768.0 + 512.0), 8192.0 / 16.0 / 2.0));

// exercise: weigh
// Tile t lies in stage t % STAGES and ends phase t / STAGES of its barriers; a stage that nobody has used yet counts as left by a
// phase before the first, of parity 1.
const WEIGH: &str = r#"#include "wgmma.cuh"
const int TILE = 64, STAGES = 3;
extern "C" __global__ void weigh(const __grid_constant__ TensorMap v_map, const float *p, float *o, int length) {
    __shared__ __align__(1024) bf16 v[STAGES][TILE * 64];
    __shared__ u64 full[STAGES], empty[STAGES];
    __shared__ float sums[4][64];
    int warp = threadIdx.x / 32, lane = threadIdx.x % 32, head = blockIdx.x, tiles = (length + TILE - 1) / TILE;
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; ++i) { barrier_init(&full[i], 1); barrier_init(&empty[i], 4); }
        barriers_are_ready();
    }
    __syncthreads();
    if (warp == 4) {
        for (int t = 0; lane == 0 && t < tiles; ++t) {
            int stage = t % STAGES;
            wait(&empty[stage], t / STAGES % 2 ^ 1); // the first tiles find their stages free
            arrive_and_expect(&full[stage], sizeof v[0]);
            tma_load(v[stage], &v_map, 0, t * TILE, head, &full[stage]);
        }
    } else {
        float2 sum = {};
        for (int t = 0; t < tiles; ++t) {
            int stage = t % STAGES;
            wait(&full[stage], t / STAGES % 2);
            for (int row = warp; row < min(TILE, length - t * TILE); row += 4) {
                float weight = p[head * length + t * TILE + row];
                int at = row * 64 + (lane / 4 ^ row % 8) * 8 + lane % 4 * 2; // the TMA's swizzle
                float2 two = __bfloat1622float2(*(const __nv_bfloat162 *)&v[stage][at]);
                sum.x += weight * two.x, sum.y += weight * two.y;
            }
            __syncwarp();
            if (lane == 0) arrive(&empty[stage]);
        }
        sums[warp][2 * lane] = sum.x, sums[warp][2 * lane + 1] = sum.y;
    }
    __syncthreads();
    int d = threadIdx.x;
    if (d < 64) o[head * 64 + d] = sums[0][d] + sums[1][d] + sums[2][d] + sums[3][d];
}"#;

// exercise: diagnose_traffic
// From 127 to 128 tokens four boxes are added, K and V of one more tile: no key of it exists. Under the mask each block of 128 queries ends
// with a whole tile, so each of the 16 blocks has one too many, beside 1 + 2 + … + 16 = 136.
let my_traffic: Option<(check::Traffic, f64)> = Some((check::Traffic::EmptyTile, 100.0 * 16.0 / 136.0));
