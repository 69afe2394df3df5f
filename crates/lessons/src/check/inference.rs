//! Exercises of lesson 40.

use super::on_paper::part;
use super::verdict::{Check, ask, timed, verdict, wrong};
use super::{Verdict, kernels};
use gpulab::cpu::{AttentionShape, attention_inputs};
use gpulab::error::Error;
use gpulab::gpu::{Gpu, Kernel};
use gpulab::launch::LaunchConfig;
use gpulab::measurement::figures;
use std::fmt;

/// Head dimension of [`decode_step`]: a lane for each number.
const HEAD: usize = 32;

/// Checks a kernel `decode(const float *q, const float *k, const float *v, float *k_cache, float *v_cache, float *o, int
/// position, int capacity)`: one step of one text, a block of one warp for each head of 32 numbers. `q`, `k`, `v` and `o` are
/// `[heads, 32]`, the caches `[heads, capacity, 32]`. It stores key and value at `position`, and attends from q to all keys up
/// to that one: right for scores of any size, without touching the rest of the caches, and reading each key and value once.
pub fn decode_step(source: &str) -> Verdict {
    kernels::verdict("decode_step", source, "decode", decode_mistake, |gpu, kernel| {
        for (heads, capacity, position) in [(1, 4, 0), (3, 5, 4), (2, 40, 33), (4, 70, 37)] {
            for (spread, shift) in [(1.0, 0.0), (200.0, 0.0), (1.0, -300.0)] {
                let case = Step { heads, capacity, position, spread, shift };
                case.check(gpu, kernel)?;
            }
        }
        let case = Step { heads: 4, capacity: 300, position: 255, spread: 1.0, shift: 0.0 };
        case.cost(gpu, kernel)
    })
}

/// One launch of [`decode_step`].
#[derive(Clone, Copy)]
struct Step {
    heads: usize,
    capacity: usize,
    position: usize,
    /// How far scores spread, and around which number.
    spread: f32,
    shift: f32,
}

/// q, k, v, and both caches before the launch: NaN from `position` on.
type StepInputs = ([Vec<f32>; 3], [Vec<f32>; 2]);

impl Step {
    fn inputs(self) -> StepInputs {
        let length = self.position + 1;
        let shape = AttentionShape { batch: 1, q_heads: self.heads, kv_heads: self.heads, length, width: HEAD };
        let [q, mut k, v] = attention_inputs(shape, 5, self.spread);
        let last = |x: &[f32]| -> Vec<f32> {
            (0..self.heads).flat_map(|head| &x[(head * length + self.position) * HEAD..][..HEAD]).copied().collect()
        };
        let mut q = last(&q);
        if self.shift != 0.0 {
            // One number of each key is the same, and asks for the shift: all scores move by it.
            let scale = (HEAD as f32).sqrt();
            q.chunks_mut(HEAD).for_each(|head| head[0] = self.shift * scale);
            k.chunks_mut(HEAD).for_each(|key| key[0] = 1.0);
        }
        let (new_k, new_v) = (last(&k), last(&v));
        let cache = |x: &[f32]| -> Vec<f32> {
            let mut cache = vec![f32::NAN; self.heads * self.capacity * HEAD];
            for head in 0..self.heads {
                let kept = self.position * HEAD;
                cache[head * self.capacity * HEAD..][..kept].copy_from_slice(&x[head * length * HEAD..][..kept]);
            }
            cache
        };
        let caches = [cache(&k), cache(&v)];
        ([q, new_k, new_v], caches)
    }

    /// The result of a head in f64, over keys `from` to `to`, both included, with the new key and value in their place.
    fn exact(self, ([q, k, v], caches): &StepInputs, head: usize) -> Vec<f64> {
        let at = |cache: &[f32], new: &[f32], key: usize, d: usize| -> f64 {
            let number = match key == self.position {
                true => new[head * HEAD + d],
                false => cache[(head * self.capacity + key) * HEAD + d],
            };
            f64::from(number)
        };
        let score = |key: usize| {
            let product = |d| f64::from(q[head * HEAD + d]) * at(&caches[0], k, key, d);
            (0..HEAD).map(product).sum::<f64>() / (HEAD as f64).sqrt()
        };
        let scores: Vec<f64> = (0..=self.position).map(score).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        let mean = |d| weights.iter().enumerate().map(|(key, p)| p / sum * at(&caches[1], v, key, d)).sum();
        (0..HEAD).map(mean).collect()
    }

