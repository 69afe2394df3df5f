//! The choice of the next token on the device: temperature and top-k.

use crate::check::Verdict;
use crate::check::kernels::{self, first_is, shared_out, unchanged};
use crate::check::verdict::{Check, none_told, told};
use gpulab::cpu;
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::warpsim::Kind;

const BLOCK: u32 = 256;
/// Numbers in [0, 1), one for each row of a launch: both ends, and between.
const UNIFORM: [f32; 5] = [0.0, 0.2, 0.5, 0.93, 0.999_999];
/// Tokens and k: one token, one that is kept, a warp and its neighbours, a block and its neighbours, all, more than all.
const SHAPES: [(usize, usize); 8] = [(1, 1), (31, 5), (33, 1), (33, 33), (256, 40), (257, 40), (1000, 2000), JUDGED];
const JUDGED: (usize, usize) = (640, 40);

/// Checks a kernel `sample(const float *logits, const float *uniform, int *token, int vocab, float temperature, int k)`, launched with a block
/// of 256 threads for each row of at most 1,024 logits. Of a row only the k largest logits are kept (of equal ones those that stand first; all
/// where k is larger), each with the weight `exp((logit − largest) / temperature)`. `token[row]` is the first kept token, counted from 0, at
/// which the running sum of weights exceeds `uniform[row]` times their whole sum. Each logit is to be read from memory once.
pub fn sample(source: &str) -> Verdict {
    kernels::verdict("sample", source, "sample", mistake_hint, |gpu, kernel| {
        for (at, (vocab, k)) in SHAPES.into_iter().enumerate() {
            for (scale, offset, temperature) in [(2.0, 0.0, 1.0), (30.0, 300.0, 5.0), (3.0, -300.0, 0.3)] {
                // In eighths: many logits are equal.
                let logit = |x: f32| (8.0 * scale * x).round() / 8.0 + offset;
                let logits: Vec<f32> =
                    cpu::random_f32(vocab * UNIFORM.len(), at as u64 + 1).into_iter().map(logit).collect();
                let rows = Rows { logits, vocab, k, temperature };
                rows.run(gpu, kernel)?;
                if (vocab, k) == JUDGED {
                    cost(&rows.inspect(gpu, kernel)?)?;
                }
                if vocab >= JUDGED.0 {
                    break; // one of the long ones is enough: where one thread does all, it takes long
                }
            }
        }
        Ok(())
    })
}

struct Rows {
    logits: Vec<f32>,
    vocab: usize,
    k: usize,
    temperature: f32,
}

impl Rows {
    /// What is wrong with the launch's results.
    fn run(&self, gpu: &Gpu, kernel: &Kernel) -> Check {
        let (logits, uniform) = (gpu.to_device(&self.logits)?, gpu.to_device(&UNIFORM)?);
        let mut token = gpu.poison::<i32>(UNIFORM.len())?;
        let config = LaunchConfig::new(UNIFORM.len() as u32, BLOCK);
        let numbers = (self.vocab as i32, self.temperature, self.k as i32);
        kernel.launch(config, (&logits, &uniform, &mut token, numbers.0, numbers.1, numbers.2))?;
        unchanged("logits", &logits, &self.logits)?;
        unchanged("uniform", &uniform, &UNIFORM)?;
        let given = token.to_host()?;
        given.iter().enumerate().try_for_each(|(row, token)| self.chosen(row, *token, &given))
    }

    fn inspect(&self, gpu: &Gpu, kernel: &Kernel) -> Check<Inspection> {
        let (logits, uniform) = (gpu.to_device(&self.logits)?, gpu.to_device(&UNIFORM)?);
        let mut token = gpu.poison::<i32>(UNIFORM.len())?;
        let config = LaunchConfig::new(UNIFORM.len() as u32, BLOCK);
        let numbers = (self.vocab as i32, self.temperature, self.k as i32);
        Ok(kernel.inspect(config, (&logits, &uniform, &mut token, numbers.0, numbers.1, numbers.2))?)
    }

