//! Exercises of lesson 41: codes of four bits in words, the scale with the least error, what four bits gain at a batch; a product
//! with a quantized matrix from a blank page; and a kernel whose source stays hidden until its mistake is named.

mod matvec;
mod scales;

pub use matvec::quantized_matvec;
pub use scales::{ScaleFault, ScaleReport, Variation, diagnose_scales, revealed_scales, scale_report};

use super::Verdict;
use super::on_paper::number;
use super::verdict::{Check, ask, timed, told};
use gpulab::cpu;
use gpulab::measurement::figures;

/// Codes of eight weights in a word, the first in its lowest four bits, each stored as the code + 8.
fn packed(codes: &[i8]) -> Vec<u32> {
    let word = |eight: &[i8]| eight.iter().rev().fold(0, |word, code| word << 4 | (i32::from(*code) + 8) as u32);
    codes.chunks(8).map(word).collect()
}

/// Checks a pair of functions: codes from −8 to 7 into words, eight in each, the first in the lowest four bits, stored as
/// code + 8; and back.
pub fn pack_words(pack: fn(&[i8]) -> Vec<u32>, unpack: fn(&[u32]) -> Vec<i8>) -> Verdict {
    timed("pack_words", move || {
        // One code at a time away from 0, so that a wrong place shows; then all values; then many.
        let one = |at: usize| (0..8).map(|i| if i == at { 1 } else { 0 }).collect::<Vec<i8>>();
        let rising: Vec<i8> = (-8..8).collect();
        let many: Vec<i8> = cpu::random_f32(800, 3).iter().map(|x| (x * 7.99).floor() as i8).collect();
        let mut cases: Vec<Vec<i8>> = vec![vec![0; 8], one(0), one(1), one(7), vec![7; 8], vec![-8; 8], vec![-1; 8]];
        cases.extend([rising.iter().rev().copied().collect(), rising, many, Vec::new()]);
        for codes in &cases {
            let shown = if codes.len() > 16 { format!("{} codes", codes.len()) } else { format!("{codes:?}") };
            let (given, right) = (ask(&format!("pack({shown})"), || pack(codes))?, packed(codes));
            if given.len() != right.len() {
                return told(
                    format!("pack({shown}) gives {} words, and {} hold them", given.len(), right.len()),
                    "a code has 4 bits, and a word 32",
                    "go through the codes by eights: `codes.chunks(8)` gives one word's",
                );
            }
            if let Some(at) = (0..right.len()).find(|at| given[*at] != right[*at]) {
                let own = &codes[8 * at..8 * at + 8];
                return told(
                    format!("pack: the word of {own:?} is {:#010x}, and it should be {:#010x}", given[at], right[at]),
                    packing(own, given[at]),
                    "code + 8 is a number from 0 to 15: shift the code number i by 4 · i bits, and join the eight by `|`",
                );
            }
        }
        for codes in &cases {
            let words = packed(codes);
            let given = ask(&format!("unpack({} words)", words.len()), || unpack(&words))?;
            if given.len() != codes.len() {
                return told(
                    format!("unpack({} words) gives {} codes, and they hold {}", words.len(), given.len(), codes.len()),
                    "each word holds eight",
                    "for each word, and in it for each i from 0 to 7, there is one code",
                );
            }
            if let Some(at) = (0..codes.len()).find(|at| given[*at] != codes[*at]) {
                let what = format!(
                    "unpack: code {} of the word {:#010x} is {}, and you give {}",
                    at % 8,
                    words[at / 8],
                    codes[at],
                    given[at]
                );
                return told(
                    what,
                    unpacking(codes, &given),
                    "shift the word right by 4 · i bits, keep the lowest four, and take away the 8 that packing has added",
                );
            }
        }
        Ok(())
    })
}

/// Which mistake makes such a word of eight codes.
fn packing(codes: &[i8], given: u32) -> &'static str {
    let by = |place: fn(usize) -> usize, value: fn(i8) -> u32| {
        codes.iter().enumerate().fold(0_u32, |word, (i, code)| word | value(*code) << (4 * place(i))) == given
    };
    let offset = |code: i8| (i32::from(code) + 8) as u32;
    match () {
        () if by(|i| i, |code| (code & 15) as u32) => {
            "these are two's complement; the word is to hold code + 8, so that −8 is 0 and 7 is 15"
        }
        () if by(|i| 7 - i, offset) => "the order is turned round: the first code belongs into the lowest four bits",
        () if by(|i| i ^ 1, offset) => "the two codes of each byte have changed places",
        () if given & 0xff00_ff00 == 0 || given <= 0xff => "some of the eight codes are not in the word",
        () => {
            "write both words in binary, in groups of four bits: which group differs, and what became of a code below 0?"
        }
    }
}