    fn check(self, gpu: &Gpu, kernel: &Kernel) -> Check {
        let inputs = self.inputs();
        let ([q, k, v], caches) = &inputs;
        let on = [q, k, v].map(|x| gpu.to_device(x));
        let [on_q, on_k, on_v] = on;
        let (on_q, on_k, on_v) = (on_q?, on_k?, on_v?);
        let (mut keys, mut values) = (gpu.to_device(&caches[0])?, gpu.to_device(&caches[1])?);
        let mut o = gpu.poison::<f32>(q.len())?;
        let sides = (self.position as i32, self.capacity as i32);
        let args = (&on_q, &on_k, &on_v, &mut keys, &mut values, &mut o, sides.0, sides.1);
        kernel.launch(LaunchConfig::new(self.heads as u32, 32), args)?;
        for (name, cache, before, new) in
            [("k_cache", keys.to_host()?, &caches[0], k), ("v_cache", values.to_host()?, &caches[1], v)]
        {
            self.kept(name, &cache, before, new)?;
        }
        for (name, now, before) in [("q", on_q.to_host()?, q), ("k", on_k.to_host()?, k), ("v", on_v.to_host()?, v)] {
            if now != *before {
                return wrong(
                    format!("{self}: `{name}` is another one after the launch"),
                    "inputs are read, not written",
                );
            }
        }
        let given = o.to_host()?;
        for head in 0..self.heads {
            let exact = self.exact(&inputs, head);
            let off = |d: &usize| {
                let error = (f64::from(given[head * HEAD + d]) - exact[*d]).abs();
                error.is_nan() || error > 1e-3 * exact[*d].abs().max(1.0)
            };
            if let Some(d) = (0..HEAD).find(off) {
                let given = given[head * HEAD + d];
                let what = format!("{self}: o of head {head}, number {d} is {given}, and it should be {}", exact[d]);
                return wrong(what, self.hint(given));
            }
        }
        Ok(())
    }

    /// The caches: the new row in its place, all else as before.
    fn kept(self, name: &str, now: &[f32], before: &[f32], new: &[f32]) -> Check {
        for (at, (now, before)) in now.iter().zip(before).enumerate() {
            let (head, row, d) = (at / HEAD / self.capacity, at / HEAD % self.capacity, at % HEAD);
            let wanted = if row == self.position { new[head * HEAD + d] } else { *before };
            if now.to_bits() == wanted.to_bits() {
                continue;
            }
            let place = format!("{self}: {name}, head {head}, row {row}, number {d} is {now}");
            return match row == self.position {
                true => wrong(
                    format!("{place}, and the new token's is {wanted}"),
                    "where does the row of that head and position begin? The caches are [heads, capacity, 32]",
                ),
                false => wrong(
                    format!("{place}, and was {before}"),
                    "one row of each head is new; all other rows belong to other tokens",
                ),
            };
        }
        Ok(())
    }