    /// Weights of a row in f64: of the k largest, at a temperature; of equal ones the first, or the last.
    fn weights(&self, row: usize, k: usize, temperature: f32, last: bool) -> Vec<f64> {
        let logits = &self.logits[row * self.vocab..(row + 1) * self.vocab];
        let mut order: Vec<usize> = (0..self.vocab).collect();
        if last {
            order.reverse();
        }
        order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
        let most = f64::from(logits[order[0]]);
        let mut weights = vec![0.0; self.vocab];
        for at in &order[..k.min(self.vocab)] {
            weights[*at] = ((f64::from(logits[*at]) - most) / f64::from(temperature)).exp();
        }
        weights
    }

    fn chosen(&self, row: usize, given: i32, all: &[i32]) -> Check {
        let weights = self.weights(row, self.k, self.temperature, false);
        if fits(&weights, given, UNIFORM[row]) {
            return Ok(());
        }
        let (vocab, k, temperature, u) = (self.vocab, self.k, self.temperature, UNIFORM[row]);
        let right = first(&weights, u);
        let what = format!(
            "{vocab} logits, k = {k}, temperature {temperature}, uniform {u}: token {given}, and it should be {right}"
        );
        let of = |row: usize| &self.logits[row * vocab..(row + 1) * vocab];
        let most = |row: usize| of(row).iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let likeliest = |(row, token): (usize, &i32)| of(row).get(*token as usize).is_some_and(|own| *own == most(row));
        let (meaning, idea) = if !(0..vocab as i32).contains(&given) {
            (
                "that is no token of this row: nobody has chosen one, or the walk has run past the end",
                "rounding may leave the running sum slightly below the total: then it is the last kept token",
            )
        } else if k > 1 && all.iter().enumerate().all(likeliest) {
            (
                "this is the likeliest token, whatever `uniform` says",
                "the token is drawn: uniform · the sum of weights is where to stop",
            )
        } else if weights[given as usize] == 0.0 || fits(&self.weights(row, k, temperature, true), given, u) {
            (
                "these are not the k tokens that are kept",
                "a token is kept when fewer than k others stand before it: larger ones, and equal ones with a smaller number",
            )
        } else if fits(&self.weights(row, k, 1.0, false), given, u) {
            (
                "this would be right at temperature 1",
                "divide the distance from the largest logit by the temperature, then take exp",
            )
        } else {
            (
                "the running sum goes over the kept tokens in the order of their numbers, and the first one whose sum exceeds uniform · total is chosen",
                "give each thread a stretch of neighbouring tokens: its sum, then the sums of all threads before it, then a walk through the one stretch in which the place lies",
            )
        };
        told(what, meaning, idea)
    }
}

/// The first token whose running sum exceeds that part of all weights.
fn first(weights: &[f64], part: f32) -> usize {
    let (total, mut sum) = (weights.iter().sum::<f64>(), 0.0);
    let found = weights.iter().position(|weight| {
        sum += weight;
        sum > f64::from(part) * total
    });
    found.unwrap_or_else(|| weights.iter().rposition(|weight| *weight > 0.0).unwrap_or(0))
}

/// Whether the place lies in the token's stretch, but for the rounding of a thousand additions.
fn fits(weights: &[f64], given: i32, part: f32) -> bool {
    let Ok(at) = usize::try_from(given) else { return false };
    let Some(own) = weights.get(at).filter(|own| **own > 0.0) else { return false };
    let (total, before) = (weights.iter().sum::<f64>(), weights[..at].iter().sum::<f64>());
    let (place, slack) = (f64::from(part) * total, 2e-5 * total);
    before - slack <= place && place <= before + own + slack
}

