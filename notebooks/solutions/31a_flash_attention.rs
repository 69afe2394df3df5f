// Solutions of lesson 31a. Each section replaces the exercise cell of that name.

// exercise: one_pass
const ONE_PASS: &str = r#"__device__ float score(float x, const float *k, int key) {
    float s = x * k[key * 32 + threadIdx.x % 32] / sqrtf(32.0f);
    for (int i = 16; i > 0; i /= 2) { s += __shfl_xor_sync(~0u, s, i); } return s; }
extern "C" __global__ void attend(const float *q, const float *k, const float *v, float *o, int n) {
    int query = blockIdx.x * 8 + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (query >= n) { return; }
    float x = q[query * 32 + lane], most = -1e30f, sum = 0.0f, out = 0.0f;
    for (int key = 0; key < n; ++key) {
        float s = score(x, k, key), larger = fmaxf(most, s);
        float factor = expf(most - larger), p = expf(s - larger);
        sum = sum * factor + p;
        out = out * factor + p * v[key * 32 + lane];
        most = larger;
    }
    o[query * 32 + lane] = out / sum;
}"#;

// exercise: tile_loop
const TILE_LOOP: &str = r#"extern "C" __global__ void attend(const float *q, const float *k, const float *v, float *o,
                                  int queries, int keys) {
    __shared__ float k_tile[32][32], v_tile[32][32];
    int query = blockIdx.x * 64 + threadIdx.x;
    float x[32], out[32], most = __int_as_float(0xff800000), sum = 0.0f;
    for (int d = 0; d < 32; ++d) { x[d] = query < queries ? q[query * 32 + d] / sqrtf(32.0f) : 0.0f; out[d] = 0.0f; }
    for (int first = 0; first < keys; first += 32) {
        int there = min(32, keys - first);
        __syncthreads(); // nobody reads the tile before any more
        for (int i = threadIdx.x; i < there * 32; i += 64) {
            k_tile[i / 32][i % 32] = k[first * 32 + i];
            v_tile[i / 32][i % 32] = v[first * 32 + i];
        }
        __syncthreads(); // all of this one is there
        for (int y = 0; y < there; ++y) {
            float s = 0.0f;
            for (int d = 0; d < 32; ++d) { s += x[d] * k_tile[y][d]; }
            float larger = fmaxf(most, s), factor = expf(most - larger), p = expf(s - larger);
            sum = sum * factor + p;
            for (int d = 0; d < 32; ++d) { out[d] = out[d] * factor + p * v_tile[y][d]; }
            most = larger;
        }
    }
    for (int d = 0; d < 32 && query < queries; ++d) { o[query * 32 + d] = out[d] / sum; }
}"#;

// exercise: queries_per_block
// A key and its value are 4 · d bytes in bf16, and 4 · d operations for each query: an operation per byte for each query.
let my_queries: Option<f64> = Some((989.0_f64 / 3.35).ceil());