    fn hint(self, given: f32) -> &'static str {
        if given.is_nan() && self.shift == 0.0 && self.spread < 100.0 {
            "behind `position` the caches hold NaN: which rows enter the sum, and is each of them written before it is read?"
        } else if !given.is_finite() && self.spread > 100.0 {
            "here scores are as far from 0 as 200, above and below: of which arguments is exp neither infinite nor 0 in f32?"
        } else if self.shift != 0.0 {
            "here all scores lie near -300: what is exp of such a number, and what does your maximum begin with?"
        } else if self.position == 0 {
            "with one key its weight is 1, and the result its value"
        } else {
            "softmax(q · k / √32) over all keys up to the new one, itself included, weighs the values: which part differs?"
        }
    }

    /// Whether the lanes share the work, and how much is fetched.
    fn cost(self, gpu: &Gpu, kernel: &Kernel) -> Check {
        let ([q, k, v], caches) = self.inputs();
        let (q, k, v) = (gpu.to_device(&q)?, gpu.to_device(&k)?, gpu.to_device(&v)?);
        let (mut keys, mut values) = (gpu.to_device(&caches[0])?, gpu.to_device(&caches[1])?);
        let mut o = gpu.poison::<f32>(q.len())?;
        let args = (&q, &k, &v, &mut keys, &mut values, &mut o, self.position as i32, self.capacity as i32);
        let inspection = kernel.inspect(LaunchConfig::new(self.heads as u32, 32), args)?;
        let seen = &inspection.counters;
        let lanes = seen.active_lanes_per_instruction();
        if lanes < 16.0 {
            let what = format!("right, but on average {lanes:.1} of a warp's 32 lanes are at work");
            return wrong(what, "a head has 32 numbers, and a warp 32 lanes: what do the others do meanwhile?");
        }
        // Rows of 128 bytes: each key and value once, and q, k and v.
        let needed = (self.heads * (2 * (self.position + 1) + 3) * HEAD * 4 / 32) as u64;
        let (loads, stores) = (seen.global_load_sectors, seen.global_store_sectors);
        if loads > needed + needed / 10 {
            let what =
                format!("right, but its loads touch {loads} sectors, and keys, values, q, k and v have {needed}");
            return wrong(what, "the cache is what a step costs: who reads a row twice, or in pieces?");
        }
        let written = (self.heads * 3 * HEAD * 4 / 32) as u64;
        if stores > 2 * written {
            let what =
                format!("right, but its stores touch {stores} sectors; the new rows and the result have {written}");
            return wrong(what, "a step writes one key, one value and one result a head");
        }
        kernels::shared_out(&inspection, 0.3)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let around = if self.shift == 0.0 { self.spread } else { self.shift };
        let heads = if self.heads == 1 { "1 head".to_string() } else { format!("{} heads", self.heads) };
        write!(f, "{heads}, capacity {}, position {}, scores of about {around}", self.capacity, self.position)
    }
}

/// What to ask oneself about the first mistake.
fn decode_mistake(_: &Error) -> &'static str {
    "read the line, the block and the thread above: which head is that block's, and which row of the cache does it mean?"
}

/// Checks four times in ms that were worked out on paper. A step is queued after 4.2 ms and done after 4.3; its kernels keep the
/// device busy for 0.9 ms, of which 0.6 ms are products that read weights as fast as memory delivers. How long it takes at best
/// with half the bytes, with half the launches, as one graph that the host queues in 0.05 ms, and as a graph with half the bytes.
pub fn step_remedies(answers: [Option<f64>; 4]) -> Verdict {
    verdict("step_remedies", || {
        let [bytes, launches, graph, both] = answers;
        part(
            "half the bytes",
            bytes,
            4.15..=4.35,
            &[
                (2.15, "the bytes take 0.6 ms of the device's time; what takes the other milliseconds?"),
                (
                    4.0,
                    "the device has time to spare while the host queues: does a kernel that ends sooner end the step sooner?",
                ),
            ],
            "what does the step wait for, all the time that the device is not busy?",
        )?;
        part(
            "half the launches",
            launches,
            2.05..=2.25,
            &[
                (4.3, "who queues the launches, and what is this one busy with until then?"),
                (0.9, "half as many launches still take the host half of its 4.2 ms"),
            ],
            "the host sets the pace: how long does it need for half of its work?",
        )?;
        part(
            "a graph",
            graph,
            0.88..=1.0,
            &[
                (0.05, "the host is done then; is the device?"),
                (0.15, "the host is done then; is the device?"),
                (4.3, "the host queues all kernels at once, in 0.05 ms: what is left to wait for?"),
            ],
            "the host no longer sets the pace: who does, and for how long is it busy?",
        )?;
        part(
            "a graph, and half the bytes",
            both,
            0.58..=0.7,
            &[
                (0.45, "not all of the 0.9 ms read weights"),
                (0.9, "the device sets the pace now: which part of its time do bytes set?"),
                (0.3, "the kernels that read no weights are still there"),
            ],
            "0.6 of the 0.9 ms are set by bytes",
        )
        .map(|_| ())
    })
}

/// One step of decoding: a token more for each text of a batch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Decode {
    /// Numbers in the model.
    pub parameters: usize,
    /// Its blocks, each with keys and values of its own.
    pub layers: usize,
    /// Numbers in a key, and in a value, over all heads.
    pub width: usize,
    /// Texts in the batch.
    pub texts: usize,
    /// Tokens of each text that are in the cache.
    pub context: usize,
    /// Bytes that a number takes.
    pub bytes: usize,
    /// What memory delivers, in 10⁹ bytes a second.
    pub gb_per_s: f64,
}