fn cost(seen: &Inspection) -> Check {
    let least = (UNIFORM.len() * (JUDGED.0 * 4 / 32 + 1)) as u64;
    // Who reads the row's number again and again reads one sector; a second pass would be twice as many.
    let most = least + least / 2;
    let own = seen.counters.global_load_sectors;
    none_told(
        (own > most).then(|| {
            format!(
                "right, but with {} rows of {} its loads ask for {own} sectors; logits and numbers lie in {least}",
                UNIFORM.len(),
                JUDGED.0
            )
        }),
        "every pass over the logits reads them from memory again, or neighbouring lanes read logits that lie apart",
        "a row is at most 4 KB: bring it to shared memory once, lane i beside lane i + 1, and make the passes there",
    )?;
    shared_out(seen, 0.05)
}

/// What to ask oneself about the first mistake.
fn mistake_hint(error: &Error) -> &'static str {
    if first_is(error, &[Kind::GlobalRace]) {
        "several threads write the row's token: which one of them knows that it is right?"
    } else if first_is(error, &[Kind::BarrierDivergence, Kind::Deadlock]) {
        "all threads of the block must reach each barrier, also those that have no logit"
    } else if first_is(error, &[Kind::SharedRace, Kind::UninitialisedRead]) {
        "who writes that word, and what makes the reader wait for it? With few logits some threads have none: what do they leave?"
    } else {
        "compute the index by hand for that block and thread: is there such a logit?"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::kernels::{expect, expect_whole, passes};

    const RIGHT: &str = r#"extern "C" __global__ void sample(const float *logits, const float *uniform, int *token, int vocab, float temperature, int k) {
    __shared__ float row[1024], sums[256];
    __shared__ int best;
    int t = threadIdx.x;
    for (int i = t; i < vocab; i += 256) { row[i] = logits[blockIdx.x * vocab + i]; }
    __syncthreads();
    float largest = row[0];
    for (int i = 1; i < vocab; ++i) { largest = fmaxf(largest, row[i]); }
    int each = (vocab + 255) / 256, from = min(t * each, vocab), to = min(from + each, vocab);
    float weights[4], sum = 0.0f;
    for (int i = from; i < to; ++i) {
        int before = 0;
        for (int j = 0; j < vocab; ++j) { before += row[j] > row[i] || (row[j] == row[i] && j < i); }
        weights[i - from] = before < k ? expf((row[i] - largest) / temperature) : 0.0f;
        sum += weights[i - from];
    }
    sums[t] = sum;
    if (t == 0) { best = 0; }
    __syncthreads();
    float below = 0.0f, total = 0.0f;
    for (int i = 0; i < 256; ++i) { below += i < t ? sums[i] : 0.0f; total += sums[i]; }
    float place = uniform[blockIdx.x] * total;
    for (int i = from; i < to; ++i) {
        if (weights[i - from] > 0.0f && below <= place) { atomicMax(&best, i); }
        below += weights[i - from];
    }
    __syncthreads();
    if (t == 0) { token[blockIdx.x] = best; }
}"#;

    #[test]
    fn right_ones_of_other_shapes_pass() {
        // Rounds of the block's largest in place of ranks: what is out is marked.
        let rounds = r#"extern "C" __global__ void sample(const float *logits, const float *uniform, int *token, int vocab, float temperature, int k) {
    __shared__ float row[1024], weight[1024], most[256];
    __shared__ int who[256];
    int t = threadIdx.x;
    for (int i = t; i < vocab; i += 256) { row[i] = logits[blockIdx.x * vocab + i]; weight[i] = 0.0f; }
    __syncthreads();
    float largest = 0.0f;
    for (int round = 0; round < min(k, vocab); ++round) {
        float own = -3e38f; int at = 1 << 30;
        for (int i = t; i < vocab; i += 256) { if (row[i] > own) { own = row[i]; at = i; } }
        most[t] = own; who[t] = at;
        __syncthreads();
        for (int d = 128; d > 0; d /= 2) {
            if (t < d && (most[t + d] > most[t] || (most[t + d] == most[t] && who[t + d] < who[t]))) { most[t] = most[t + d]; who[t] = who[t + d]; }
            __syncthreads();
        }
        if (round == 0) { largest = most[0]; }
        if (t == 0) { weight[who[0]] = expf((most[0] - largest) / temperature); row[who[0]] = -3e38f; }
        __syncthreads();
    }
    if (t == 0) {
        float total = 0.0f, sum = 0.0f;
        for (int i = 0; i < vocab; ++i) { total += weight[i]; }
        int last = 0;
        for (int i = 0; i < vocab; ++i) {
            if (weight[i] > 0.0f) { last = i; sum += weight[i]; if (sum > uniform[blockIdx.x] * total) { break; } }
        }
        token[blockIdx.x] = last;
    }
}"#;
        // One barrier's sums by a doubling scan.
        let scanned = RIGHT.replace(
            "for (int i = 0; i < 256; ++i) { below += i < t ? sums[i] : 0.0f; total += sums[i]; }",
            "for (int d = 1; d < 256; d *= 2) { float more = t >= d ? sums[t - d] : 0.0f; __syncthreads(); sums[t] += more; __syncthreads(); }\n    below = sums[t] - sum; total = sums[255];",
        );
        passes(sample, &[RIGHT, rounds, &scanned]);
    }

    #[test]
    fn wrong_ones_are_told_so() {
        expect(
            sample,
            RIGHT,
            &[
                (" / temperature", "", "right at temperature 1"),
                (" && j < i)", " && j > i)", "not the k tokens"),
                ("before < k", "before <= k", "not the k tokens"),
                ("before < k", "true", "not the k tokens"),
                ("uniform[blockIdx.x] * total", "0.5f * total", "in the order of their numbers"),
                (
                    "below <= place) { atomicMax(&best, i); }",
                    "below >= place) { atomicMax(&best, i); }",
                    "it should be",
                ),
                ("    __syncthreads();\n    float largest", "    float largest", "who writes that word"),
                ("i < vocab; i += 256", "i <= vocab; i += 256", "is there such a logit"),
                ("void sample", "void choose", "no kernel `sample`"),
                // Right, and each pass reads from memory.
                (
                    "before += row[j] > row[i]",
                    "before += ((const volatile float *)logits)[blockIdx.x * vocab + j] > row[i]",
                    "its loads ask for",
                ),
            ],
        );
    }

    #[test]
    fn cheats_are_told_so() {
        let likeliest = RIGHT.replace("weights[i - from] > 0.0f && below <= place", "row[i] == largest");
        let lonely = r#"extern "C" __global__ void sample(const float *logits, const float *uniform, int *token, int vocab, float temperature, int k) {
    __shared__ float row[1024], weight[1024];
    for (int i = threadIdx.x; i < vocab; i += 256) { row[i] = logits[blockIdx.x * vocab + i]; }
    __syncthreads();
    if (threadIdx.x != 0) { return; }
    float largest = row[0], total = 0.0f, sum = 0.0f;
    for (int i = 1; i < vocab; ++i) { largest = fmaxf(largest, row[i]); }
    for (int i = 0; i < vocab; ++i) {
        int before = 0;
        for (int j = 0; j < vocab; ++j) { before += row[j] > row[i] || (row[j] == row[i] && j < i); }
        weight[i] = before < k ? expf((row[i] - largest) / temperature) : 0.0f;
        total += weight[i];
    }
    int last = 0;
    for (int i = 0; i < vocab; ++i) {
        if (weight[i] > 0.0f) { last = i; sum += weight[i]; if (sum > uniform[blockIdx.x] * total) { break; } }
    }
    token[blockIdx.x] = last;
}"#;
        let constant = RIGHT.replace("token[blockIdx.x] = best;", "token[blockIdx.x] = 0;");
        let spoils = RIGHT.replace(
            "token[blockIdx.x] = best;",
            "token[blockIdx.x] = best; ((float *)logits)[blockIdx.x * vocab] = 0.0f;",
        );
        expect_whole(
            sample,
            &[
                (&likeliest, "whatever `uniform` says"),
                (lonely, "the work is not shared out"),
                (&constant, "and it should be"),
                (&spoils, "the input `logits` has changed"),
            ],
        );
    }
}