/// Which mistake makes such codes.
fn unpacking(codes: &[i8], given: &[i8]) -> &'static str {
    let all = |wrong: &dyn Fn(usize) -> i8| (0..codes.len()).all(|at| given[at] == wrong(at));
    match () {
        () if all(&|at| codes[at] + 8) => "these are the four bits as they stand; which code do they stand for?",
        () if all(&|at| codes[at / 8 * 8 + 7 - at % 8]) => {
            "the order is turned round: the first code is in the lowest four bits"
        }
        () if all(&|at| codes[at ^ 1]) => "the two codes of each byte have changed places",
        () if all(&|at| ((codes[at] + 8) << 4) >> 4) => "the words do not hold two's complement, but code + 8",
        () => "take the first word above by hand: which bits are code 0, and what do they stand for?",
    }
}

/// The sum of the squares of what symmetric rounding with that scale leaves.
fn lost(weights: &[f32], bits: u32, scale: f64) -> f64 {
    let high = f64::from((1 << (bits - 1)) - 1);
    let one = |x: &f32| {
        let x = f64::from(*x);
        let code = if scale == 0.0 { 0.0 } else { (x / scale).round_ties_even().clamp(-high, high) };
        (x - code * scale).powi(2)
    };
    weights.iter().map(one).sum()
}

/// The least that a scale up to absmax leaves, by search.
fn least_lost(weights: &[f32], bits: u32) -> f64 {
    let most = f64::from(weights.iter().fold(0.0_f32, |most, x| most.max(x.abs())));
    let high = f64::from((1 << (bits - 1)) - 1);
    (1..=4000).map(|i| lost(weights, bits, most / high * f64::from(i) / 4000.0)).fold(f64::INFINITY, f64::min)
}

/// Checks a function that gives the scale with which a group of weights loses least when it is rounded to so many bits, codes
/// symmetric around 0 (−7 to 7 for four bits): the sum of the squares of what is lost is to be within 3 percent of
/// the least that a scale up to absmax gives.
pub fn scale_search(answer: fn(&[f32], u32) -> f32) -> Verdict {
    timed("scale_search", move || {
        let random = |n, seed| cpu::random_f32(n, seed);
        // Roughly normal: the sum of uniform numbers.
        let normal = |n: usize, seed| random(6 * n, seed).chunks(6).map(|six| six.iter().sum()).collect::<Vec<f32>>();
        let mut outlier = normal(64, 4);
        outlier[40] = -20.0;
        let mut two_sizes = normal(64, 9);
        two_sizes[..8].iter_mut().for_each(|x| *x *= 1e-3);
        let small: Vec<f32> = normal(32, 5).iter().map(|x| 1e-4 * x).collect();
        let cases: [(&str, Vec<f32>, u32); 9] = [
            ("64 normal weights", normal(64, 1), 4),
            ("64 normal weights", normal(64, 2), 3),
            ("128 normal weights", normal(128, 3), 2),
            ("64 weights with an outlier", outlier, 4),
            ("32 small weights", small, 4),
            ("64 weights, 8 of them tiny", two_sizes, 5),
            ("16 uniform weights", random(16, 6), 8),
            ("one weight", vec![-0.3], 4),
            ("32 zeros", vec![0.0; 32], 4),
        ];
        for (name, weights, bits) in &cases {
            judged(name, weights, *bits, answer)?;
        }
        Ok(())
    })
}

