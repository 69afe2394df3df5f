//! Questions that are answered on paper, a number each: what is right, and the mistakes that lead to other numbers. A wrong
//! number is told what it leaves out, where that can be seen, and never the formula.

use super::Verdict;
use super::verdict::{Check, verdict, wrong};
use gpulab::measurement::figures;
use std::ops::RangeInclusive;

/// A number that follows from a well-known mistake, and a question that leads away from it.
pub(super) type Slip = (f64, &'static str);

/// A question of one number. `right` is the range of right answers; `start` says where to begin, for any other number.
pub(super) fn number(
    exercise: &str,
    answer: Option<f64>,
    right: RangeInclusive<f64>,
    slips: &[Slip],
    start: &'static str,
) -> Verdict {
    verdict(exercise, || part("", answer, right, slips, start).map(|_| ()))
}

/// A diagnosis: what is named as the cause, and a number as [`number`] asks for it. `none` is the hint where there is no diagnosis
/// yet; `against` ends the check with what speaks for an innocent suspect.
pub(super) fn diagnosed<F>(
    exercise: &str,
    diagnosis: Option<(F, f64)>,
    none: &'static str,
    against: impl FnOnce(F) -> Check,
    right: RangeInclusive<f64>,
    slips: &[Slip],
    start: &'static str,
) -> Verdict {
    verdict(exercise, || {
        let Some((named, answer)) = diagnosis else { return wrong("there is no diagnosis yet", none) };
        against(named)?;
        part("", Some(answer), right, slips, start).map(|_| ())
    })
}

/// One number of several, with its name; what was given.
pub(super) fn part(
    name: &str,
    answer: Option<f64>,
    right: RangeInclusive<f64>,
    slips: &[Slip],
    start: &'static str,
) -> Check<f64> {
    let name = if name.is_empty() { String::new() } else { format!("{name}: ") };
    let Some(given) = answer else {
        return wrong(format!("{name}no number yet"), "replace `None` by `Some(your number)`, worked out on paper");
    };
    if right.contains(&given) {
        return Ok(given);
    }
    if !given.is_finite() || given <= 0.0 {
        return wrong(format!("{name}{given} is no answer"), "a positive number, from a sum on paper");
    }
    // The nearest one: some mistakes differ by one.
    let off = |slip: &Slip| (given / slip.0 - 1.0).abs();
    let slip = slips.iter().filter(|slip| off(slip) < 0.01).min_by(|a, b| off(a).total_cmp(&off(b)));
    wrong(format!("{name}{} is not it", figures(given)), slip.map_or(start, |slip| slip.1))
}

/// The numbers within a share of one.
pub(super) fn within(right: f64, share: f64) -> RangeInclusive<f64> {
    right * (1.0 - share)..=right * (1.0 + share)
}

/// Side of the layer's weights, fp32 lanes a second × 2 and bytes a second of the GPU in the question of lesson 01.
const SIDE: f64 = 4096.0;
const FLOPS: f64 = 24.0 * 128.0 * 2.0 * 2.37e9;
const BYTES: f64 = 256e9;

/// The smallest batch at which a layer of 4096 × 4096 weights in f32 keeps a GPU's arithmetic busy longer than its memory:
/// 24 SMs of 128 lanes at 2.37 GHz, 256 GB/s, with weights read once, inputs read once and outputs written once.
pub fn layer_batch(answer: Option<usize>) -> Verdict {
    verdict("layer_batch", || {
        let given = answer.map(|batch| batch as f64);
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
        let start = "write down both times, of the arithmetic and of the bytes, as functions of the batch";
        part("the batch", given, exact.ceil()..=exact.ceil(), &slips, start).map(|_| ())
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
        let slips = [
            (launches, "that is when the last launch returns: `synchronize` waits for the kernels too"),
            (launches + before, "launches and kernels go on at the same time: who waits for whom?"),
            (before / 1e3, "the answers are to be in µs"),
            (10.0 * 2.0 * pairs, "only every second kernel takes 10 µs"),
        ];
        let hint = "draw the two lanes of step 1 for the first four launches: when does each kernel begin?";
        part("before", answer[0], within(queue_ends(KERNELS), 0.005), &slips, hint)?;
        let after = KERNELS[0] + FASTER;
        let slips = [
            (after * pairs, "the device is now faster than the host: does the queue ever hold a second kernel?"),
            (launches + after * pairs, "launches and kernels go on at the same time: who waits for whom?"),
            (queue_ends(KERNELS) / 5.0, "one of two kernels became five times as fast, and not the launches"),
        ];
        part("after", answer[1], within(queue_ends([KERNELS[0], FASTER]), 0.005), &slips, hint).map(|_| ())
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
        let best = (1..2000).map(f64::from).min_by(|a, b| pipeline_ms(*a).total_cmp(&pipeline_ms(*b))).unwrap_or(1.0);
        // The curve is flat at its lowest point: what is within a thousandth of the best time is as good.
        let as_good = |chunks: &f64| pipeline_ms(*chunks) <= pipeline_ms(best) * 1.001;
        let good: Vec<f64> = (1..2000).map(f64::from).filter(as_good).collect();
        let slips = [
            (3.0, "the number of stages limits the gain, and not the number of chunks"),
            (8.0, "that was the picture above, with other times"),
            (
                (STAGES.iter().sum::<f64>() / FIXED).sqrt(),
                "the stages of different chunks overlap: what remains when they do?",
            ),
        ];
        let hint = "write the time as a function of the number of chunks: one term falls with it, one rises";
        let chunks = answer.0.map(|chunks| chunks as f64);
        let chunks = part("chunks", chunks, good[0]..=good[good.len() - 1], &slips, hint)?;
        let slips = [
            (
                STAGES[0],
                "no pipeline reaches the slowest stage alone: the first chunk must get there, and the last must leave",
            ),
            (STAGES.iter().sum::<f64>() / 3.0, "the slowest stage sets the pace, and not the mean of the three"),
            (pipeline_ms(best) / 1e3, "the answer is to be in ms"),
            (pipeline_ms(best) - (best + 2.0) * FIXED, "each stage of each chunk also costs its fixed time"),
        ];
        part("ms", answer.1, within(pipeline_ms(chunks), 0.002), &slips, hint).map(|_| ())
    })
}

/// Lesson 10: `y[i] = x[i + 1]` for 2²⁰ floats; the sectors that the load requests touch in all.
pub fn shifted_sectors(answer: Option<f64>) -> Verdict {
    let right = ((1 << 20) / 32 * 5) as f64;
    let slips = [
        (
            ((1 << 20) / 32 * 4) as f64,
            "a warp's 128 bytes fill 4 sectors where they begin at a multiple of 32. Where do these begin?",
        ),
        (
            ((1 << 20) / 32 * 4 + 1) as f64,
            "so many different sectors there are. But two warps may ask for the same one: each request counts its own",
        ),
        (((1 << 20) / 32) as f64, "that is the number of requests"),
        (5.0, "that is one request's; how many requests make up the launch?"),
    ];
    let start = "draw the 128 bytes that one warp asks for, and the borders of the sectors below them";
    number("shifted_sectors", answer, right..=right, &slips, start)
}

/// Lesson 11: the occupancy, in percent, at which one load of 16 bytes per thread saturates a memory.
pub fn least_occupancy(answer: Option<f64>) -> Verdict {
    // 3.35e12 B/s × 600e-9 s, over 132 multiprocessors of 2048 threads with 16 bytes each.
    const RIGHT: f64 = 100.0 * 3.35e12 * 600e-9 / (132.0 * 2048.0 * 16.0);
    let slips = [
        (RIGHT / 100.0, "in percent, please"),
        (4.0 * RIGHT, "how many bytes does one thread have in flight?"),
        (RIGHT * 132.0, "the memory serves all multiprocessors: which part of it is one's share?"),
        (RIGHT * 32.0, "each of a warp's lanes has a load of its own"),
    ];
    let start = "Little's law gives the bytes in flight for the whole GPU: how many are those of one multiprocessor, of one thread?";
    number("least_occupancy", answer, within(RIGHT, 0.015), &slips, start)
}

/// Lesson 13: bytes that memory hands out for one row of 20 bytes, on average, in pieces of 64.
pub fn straddling_rows(answer: Option<f64>) -> Verdict {
    let slips = [
        (64.0, "does every row of 20 bytes lie within one piece of 64? Where does row 3 begin?"),
        (128.0, "some rows need two pieces, but not all: at which of its possible starts does a row cross a border?"),
        (32.0, "that is a sector; memory behind the L2 cache hands out more at a time"),
        (20.0, "that is what is used"),
    ];
    let start = "list where rows can begin within a piece of 64 bytes, and mark those that cross its end";
    number("straddling_rows", answer, within(80.0, 0.001), &slips, start)
}

/// Lesson 14: percent of a step's time that fusing a chain saves, when the chain is 5 percent of it.
pub fn fused_share(answer: Option<f64>) -> Verdict {
    // Chained: 4 + 4 + 5 + 6 bytes per element; fused: two tables and a mask in, one table out.
    const CHAINED: f64 = 19.0;
    const FUSED: f64 = 7.0;
    let slips = [
        (5.0 * FUSED / CHAINED, "that is what is left of the chain, not what is saved"),
        (CHAINED / FUSED, "that is how many times faster the chain becomes: what does the whole step gain?"),
        (5.0 * (1.0 - 8.0 / 20.0), "the mask is one byte an element, and read once"),
        (5.0, "the fused kernel takes time, too"),
    ];
    let start =
        "for each of the four kernels, write down the bytes per element that it reads and writes; then the fused one's";
    number("fused_share", answer, within(5.0 * (1.0 - FUSED / CHAINED), 0.01), &slips, start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_passes_in_its_range_and_a_known_mistake_gets_its_hint() {
        let check = |answer| number("n", answer, 9.9..=10.1, &[(20.0, "half of it")], "count again");
        assert!(check(Some(10.0)).passed() && check(Some(9.9)).passed());
        for (answer, said) in [
            (None, "no number yet"),
            (Some(20.1), "half of it"),
            (Some(3.0), "count again"),
            (Some(f64::NAN), "is no answer"),
            (Some(f64::INFINITY), "is no answer"),
        ] {
            let text = check(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said) && !text.contains("9.9"), "{text}");
        }
    }

    fn told(verdict: &Verdict, text: &str) {
        assert!(!verdict.passed() && verdict.text().contains(text), "{}", verdict.text());
    }

    #[test]
    fn the_batch_right_and_wrong() {
        assert!(layer_batch(Some(121)).passed(), "{}", layer_batch(Some(121)).text());
        for (answer, text) in [
            (None, "no number yet"),
            (Some(0), "is no answer"),
            (Some(114), "grows with the batch"),
            (Some(57), "counts as two"),
            (Some(227), "count the operations of both sides alike"),
            (Some(455), "4 bytes"),
            (Some(120), "still takes longer"),
            (Some(4096), "is not it"),
            (Some(1), "is not it"),
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
            ([None, None], "before: no number yet"),
            ([Some(8000.0), None], "when the last launch returns"),
            ([Some(21_000.0), None], "who waits for whom"),
            ([Some(13.0), None], "in µs"),
            ([Some(20_000.0), None], "only every second"),
            ([Some(f64::NAN), None], "is no answer"),
            ([Some(13_004.0), None], "after: no number yet"),
            ([Some(13_004.0), Some(5_000.0)], "ever hold a second kernel"),
            ([Some(13_004.0), Some(2_600.0)], "not the launches"),
            ([Some(13_004.0), Some(13_000.0)], "is not it"),
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
            ((None, None), "chunks: no number yet"),
            ((Some(0), None), "is no answer"),
            ((Some(3), None), "number of stages"),
            ((Some(8), None), "other times"),
            ((Some(62), None), "overlap"),
            ((Some(1000), None), "is not it"),
            ((Some(42), None), "ms: no number yet"),
            ((Some(42), Some(20.0)), "first chunk must get there"),
            ((Some(42), Some(12.67)), "sets the pace"),
            ((Some(42), Some(0.02087)), "in ms"),
            ((Some(42), Some(20.43)), "fixed time"),
            ((Some(42), Some(38.0)), "is not it"),
        ] {
            told(&best_chunks(answer), text);
        }
    }

    fn answers(check: fn(Option<f64>) -> Verdict, right: &[f64], wrong: &[(f64, &str)]) {
        let none = check(None).text();
        assert!(none.contains("no number yet"), "{none}");
        for &answer in right {
            assert!(check(Some(answer)).passed(), "{}", check(Some(answer)).text());
        }
        for &(answer, said) in wrong {
            let text = check(Some(answer)).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer}: {text}");
        }
        for cheat in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -right[0]] {
            assert!(!check(Some(cheat)).passed(), "{cheat}");
        }
    }

    #[test]
    fn slips_are_told_apart() {
        let sectors = [
            (131_072.0, "Where do these begin"),
            (131_073.0, "each request counts its own"),
            (32_768.0, "number of requests"),
            (5.0, "how many requests"),
            (262_144.0, "draw the 128 bytes"),
        ];
        answers(shifted_sectors, &[163_840.0], &sectors);
        let occupancy = [
            (0.465, "in percent"),
            (186.0, "one thread have in flight"),
            (6134.0, "one's share"),
            (1487.0, "a load of its own"),
            (50.0, "Little's law"),
        ];
        answers(least_occupancy, &[46.5, 46.47, 46.0], &occupancy);
        let rows = [
            (64.0, "Where does row 3 begin"),
            (128.0, "but not all"),
            (32.0, "that is a sector"),
            (20.0, "what is used"),
            (84.0, "list where rows"),
        ];
        answers(straddling_rows, &[80.0], &rows);
        let share = [
            (1.842, "what is left"),
            (2.714, "how many times faster"),
            (3.0, "the mask is one byte"),
            (5.0, "takes time, too"),
            (4.0, "write down the bytes"),
        ];
        answers(fused_share, &[3.16, 3.158], &share);
    }
}
