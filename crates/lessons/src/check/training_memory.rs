//! Exercises of lesson 21.

use super::Verdict;
use super::verdict::{PANIC_HINT, ask, run, verdict, wrong};
use gpulab::error::bytes;

/// Checks a function that gives the bytes which AdamW in mixed precision keeps for a network of that many parameters, without
/// activations: bf16 parameters and gradients, and in f32 a master copy of the parameters and AdamW's two numbers.
pub fn mixed_bytes(answer: fn(u64) -> u64) -> Verdict {
    verdict("mixed_bytes", || {
        for parameters in [1_199_882, 124_439_808, 1] {
            let given = ask("", || answer(parameters))?;
            let hint = match given as f64 / parameters as f64 {
                16.0 => continue,
                8.0 => "that is bf16 throughout, or f32 without AdamW's numbers: count both, and the f32 copy",
                12.0 => "the optimiser works on an f32 copy of the parameters: 4 more bytes each",
                14.0 => "parameters and gradients are two things: 2 bytes each for both",
                18.0 => "the gradients are in bf16: 2 bytes each, not 4",
                20.0 => "parameters and gradients for the GPU's products are in bf16: 2 bytes each, not 4",
                5.0 => "these are numbers: a bf16 has 2 bytes, an f32 has 4",
                _ => "for each parameter: 2 (itself) + 2 (gradient) + 4 (master copy) + 2 × 4 (AdamW's m and v)",
            };
            return wrong(format!("{parameters} parameters: you say {given} bytes"), hint);
        }
        Ok(())
    })
}

/// Checks a function (batch, inputs, outputs, side) that gives the bytes which candle keeps, in f32, of a convolution 3 × 3
/// without padding, its bias and its ReLU.
pub fn conv_bytes(answer: fn(u64, u64, u64, u64) -> u64) -> Verdict {
    verdict("conv_bytes", || {
        for (batch, inputs, outputs, side) in [(128, 1, 32, 28), (128, 32, 64, 26), (7, 64, 48, 14)] {
            let case = format!("batch {batch}, {inputs}→{outputs} channels, images of {side} × {side}");
            let given = ask(&case, || answer(batch, inputs, outputs, side))?;
            let one = 4 * batch * outputs * (side - 2) * (side - 2);
            if given == 3 * one {
                continue;
            }
            let hint = if given == 12 * batch * outputs * side * side {
                "without padding a window of 3 × 3 has side - 2 places along a side"
            } else if given == 12 * batch * inputs * (side - 2) * (side - 2)
                || given == 12 * batch * inputs * side * side
            {
                "what goes out has `outputs` channels; what comes in was counted by the layer before"
            } else if given == 3 * one / 4 {
                "these are numbers: an f32 has 4 bytes"
            } else if given == 3 * one / batch {
                "every image of the batch has results of its own"
            } else if given == one || given == 2 * one {
                "three operations, three results: the product, the sum with the bias, the ReLU"
            } else if given == 3 * one + 4 * outputs * (inputs * 9 + 1) {
                "the weights are parameters: they do not count as activations"
            } else {
                "4 bytes × 3 results × batch × outputs × places, with (side - 2)² places"
            };
            return wrong(format!("{case}: you say {given} bytes ({})", bytes(given)), hint);
        }
        Ok(())
    })
}

/// Checks a function (budget, fixed, each) in bytes that gives the largest batch which fits: `fixed` is needed in any case, and
/// `each` for every example. 0 when not even one fits.
pub fn fitting_batch(answer: fn(u64, u64, u64) -> u64) -> Verdict {
    verdict("fitting_batch", || {
        let cases = [
            (1_000_000_000, 20_000_000, 2_000_000),
            (1_000_000_000, 20_000_000, 2_100_000),
            (100, 40, 30),
            (100, 0, 100),
            (100, 90, 30),
            (100, 100, 1),
            (100, 150, 30),
        ];
        for (budget, fixed, each) in cases {
            let case = format!("a budget of {budget} bytes, {fixed} fixed, {each} an example");
            let given = match run(|| answer(budget, fixed, each)) {
                Ok(given) => given,
                Err(panic) => {
                    let hint = if panic.contains("overflow") {
                        "the fixed part can be larger than the budget: `saturating_sub` gives 0 then"
                    } else {
                        PANIC_HINT
                    };
                    return wrong(format!("{case}: {panic}"), hint);
                }
            };
            let right = budget.saturating_sub(fixed) / each;
            if given == right {
                continue;
            }
            let hint = if given == budget / each {
                "parameters, gradients and state are there before the first example"
            } else if given == right + 1 && right > 0 {
                "one example more would not fit: round down"
            } else if given > budget {
                "the fixed part can be larger than the budget, and u64 has no numbers below 0: `saturating_sub`"
            } else if right == 0 {
                "not even one example fits here: the answer is 0"
            } else {
                "what the fixed part leaves of the budget, divided by what an example needs, rounded down"
            };
            return wrong(format!("{case}: you say {given}, and it should be {right}"), hint);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(verdict: Verdict, hint: &str) {
        let text = verdict.text();
        assert!(text.starts_with("NOT YET") && text.contains(hint), "{text}");
    }

    #[test]
    fn mixed_precision_right_and_wrong() {
        assert!(mixed_bytes(|n| 16 * n).passed());
        told(mixed_bytes(|n| 8 * n), "bf16 throughout");
        told(mixed_bytes(|n| 12 * n), "f32 copy");
        told(mixed_bytes(|n| 18 * n), "gradients are in bf16");
        told(mixed_bytes(|n| 20 * n), "not 4");
        told(mixed_bytes(|n| 5 * n), "these are numbers");
        told(mixed_bytes(|_| 0), "for each parameter");
        told(mixed_bytes(|_| panic!("not written yet")), "panic");
    }

    #[test]
    fn a_convolution_right_and_wrong() {
        assert!(conv_bytes(|b, _, o, s| 12 * b * o * (s - 2) * (s - 2)).passed());
        told(conv_bytes(|b, _, o, s| 12 * b * o * s * s), "without padding");
        told(conv_bytes(|b, i, _, s| 12 * b * i * (s - 2) * (s - 2)), "`outputs` channels");
        told(conv_bytes(|b, _, o, s| 3 * b * o * (s - 2) * (s - 2)), "these are numbers");
        told(conv_bytes(|_, _, o, s| 12 * o * (s - 2) * (s - 2)), "every image");
        told(conv_bytes(|b, _, o, s| 4 * b * o * (s - 2) * (s - 2)), "three results");
        told(conv_bytes(|b, i, o, s| 12 * b * o * (s - 2) * (s - 2) + 4 * o * (9 * i + 1)), "do not count");
        told(conv_bytes(|_, _, _, _| 1), "4 bytes × 3 results");
    }

    #[test]
    fn the_batch_right_and_wrong() {
        assert!(fitting_batch(|budget, fixed, each| budget.saturating_sub(fixed) / each).passed());
        told(fitting_batch(|budget, _, each| budget / each), "before the first example");
        told(fitting_batch(|budget, fixed, each| budget.saturating_sub(fixed).div_ceil(each)), "round down");
        told(fitting_batch(|budget, fixed, each| budget.wrapping_sub(fixed) / each), "saturating_sub");
        told(
            fitting_batch(|budget, fixed, each| budget.checked_sub(fixed).expect("overflow") / each),
            "saturating_sub",
        );
        told(fitting_batch(|budget, fixed, each| (budget.saturating_sub(fixed) / each).max(1)), "the answer is 0");
        told(fitting_batch(|_, _, _| 7), "rounded down");
    }
}