fn judged(name: &str, weights: &[f32], bits: u32, answer: fn(&[f32], u32) -> f32) -> Check {
    let case = format!("{name}, {bits} bits");
    let given = ask(&case, || answer(weights, bits))?;
    if !given.is_finite() || given < 0.0 {
        return told(
            format!("{case}: the scale is {given}"),
            "a scale is the distance of two neighbouring values: a number from 0 up",
            "by what do you divide, and can it be 0? With nothing but zeros any scale is right, 0 too",
        );
    }
    let (own, least) = (lost(weights, bits, f64::from(given)), least_lost(weights, bits));
    if own <= 1.03 * least + 1e-9 * weights.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() {
        return Ok(());
    }
    let most = weights.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
    let absmax = most / ((1 << (bits - 1)) - 1) as f32;
    let times = if least > 0.0 { format!("{} times the least", figures(own / least)) } else { "the least is 0".into() };
    let what =
        format!("{case}: with the scale {} the squares of what is lost add up to {times}", figures(f64::from(given)));
    let meaning = match given / absmax {
        ratio if (ratio - 1.0).abs() < 1e-3 => {
            "that is absmax: it takes the largest weight to the largest code, and nothing asks what the others lose"
        }
        ratio if (ratio * (1 << (bits - 1)) as f32 / ((1 << (bits - 1)) - 1) as f32 - 1.0).abs() < 1e-3 => {
            "that divides by 2^(bits − 1): the largest code is one less"
        }
        ratio if ratio > 1.0 => "larger than absmax: the outermost codes are never used",
        ratio if ratio < 0.2 => "most weights are cut off at the largest code: what do they lose?",
        _ => "near, but a neighbouring scale loses less: how finely, and from where to where do you look?",
    };
    told(what, meaning, "try a hundred scales from a fifth of absmax up to absmax: round with each, and keep the best")
}

