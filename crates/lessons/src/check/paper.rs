//! Questions on paper, a number each. A wrong number is told what it leaves out, where that can be seen, and never the formula.

use super::Verdict;
use super::verdict::{Check, verdict, wrong};
use gpulab::measurement::figures;

/// What an answer would be if one thing were forgotten, and what to say then.
type Slip = (f64, &'static str);

/// Ends the check unless `given` is within `share` of `right`.
fn near(name: &str, given: f64, right: f64, share: f64, slips: &[Slip], hint: &'static str) -> Check {
    let close = |to: f64| (given - to).abs() <= share * to.abs();
    if close(right) {
        return Ok(());
    }
    if !given.is_finite() || given <= 0.0 {
        return wrong(format!("{name}: {given} is no answer"), "a positive number, from a sum on paper");
    }
    let hint = slips.iter().find(|slip| close(slip.0)).map_or(hint, |slip| slip.1);
    wrong(format!("{name}: {} is too {}", figures(given), if given > right { "large" } else { "small" }), hint)
}

/// No answer yet.
fn asked(name: &str, given: Option<f64>) -> Check<f64> {
    given.map_or_else(|| wrong(format!("{name}: no answer yet"), "replace `None` by `Some(your number)`"), Ok)
}

/// Side of the layer's weights, fp32 lanes a second × 2 and bytes a second of the GPU in the question of lesson 01.
const SIDE: f64 = 4096.0;
const FLOPS: f64 = 24.0 * 128.0 * 2.0 * 2.37e9;
const BYTES: f64 = 256e9;

/// The smallest batch at which a layer of 4096 × 4096 weights in f32 keeps a GPU's arithmetic busy longer than its memory:
/// 24 SMs of 128 lanes at 2.37 GHz, 256 GB/s, with weights read once, inputs read once and outputs written once.
pub fn layer_batch(answer: Option<usize>) -> Verdict {
    verdict("layer_batch", || {
        let given = asked("the batch", answer.map(|batch| batch as f64))?;
        let balance = FLOPS / BYTES;
        // 2 n² b ÷ (4 (n² + 2 n b)) = balance, solved for b.
        let exact = 2.0 * balance * SIDE / (SIDE - 4.0 * balance);
        let slips = [
            (2.0 * balance, "only the weights are in that sum: what else moves, and grows with the batch?"),
            (balance, "a multiply-add counts as two operations, in the layer as in the GPU's peak"),
            (4.0 * balance, "count the operations of both sides alike: a multiply-add is two of them"),
            (8.0 * balance, "a number of type f32 has 4 bytes"),
            (
                exact.floor(),
                "at that batch memory still takes longer: the question asks for the first one where it does not",
            ),
        ];
        // A whole number, and exactly that one.
        let share = 0.4 / exact;
        near(
            "the batch",
            given,
            exact.ceil(),
            share,
            &slips,
            "write down both times, of the arithmetic and of the bytes, as functions of the batch",
        )
    })
}

/// The host's time for a launch and the two kernels' times in the question of lesson 02, in µs; pairs of launches.
const LAUNCH: f64 = 4.0;
const KERNELS: [f64; 2] = [3.0, 10.0];
const FASTER: f64 = 2.0;
const PAIRS: usize = 1000;

/// When the queue's last kernel ends: launches one after the other on the host, kernels in order on the device.
fn queue_ends(kernels: [f64; 2]) -> f64 {
    let (mut host, mut device) = (0.0, 0.0_f64);
    for launch in 0..2 * PAIRS {
        host += LAUNCH;
        device = device.max(host) + kernels[launch % 2];
    }
    device
}

/// Host launches cost 4 µs; 1000 times a kernel of 3 µs and one of 10 µs. µs until a `synchronize` at the end returns, and the
/// same after the kernel of 10 µs is made one of 2 µs.
pub fn launch_bound(answer: [Option<f64>; 2]) -> Verdict {
    verdict("launch_bound", || {
        let pairs = PAIRS as f64;
        let (launches, before) = (2.0 * pairs * LAUNCH, KERNELS.iter().sum::<f64>() * pairs);
        let given = asked("before", answer[0])?;
        let slips = [
            (launches, "that is when the last launch returns: `synchronize` waits for the kernels too"),
            (launches + before, "launches and kernels go on at the same time: who waits for whom?"),
            (before / 1e3, "the answers are to be in µs"),
            (10.0 * 2.0 * pairs, "only every second kernel takes 10 µs"),
        ];
        let hint = "draw the two lanes of step 1 for the first four launches: when does each kernel begin?";
        near("before", given, queue_ends(KERNELS), 0.005, &slips, hint)?;
        let given = asked("after", answer[1])?;
        let after = KERNELS[0] + FASTER;
        let slips = [
            (after * pairs, "the device is now faster than the host: does the queue ever hold a second kernel?"),
            (launches + after * pairs, "launches and kernels go on at the same time: who waits for whom?"),
            (queue_ends(KERNELS) / 5.0, "one of two kernels became five times as fast, and not the launches"),
        ];
        near("after", given, queue_ends([KERNELS[0], FASTER]), 0.005, &slips, hint)
    })
}

/// The stages of the question of lesson 03 in ms, and the fixed time of each stage of a chunk.
const STAGES: [f64; 3] = [20.0, 8.0, 10.0];
const FIXED: f64 = 0.01;

/// The pipeline's ms with so many chunks and enough streams.
fn pipeline_ms(chunks: f64) -> f64 {
    let stage = |ms: f64| ms / chunks + FIXED;
    STAGES.iter().map(|&ms| stage(ms)).sum::<f64>() + (chunks - 1.0) * stage(STAGES[0])
}

/// A copy in of 20 ms, a kernel of 8 and a copy out of 10, cut into equal chunks on enough streams; each stage of a chunk costs
/// 10 µs more. The number of chunks that is fastest, and its ms.
pub fn best_chunks(answer: (Option<usize>, Option<f64>)) -> Verdict {
    verdict("best_chunks", || {
        let given = asked("chunks", answer.0.map(|chunks| chunks as f64))?;
        let best = (1..2000).map(f64::from).min_by(|a, b| pipeline_ms(*a).total_cmp(&pipeline_ms(*b))).unwrap_or(1.0);
        let hint = "write the time as a function of the number of chunks: one term falls with it, one rises";
        // The curve is flat at its lowest point: what is within a thousandth of the best time is as good.
        let as_good = given >= 1.0 && pipeline_ms(given) <= pipeline_ms(best) * 1.001;
        if !as_good {
            let slips = [
                (3.0, "the number of stages limits the gain, and not the number of chunks"),
                (8.0, "that was the picture above, with other times"),
                (
                    (STAGES.iter().sum::<f64>() / FIXED).sqrt(),
                    "the stages of different chunks overlap: what remains when they do?",
                ),
            ];
            near("chunks", given, best, 0.02, &slips, hint)?;
            return wrong(format!("chunks: {given} is not the fastest"), hint);
        }
        let ms = asked("ms", answer.1)?;
        let slips = [
            (
                STAGES[0],
                "no pipeline reaches the slowest stage alone: the first chunk must get there, and the last must leave",
            ),
            (STAGES.iter().sum::<f64>() / 3.0, "the slowest stage sets the pace, and not the mean of the three"),
            (pipeline_ms(best) / 1e3, "the answer is to be in ms"),
            (pipeline_ms(best) - (best + 2.0) * FIXED, "each stage of each chunk also costs its fixed time"),
        ];
        near("ms", ms, pipeline_ms(given), 0.002, &slips, hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(verdict: &Verdict, text: &str) {
        assert!(!verdict.passed() && verdict.text().contains(text), "{}", verdict.text());
    }

    #[test]
    fn the_batch_right_and_wrong() {
        assert!(layer_batch(Some(121)).passed(), "{}", layer_batch(Some(121)).text());
        for (answer, text) in [
            (None, "no answer yet"),
            (Some(0), "is no answer"),
            (Some(114), "grows with the batch"),
            (Some(57), "counts as two"),
            (Some(227), "count the operations of both sides alike"),
            (Some(455), "4 bytes"),
            (Some(120), "still takes longer"),
            (Some(4096), "too large"),
            (Some(1), "too small"),
        ] {
            told(&layer_batch(answer), text);
        }
    }

    #[test]
    fn the_launches_right_and_wrong() {
        let right = [Some(13_004.0), Some(8_002.0)];
        assert!(launch_bound(right).passed(), "{}", launch_bound(right).text());
        assert!(launch_bound([Some(13_000.0), Some(8_000.0)]).passed());
        for (answer, text) in [
            ([None, None], "before: no answer yet"),
            ([Some(8000.0), None], "when the last launch returns"),
            ([Some(21_000.0), None], "who waits for whom"),
            ([Some(13.0), None], "in µs"),
            ([Some(20_000.0), None], "only every second"),
            ([Some(f64::NAN), None], "is no answer"),
            ([Some(13_004.0), None], "after: no answer yet"),
            ([Some(13_004.0), Some(5_000.0)], "ever hold a second kernel"),
            ([Some(13_004.0), Some(2_600.0)], "not the launches"),
            ([Some(13_004.0), Some(13_000.0)], "too large"),
        ] {
            told(&launch_bound(answer), text);
        }
    }

    #[test]
    fn the_chunks_right_and_wrong() {
        for chunks in [40, 42, 43, 45] {
            let right = (Some(chunks), Some(20.87));
            assert!(best_chunks(right).passed(), "{}", best_chunks(right).text());
        }
        for (answer, text) in [
            ((None, None), "chunks: no answer yet"),
            ((Some(0), None), "is no answer"),
            ((Some(3), None), "number of stages"),
            ((Some(8), None), "other times"),
            ((Some(62), None), "overlap"),
            ((Some(1000), None), "too large"),
            ((Some(42), None), "ms: no answer yet"),
            ((Some(42), Some(20.0)), "first chunk must get there"),
            ((Some(42), Some(12.67)), "sets the pace"),
            ((Some(42), Some(0.02087)), "in ms"),
            ((Some(42), Some(20.43)), "fixed time"),
            ((Some(42), Some(38.0)), "too large"),
        ] {
            told(&best_chunks(answer), text);
        }
    }
}