/// Checks a function that gives the least time of a step, in milliseconds: each parameter and the whole cache must come from memory once.
pub fn token_floor(answer: fn(Decode) -> f64) -> Verdict {
    timed("token_floor", move || {
        let gpt2 = Decode {
            parameters: 124_439_808,
            layers: 12,
            width: 768,
            texts: 1,
            context: 512,
            bytes: 2,
            gb_per_s: 4200.0,
        };
        let cases = [
            gpt2,
            Decode { context: 0, bytes: 4, gb_per_s: 20.0, ..gpt2 },
            Decode { texts: 64, context: 1024, ..gpt2 },
            Decode { parameters: 851_968, layers: 4, width: 128, context: 256, bytes: 4, gb_per_s: 10.0, texts: 16 },
        ];
        for case in cases {
            let given = ask("", || answer(case))?;
            let wanted = floor(case);
            let right = (given / wanted - 1.0).abs() <= 1e-6;
            if !right {
                let what = format!("{case:?}\nyou give {} ms, and {} ms is right", figures(given), figures(wanted));
                return wrong(what, floor_hint(case, given, wanted));
            }
        }
        Ok(())
    })
}

/// Numbers of the cache: a key and a value for each token, layer and text.
fn cache(case: Decode) -> f64 {
    (2 * case.layers * case.width * case.context * case.texts) as f64
}

fn time(case: Decode, numbers: f64) -> f64 {
    numbers * case.bytes as f64 / (case.gb_per_s * 1e6)
}

fn floor(case: Decode) -> f64 {
    time(case, case.parameters as f64 + cache(case))
}