/// On paper: a product of a matrix in int4 with an f16 scale for each 64 weights, unpacked to bf16 and multiplied on tensor cores,
/// with 128 rows of inputs; memory at 4.8 TB/s, arithmetic at 989 TFLOP/s, whichever takes longer. How many times as fast
/// as the same with weights in bf16?
pub fn four_bit_gain(answer: Option<f64>) -> Verdict {
    let (bytes, flops, rows) = (4.8e12, 989e12, 128.0);
    let time = |bits: f64, operations: f64| f64::max(bits / 8.0 / bytes, operations * rows / flops);
    let right = time(16.0, 2.0) / time(4.25, 2.0);
    let slips = [
        (16.0 / 4.25, "that is the ratio of the bytes. Is memory still the limit with few bits, at 128 rows?"),
        (4.0, "that is the ratio of the bits, without the scales; and is memory still the limit at 128 rows?"),
        (1.0, "is arithmetic the limit for bf16 weights, too? Work out both times for both"),
        (time(16.0, 1.0) / time(4.25, 1.0), "a multiply-add is two operations"),
        (1.0 / right, "the other way round: how many times as fast"),
        (2.0 * right, "a multiply-add is two operations, and 989 TFLOP/s counts both"),
        (time(16.0, 8.0) / time(4.25, 2.0), "the weights are multiplied in bf16 in both cases"),
    ];
    let start =
        "for one weight: the time to read its bits, and the time of its 128 multiply-adds; the longer one counts";
    number("four_bit_gain", answer, right * 0.98..=right * 1.02, &slips, start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(codes: &[i8]) -> Vec<u32> {
        codes.chunks(8).map(|eight| (0..8).map(|i| ((eight[i] + 8) as u32) << (4 * i)).sum()).collect()
    }

    fn unpack(words: &[u32]) -> Vec<i8> {
        words.iter().flat_map(|word| (0..8).map(move |i| (word >> (4 * i) & 15) as i8 - 8)).collect()
    }

    #[test]
    fn words_right_and_wrong() {
        let right = pack_words(pack, unpack);
        assert!(right.passed(), "{}", right.text());
        type Pack = fn(&[i8]) -> Vec<u32>;
        type Unpack = fn(&[u32]) -> Vec<i8>;
        let wrong: [(Pack, Unpack, &str); 14] = [
            (|codes| codes.iter().map(|code| *code as u32).collect(), unpack, "a code has 4 bits"),
            (
                |codes| codes.chunks(8).map(|e| (0..8).map(|i| ((e[i] & 15) as u32) << (4 * i)).sum()).collect(),
                unpack,
                "two's complement",
            ),
            (|codes| pack(codes).iter().map(|w| w.swap_bytes()).collect(), unpack, "write both words"),
            (
                |codes| codes.chunks(8).map(|e| (0..8).map(|i| ((e[7 - i] + 8) as u32) << (4 * i)).sum()).collect(),
                unpack,
                "turned round",
            ),
            (
                |codes| codes.chunks(8).map(|e| (0..8).map(|i| ((e[i ^ 1] + 8) as u32) << (4 * i)).sum()).collect(),
                unpack,
                "changed places",
            ),
            (
                |codes| codes.chunks(8).map(|e| (e[0] + 8) as u32 | ((e[1] + 8) as u32) << 4).collect(),
                unpack,
                "not in the word",
            ),
            // A sign that runs over its neighbours.
            (
                |codes| codes.chunks(8).map(|e| (0..8).fold(0, |w, i| w | (e[i] as u32) << (4 * i))).collect(),
                unpack,
                "two's complement",
            ),
            (
                pack,
                |words| words.iter().flat_map(|w| (0..8).map(move |i| (w >> (4 * i) & 15) as i8)).collect(),
                "stand for",
            ),
            (
                pack,
                |words| words.iter().flat_map(|w| (0..8).map(move |i| (w >> (28 - 4 * i) & 15) as i8 - 8)).collect(),
                "turned round",
            ),
            (
                pack,
                |words| {
                    words.iter().flat_map(|w| (0..8).map(move |i| ((w >> (4 * i) << 4) as u8 as i8) >> 4)).collect()
                },
                "code + 8",
            ),
            (
                pack,
                |words| words.iter().flat_map(|w| (0..4).map(move |i| (w >> (8 * i) & 15) as i8 - 8)).collect(),
                "holds eight",
            ),
            (|_| todo!(), unpack, "instead of panicking"),
            // Cheats: nothing at all, and a pair that undoes each other in a layout of its own.
            (|_| Vec::new(), |_| Vec::new(), "gives 0 words"),
            (
                |codes| codes.chunks(8).map(|e| e.iter().fold(0, |w, c| w << 4 | (c + 8) as u32)).collect(),
                |words| words.iter().flat_map(|w| (0..8).rev().map(move |i| (w >> (4 * i) & 15) as i8 - 8)).collect(),
                "turned round",
            ),
        ];
        for (index, (pack, unpack, said)) in wrong.into_iter().enumerate() {
            let text = pack_words(pack, unpack).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{index}: {text}");
        }
    }

    fn absmax(weights: &[f32], bits: u32) -> f32 {
        weights.iter().fold(0.0_f32, |most, x| most.max(x.abs())) / ((1 << (bits - 1)) - 1) as f32
    }

    fn search(weights: &[f32], bits: u32, from: f32, steps: i32) -> f32 {
        let step = |i: i32| absmax(weights, bits) * (from + (1.0 - from) * i as f32 / steps as f32);
        let lost = |scale: &f32| lost(weights, bits, f64::from(*scale));
        (0..=steps).map(step).min_by(|a, b| lost(a).total_cmp(&lost(b))).unwrap()
    }

    #[test]
    fn scales_right_and_wrong() {
        for right in [|w: &[f32], b| search(w, b, 0.1, 100), |w: &[f32], b| search(w, b, 0.2, 400)] {
            assert!(scale_search(right).passed(), "{}", scale_search(right).text());
        }
        type Search = fn(&[f32], u32) -> f32;
        let wrong: [(Search, &str); 11] = [
            (absmax, "that is absmax"),
            (|w, b| 0.5 * absmax(w, b), "a neighbouring scale"),
            (|w, b| absmax(w, b) * ((1 << (b - 1)) - 1) as f32 / (1 << (b - 1)) as f32, "one less"),
            (|w, b| search(w, b, 0.2, 6), "how finely"),
            (|w, b| 1.5 * absmax(w, b), "never used"),
            (|w, b| search(w, b, 0.9, 100), "from where to where"),
            (|w, b| w.iter().map(|x| x.abs()).sum::<f32>() / w.len() as f32 / b as f32, "the squares of what is lost"),
            (|w, b| if absmax(w, b) == 0.0 { f32::NAN } else { search(w, b, 0.1, 100) }, "can it be 0"),
            (|_, _| panic!("not there"), "instead of panicking"),
            // Cheats: constants, and one number of bits for all.
            (|_, _| 0.0, "cut off"),
            (|w, _| search(w, 4, 0.1, 100), "the squares of what is lost"),
        ];
        for (index, (answer, said)) in wrong.into_iter().enumerate() {
            let text = scale_search(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{index}: {text}");
        }
    }

    #[test]
    fn the_gain_is_worked_out() {
        assert!(four_bit_gain(Some(1.61)).passed() && four_bit_gain(Some(1.6)).passed());
        for (answer, said) in [
            (None, "no number yet"),
            (Some(3.76), "ratio of the bytes"),
            (Some(4.0), "without the scales"),
            (Some(1.0), "Work out both"),
            (Some(3.22), "a multiply-add is two"),
            (Some(0.621), "the other way round"),
            (Some(2.5), "for one weight"),
            (Some(f64::NAN), "is no answer"),
            (Some(f64::INFINITY), "is no answer"),
        ] {
            let text = four_bit_gain(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{answer:?}: {text}");
        }
    }
}
