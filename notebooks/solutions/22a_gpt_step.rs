// Solutions of lesson 22a. Each section replaces the exercise cell of that name.

// exercise: cross_entropy
const CROSS_ENTROPY: &str = r#"extern "C" __global__ void cross_entropy(const float *logits, const int *targets, float *losses,
                                          float *gradients, int vocab, float scale) {
    __shared__ float mosts[4], sums[4];
    const float *row = logits + (size_t)blockIdx.x * vocab;
    float most = -3.4e38f, sum = 0.0f;
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) { // maximum and sum in one look: lesson 31a's online softmax
        float larger = fmaxf(most, row[i]);
        sum = sum * expf(most - larger) + expf(row[i] - larger);
        most = larger;
    }
    for (int away = 16; away > 0; away /= 2) { // two parts become one; a thread without a token has sum 0
        float other = __shfl_xor_sync(~0u, most, away), its = __shfl_xor_sync(~0u, sum, away), larger = fmaxf(most, other);
        sum = sum * expf(most - larger) + its * expf(other - larger);
        most = larger;
    }
    if (threadIdx.x % 32 == 0) { mosts[threadIdx.x / 32] = most; sums[threadIdx.x / 32] = sum; }
    __syncthreads();
    most = fmaxf(fmaxf(mosts[0], mosts[1]), fmaxf(mosts[2], mosts[3]));
    sum = 0.0f;
    for (int warp = 0; warp < 4; ++warp) { sum += sums[warp] * expf(mosts[warp] - most); }
    int target = targets[blockIdx.x];
    if (threadIdx.x == 0) { losses[blockIdx.x] = most + logf(sum) - row[target]; }
    for (int i = threadIdx.x; i < vocab; i += blockDim.x) {
        float probability = expf(row[i] - most) / sum;
        gradients[(size_t)blockIdx.x * vocab + i] = scale * (probability - (i == target ? 1.0f : 0.0f));
    }
}"#;

// exercise: sequences_that_fit
// 18 · 124.4e6 = 2.24 GB are there once: 37.76 GB are left. A sequence has 1,024 rows. Blocks: 12 · 42 · 2 · 1024 · 768 = 0.793 GB. Scores: 12 blocks
// of 12 heads, 12 · 6 · 4 · 12 · 1024² = 3.624 GB. A table of tokens × vocabulary: 4 · 1024 · 50257 = 0.206 GB, four of them 0.823 GB.
// 37.76 / 5.240 = 7.2; 37.76 / 1.616 = 23.4; 37.76 / 0.999 = 37.8.
let my_batches: [Option<u32>; 3] = [Some(7), Some(23), Some(37)];

// exercise: step_cures
// 1: the lines come to 19.6 of 19.8 ms, and each launch moves its bytes at 4 TB/s: fuse. One kernel reads x and z and writes a result, 1.2 GB,
// 0.3 ms; twelve of them 3.6 ms instead of 8.4. 2: the lines come to 7.4 ms: a graph, and with it no kernel becomes shorter. 3: 800 MB in
// 0.7 ms are 1.1 TB/s: a better kernel takes 0.2 ms, twelve of them 2.4 instead of 8.4.
let my_cures: [Option<(check::Cure, f64)>; 3] = [Some((check::Cure::Fuse, 15.0)), Some((check::Cure::Graph, 7.4)), Some((check::Cure::BetterKernel, 13.8))];
