// Solutions of lesson 22. Each section replaces the exercise cell of that name.

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

// exercise: training_hours
// 6 · 124e6 · 2.5e9 = 1.86e18 operations, at 0.4 · 989e12 a second: 4,702 s.
let my_hours: Option<f64> = Some(6.0 * 124e6 * 2.5e9 / (0.4 * 989e12) / 3600.0);

// exercise: diagnose_long_text
// 4 bytes from position 0 on and 4 from position 56 on are equally long, and cost different amounts: it is the place. Pieces that always begin
// at position 0 never read the rows 16 to 63 of the table of positions; of GPT-2's 1,024 rows of 768 numbers, 768 rows.
let my_diagnosis: Option<(check::TrainFault, f64)> = Some((check::TrainFault::Positions, 768.0 * 768.0));