/// Which mistake gives such a time.
fn floor_hint(case: Decode, given: f64, wanted: f64) -> &'static str {
    let (parameters, cache, texts) = (case.parameters as f64, cache(case), case.texts as f64);
    let is = |numbers: f64| (given / time(case, numbers) - 1.0).abs() < 1e-6;
    let off = |factor: f64| (given / wanted / factor - 1.0).abs() < 1e-6;
    if !given.is_finite() || given <= 0.0 {
        "return a positive time: bytes ÷ bytes a second"
    } else if off(1e-3) || off(1e3) || off(1e6) || off(1e-6) {
        "the number of bytes is right, the unit is not: GB/s are 10⁹ bytes a second, and the answer is in milliseconds"
    } else if off(1.0 / case.bytes as f64) {
        "memory moves bytes, and you count numbers: each takes `bytes` of them"
    } else if is(parameters) {
        "the cache is read as well: a key and a value, of `width` numbers each, for each token of the context, in each layer"
    } else if is(parameters + cache / 2.0) {
        "the cache holds a key and a value for each token: twice `width` numbers"
    } else if is(parameters + cache / case.layers as f64) {
        "each layer has keys and values of its own"
    } else if is(parameters + cache / texts) {
        "each text of the batch has a cache of its own; only the parameters are shared"
    } else if is((parameters + cache / texts) * texts) {
        "the parameters are read once for the whole batch: that is why a batch pays. Only the cache grows with the texts"
    } else {
        "add what must be read, in bytes: all parameters once, and 2 · layers · width · context numbers for each text"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DECODE: &str = r#"extern "C" __global__ void decode(const float *q, const float *k, const float *v, float *k_cache,
                                  float *v_cache, float *o, int position, int capacity) {
    int head = blockIdx.x, lane = threadIdx.x;
    float *keys = k_cache + head * capacity * 32, *values = v_cache + head * capacity * 32;
    keys[position * 32 + lane] = k[head * 32 + lane];
    values[position * 32 + lane] = v[head * 32 + lane];
    float x = q[head * 32 + lane] / sqrtf(32.0f), most = __int_as_float(0xff800000), sum = 0.0f, out = 0.0f;
    for (int key = 0; key <= position; ++key) {
        float s = x * keys[key * 32 + lane];
        for (int i = 16; i > 0; i /= 2) { s += __shfl_xor_sync(~0u, s, i); }
        float larger = fmaxf(most, s), factor = expf(most - larger), p = expf(s - larger);
        sum = sum * factor + p;
        out = out * factor + p * values[key * 32 + lane];
        most = larger;
    }
    o[head * 32 + lane] = out / sum;
}"#;

    #[test]
    fn a_decode_step_passes_and_each_mistake_is_named() {
        let append = "keys[position * 32 + lane] = k[head * 32 + lane];\n    values[position * 32 + lane] = v[head * 32 + lane];";
        kernels::expect(
            decode_step,
            DECODE,
            &[
                (append, "", "and the new token's is"),
                ("key <= position", "key < position", "it should be"),
                ("key <= position", "key < capacity", "which rows enter the sum"),
                ("/ sqrtf(32.0f)", "", "which part differs"),
                ("float larger = fmaxf(most, s)", "float larger = 0.0f", "as far from 0 as 200"),
                ("__int_as_float(0xff800000)", "0.0f", "as far from 0 as 200"),
                ("out = out * factor + p", "out = out + p", "it should be"),
                ("k_cache + head * capacity * 32", "k_cache + head * position * 32", "which head is that block's"),
                (
                    "values[position * 32 + lane] = v",
                    "values[(capacity - 1) * 32 + lane] = v",
                    "where does the row of that head",
                ),
                ("int head = blockIdx.x", "int head = blockIdx.x + 1", "which head is that block's"),
                // Cheats: the value in place of the mean, a constant, NaN, the neighbour's head.
                ("o[head * 32 + lane] = out / sum", "o[head * 32 + lane] = v[head * 32 + lane]", "which part differs"),
                ("o[head * 32 + lane] = out / sum", "o[head * 32 + lane] = 0.0f", "its weight is 1"),
                ("o[head * 32 + lane] = out / sum", "o[head * 32 + lane] = __int_as_float(0x7fc00000)", "it should be"),
                ("float x = q[head * 32", "float x = q[(head + 1) % gridDim.x * 32", "it should be"),
            ],
        );
        // Two passes are right, and read the keys twice.
        let first = "for (int key = 0; key <= position; ++key) {\n        float s = x * keys[key * 32 + lane];\n        for (int i = 16; \
                     i > 0; i /= 2) { s += __shfl_xor_sync(~0u, s, i); }\n        most = fmaxf(most, s);\n    }\n    ";
        let two = DECODE.replacen("    for (int key", &format!("    {first}for (int key"), 1);
        let text = decode_step(&two).text();
        assert!(text.contains("right, but its loads touch") && text.contains("who reads a row twice"), "{text}");
        // One lane does it all.
        let alone = r#"extern "C" __global__ void decode(const float *q, const float *k, const float *v, float *kc, float *vc,
                                  float *o, int position, int capacity) {
    if (threadIdx.x > 0) { return; }
    int head = blockIdx.x;
    float most = __int_as_float(0xff800000), sum = 0.0f, out[32] = {};
    for (int d = 0; d < 32; ++d) {
        kc[(head * capacity + position) * 32 + d] = k[head * 32 + d];
        vc[(head * capacity + position) * 32 + d] = v[head * 32 + d];
    }
    for (int key = 0; key <= position; ++key) {
        float s = 0.0f;
        for (int d = 0; d < 32; ++d) { s += q[head * 32 + d] * kc[(head * capacity + key) * 32 + d]; }
        s /= sqrtf(32.0f);
        float larger = fmaxf(most, s), factor = expf(most - larger), p = expf(s - larger);
        sum = sum * factor + p;
        for (int d = 0; d < 32; ++d) { out[d] = out[d] * factor + p * vc[(head * capacity + key) * 32 + d]; }
        most = larger;
    }
    for (int d = 0; d < 32; ++d) { o[head * 32 + d] = out[d] / sum; }
}"#;
        let text = decode_step(alone).text();
        assert!(text.contains("on average 1.0 of a warp's 32 lanes"), "{text}");
        // The first warp has all heads.
        let first = DECODE.replace(
            "int head = blockIdx.x, lane = threadIdx.x;",
            "if (blockIdx.x > 0) { return; }\n    for (int head = 0, lane = threadIdx.x; head < gridDim.x; ++head) {",
        );
        kernels::expect_whole(decode_step, &[(&format!("{first}}}"), "the work is not shared out")]);
        // A lane a key, with the weights in shared memory: another right answer.
        let by_keys = r#"extern "C" __global__ void decode(const float *q, const float *k, const float *v, float *kc, float *vc,
                                  float *o, int position, int capacity) {
    __shared__ float tile[32][33], p_of[32];
    int head = blockIdx.x, lane = threadIdx.x;
    kc += head * capacity * 32; vc += head * capacity * 32;
    kc[position * 32 + lane] = k[head * 32 + lane];
    vc[position * 32 + lane] = v[head * 32 + lane];
    float x = q[head * 32 + lane] / sqrtf(32.0f), most = __int_as_float(0xff800000), sum = 0.0f, out = 0.0f;
    for (int from = 0; from <= position; from += 32) {
        int keys = min(32, position + 1 - from);
        __syncwarp();
        for (int y = 0; y < keys; ++y) { tile[y][lane] = x * kc[(from + y) * 32 + lane]; }
        __syncwarp();
        float s = __int_as_float(0xff800000);
        if (lane < keys) { s = 0.0f; for (int d = 0; d < 32; ++d) { s += tile[lane][d]; } }
        float larger = fmaxf(most, s);
        for (int i = 16; i > 0; i /= 2) { larger = fmaxf(larger, __shfl_xor_sync(~0u, larger, i)); }
        float factor = expf(most - larger), p = expf(s - larger), all = p;
        for (int i = 16; i > 0; i /= 2) { all += __shfl_xor_sync(~0u, all, i); }
        p_of[lane] = p;
        __syncwarp();
        sum = sum * factor + all; out *= factor; most = larger;
        for (int y = 0; y < keys; ++y) { out += p_of[y] * vc[(from + y) * 32 + lane]; }
    }
    o[head * 32 + lane] = out / sum;
}"#;
        assert!(decode_step(by_keys).passed(), "{}", decode_step(by_keys).text());
    }

    #[test]
    fn remedies_of_a_step_are_told_apart() {
        let right = [4.3, 2.1, 0.9, 0.6];
        assert!(step_remedies(right.map(Some)).passed() && step_remedies([4.2, 2.2, 0.95, 0.65].map(Some)).passed());
        for (at, given, said) in [
            (0, None, "no number yet"),
            (0, Some(2.15), "other milliseconds"),
            (0, Some(4.0), "time to spare"),
            (1, Some(4.3), "who queues"),
            (1, Some(0.9), "half of its 4.2 ms"),
            (2, Some(0.05), "is the device"),
            (3, Some(0.45), "not all of the 0.9 ms"),
            (3, Some(0.9), "which part of its time"),
            (3, Some(7.0), "set by bytes"),
        ] {
            let mut answers = right.map(Some);
            answers[at] = given;
            let text = step_remedies(answers).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{at}, {given:?}: {text}");
        }
    }

    fn right(it: Decode) -> f64 {
        let cache = 2 * it.layers * it.width * it.context * it.texts;
        ((it.parameters + cache) * it.bytes) as f64 / (it.gb_per_s * 1e9) * 1e3
    }

    #[test]
    fn a_floor_passes_and_each_mistake_is_named() {
        assert!(token_floor(right).passed(), "{}", token_floor(right).text());
        type Floor = fn(Decode) -> f64;
        let wrong: [(Floor, &str); 9] = [
            (|it| right(it) / 1e3, "the unit is not"),
            (|it| right(it) / it.bytes as f64, "you count numbers"),
            (|it| right(Decode { context: 0, ..it }), "the cache is read as well"),
            (|it| right(Decode { width: it.width / 2, ..it }), "a key and a value"),
            (|it| right(Decode { layers: 1, ..it }), "each layer"),
            (|it| right(Decode { texts: 1, ..it }), "a cache of its own"),
            (|it| right(Decode { texts: 1, ..it }) * it.texts as f64, "once for the whole batch"),
            (|_| f64::NAN, "a positive time"),
            (|it| 3.0 * right(it), "add what must be read"),
        ];
        for (index, (answer, part)) in wrong.into_iter().enumerate() {
            let text = token_floor(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(part), "{index}: {text}");
        }
    }
}
