//! Debugging case of lesson 21: a training loop whose memory grows. The loop is `gpulab_nn::memory::growing`; this is its diagnosis.

use super::Verdict;
use super::on_paper::diagnosed;
use super::verdict::{Check, ask, told, wrong};
use gpulab::error::Result;
use gpulab::error::bytes;

/// What a training loop may keep from step to step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Growth {
    /// The loss, as a tensor, with all that it was computed from.
    Losses,
    /// The examples.
    Examples,
    /// The gradients.
    Gradients,
    /// A copy of the parameters.
    Parameters,
    /// Optimizer state.
    OptimizerState,
    /// Nothing: the allocator keeps what was freed.
    AllocatorCache,
}

/// Parameters of the network in the question, in f32.
const ASKED: f64 = 124_439_808.0;

/// Checks a diagnosis: what the hidden loop keeps, and by how many GB (10⁹ bytes) a step it would grow with a network of 124,439,808
/// parameters in f32. `run` runs the hidden loop, with so many examples a step, for so many steps of which the first ones are the
/// warm-up of the learning rate, and gives the bytes in use after each. `parameters` is how many its network has.
pub fn diagnose_growth(
    diagnosis: Option<(Growth, f64)>,
    parameters: u64,
    run: fn(batch: usize, steps: usize, warm_up: usize) -> Result<Vec<u64>>,
) -> Verdict {
    let right = 8.0 * ASKED / 1e9;
    let slips = [
        (right / 2.0, "that is one number of 4 bytes per parameter: how many did you measure?"),
        (2.0 * right, "that is everything that a parameter needs: which part of it grows?"),
        (1.5 * right, "that counts an array of the step too many"),
        (1e3 * right, "in GB, please"),
        (right / 2.0_f64.powi(30) * 1e9, "in 10⁹ bytes, please"),
    ];
    let start =
        "divide the growth of one step that you measured by the parameters of that network: how many bytes each?";
    let none = "vary one number of the loop at a time: the batch, then the warm-up. When does it grow, and by how many bytes per parameter?";
    diagnosed(
        "diagnose_growth",
        diagnosis,
        none,
        |named| against(named, parameters, run),
        right * 0.99..=right * 1.01,
        &slips,
        start,
    )
}

/// The evidence that speaks for an innocent suspect.
fn against(named: Growth, parameters: u64, run: fn(usize, usize, usize) -> Result<Vec<u64>>) -> Check {
    // In steps 2 and 3 of a long warm-up: the first step has things of its own.
    let growth = |batch| -> Check<f64> {
        let used = ask("", || run(batch, 4, 4))??;
        let (Some(second), Some(last)) = (used.get(1), used.last()) else {
            return wrong("your function `run` gives fewer than four numbers", "give it as the lesson has it");
        };
        Ok((*last as f64 - *second as f64) / 2.0)
    };
    let text = |grown: f64| bytes(grown.max(0.0) as u64);
    let each = |grown: f64| grown / parameters as f64;
    let what = match named {
        Growth::OptimizerState => return Ok(()),
        Growth::Losses | Growth::Examples => {
            let [few, many] = [growth(4)?, growth(16)?];
            format!(
                "with 4 examples a step it grows by {} a step, with 16 by {}: what was computed from the examples would be four times as much",
                text(few),
                text(many)
            )
        }
        Growth::Gradients | Growth::Parameters => {
            let grown = growth(4)?;
            format!("it grows by {:.1} bytes per parameter and step, and one number of f32 has 4", each(grown))
        }
        Growth::AllocatorCache => {
            format!(
                "these are bytes that somebody holds, without what was freed, and {} come with each step",
                text(growth(4)?)
            )
        }
    };
    told(
        what,
        "vary the batch, then the warm-up: with which of them does the growth change?",
        "how many bytes per parameter does a step add, and in which steps does it add them?",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMETERS: u64 = 1_000_000;

    /// A loop that keeps `per_step(batch)` bytes in each step of the warm-up.
    fn keeps(batch: usize, steps: usize, warm_up: usize, per_step: fn(usize) -> u64) -> Result<Vec<u64>> {
        Ok((0..steps).map(|step| 50_000_000 + per_step(batch) * step.min(warm_up.saturating_sub(1)) as u64).collect())
    }

    fn state(batch: usize, steps: usize, warm_up: usize) -> Result<Vec<u64>> {
        keeps(batch, steps, warm_up, |_| 8_000_000)
    }

    #[test]
    fn only_the_measured_growth_convicts() {
        let check = |diagnosis| diagnose_growth(diagnosis, PARAMETERS, state);
        for right in [0.9955, 0.996, 1.0] {
            let right = Some((Growth::OptimizerState, right));
            assert!(check(right).passed(), "{}", check(right).text());
        }
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((Growth::Losses, 0.9955)), "four times as much"),
            (Some((Growth::Examples, 0.9955)), "four times as much"),
            (Some((Growth::Gradients, 0.9955)), "8.0 bytes per parameter"),
            (Some((Growth::Parameters, 0.9955)), "8.0 bytes per parameter"),
            (Some((Growth::AllocatorCache, 0.9955)), "somebody holds"),
            (Some((Growth::OptimizerState, 0.4978)), "how many did you measure"),
            (Some((Growth::OptimizerState, 1.991)), "which part of it grows"),
            (Some((Growth::OptimizerState, 1.493)), "an array of the step too many"),
            (Some((Growth::OptimizerState, 995.5)), "in GB"),
            (Some((Growth::OptimizerState, 5.0)), "divide the growth"),
            (Some((Growth::OptimizerState, f64::NAN)), "is no answer"),
            (Some((Growth::OptimizerState, f64::INFINITY)), "is no answer"),
        ] {
            let text = check(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
        }
        let broken = |run| diagnose_growth(Some((Growth::Losses, 1.0)), PARAMETERS, run).text();
        assert!(broken(|_, _, _| Ok(vec![])).contains("fewer than four"));
        assert!(broken(|_, _, _| panic!("no loop")).contains("panicked: no loop"));
    }
}
