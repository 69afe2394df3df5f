//! Exercises of lesson 01.

use super::Verdict;
use super::panics::{PANIC_HINT, run};
use crate::device::{Device, Vector};
use crate::error::{Error, Result};

/// A GPU to choose from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// The marketing name.
    pub name: String,
    /// Compute capability, such as (8, 0).
    pub compute_capability: (u32, u32),
    /// Free memory, in bytes.
    pub free_bytes: u64,
}

impl Candidate {
    /// A GPU with that much free memory, in GiB.
    pub fn new(name: &str, compute_capability: (u32, u32), free_gib: u64) -> Candidate {
        Candidate { name: name.to_string(), compute_capability, free_bytes: free_gib << 30 }
    }
}

/// Checks a function that gives the index of the GPU with the most free memory among those of compute capability 8.0
/// or higher, and `None` when there is none.
pub fn choose_device(answer: fn(&[Candidate]) -> Option<usize>) -> Verdict {
    const NAME: &str = "choose_device";
    let old = Candidate::new("Tesla V100", (7, 0), 30);
    let small = Candidate::new("A2", (8, 6), 14);
    let large = Candidate::new("A100", (8, 0), 38);
    let ada = Candidate::new("L4", (8, 9), 21);
    let blackwell = Candidate::new("RTX PRO 6000", (12, 0), 90);
    let pascal = Candidate::new("Tesla P40", (6, 9), 23);
    let cases: [(&[Candidate], Option<usize>, &str); 6] = [
        (
            &[small.clone(), large.clone(), ada.clone()],
            Some(1),
            "the most free memory wins, not the first or the newest",
        ),
        (&[old.clone(), small.clone()], Some(1), "7.0 is below 8.0, however much memory it has"),
        (&[pascal.clone(), small.clone()], Some(1), "6.9 is below 8.0: compare the major number first"),
        (
            &[ada.clone(), blackwell],
            Some(1),
            "12.0 is above 8.0: compare numbers, not text, and the pair (major, minor)",
        ),
        (&[old, pascal], None, "none of them has 8.0, so the answer is `None`"),
        (&[], None, "an empty list has no best GPU: answer `None`, do not index it"),
    ];
    for (gpus, expected, hint) in cases {
        let shown: Vec<String> = gpus
            .iter()
            .map(|gpu| {
                let (major, minor) = gpu.compute_capability;
                format!("{} ({major}.{minor}, {} GiB free)", gpu.name, gpu.free_bytes >> 30)
            })
            .collect();
        let list = if shown.is_empty() { "no GPU at all".to_string() } else { shown.join(", ") };
        match run(|| answer(gpus)) {
            Err(panic) => return Verdict::not_yet(NAME, format!("for {list}: {panic}"), PANIC_HINT),
            Ok(given) if given != expected => {
                let what = format!("for {list}: your answer is {given:?}, and it should be {expected:?}");
                return Verdict::not_yet(NAME, what, hint);
            }
            Ok(_) => {}
        }
    }
    Verdict::pass(NAME)
}

/// Checks a function that computes `weight × x + bias` where `weight` and `bias` (the model) live, wherever `x` is.
pub fn mend_mismatch(answer: fn(&Vector, &Vector, &Vector) -> Result<Vector>) -> Verdict {
    const NAME: &str = "mend_mismatch";
    let other = Device::other();
    match mismatch_cases(answer, &other) {
        Ok(verdict) => verdict.unwrap_or_else(|| Verdict::pass(NAME)),
        // The check's own copies failed: no fault of the answer, but no pass either.
        Err(error) => {
            Verdict::not_yet(NAME, format!("the check could not run: {error}"), "run the notebook from the top")
        }
    }
}

fn mismatch_cases(answer: fn(&Vector, &Vector, &Vector) -> Result<Vector>, other: &Device) -> Result<Option<Verdict>> {
    const NAME: &str = "mend_mismatch";
    let places = [(&Device::Cpu, &Device::Cpu), (other, other), (&Device::Cpu, other), (other, &Device::Cpu)];
    for (model, data) in places {
        let (weight, bias) = (model.vector(&[2.0, 3.0, -1.0])?, model.vector(&[0.5, 0.0, 1.0])?);
        let x = data.vector(&[1.0, 2.0, 4.0])?;
        let place = format!("with the model on {model} and the data on {data}");
        let wrong = |what: String, hint| Ok(Some(Verdict::not_yet(NAME, what, hint)));
        let given = match run(|| answer(&weight, &bias, &x)) {
            Err(panic) => return wrong(format!("{place}: {panic}"), PANIC_HINT),
            Ok(Err(error @ Error::DeviceMismatch { .. })) => {
                return wrong(
                    format!("{place}: {error}"),
                    "bring `x` to the device of `weight` before the first operation",
                );
            }
            Ok(Err(error)) => return wrong(format!("{place}: {error}"), "pass every error but this one on"),
            Ok(Ok(given)) => given,
        };
        if !given.device().same_as(model) {
            return wrong(
                format!("{place}: the result is on {}", given.device()),
                "move the data to the model, not the model to the data: a model is large and used again",
            );
        }
        let values = given.to_host()?;
        if values != [2.5, 6.0, -3.0] {
            return wrong(
                format!("{place}: the result is {values:?}, and it should be [2.5, 6.0, -3.0]"),
                "the formula is weight × x + bias, element by element",
            );
        }
    }
    Ok(None)
}

/// A kernel as it was compiled, and the machine that is to run it. Versions are (major, minor).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pairing {
    /// The compute capability that the PTX was compiled for.
    pub compiled_for: (u32, u32),
    /// The CUDA version of the compiler that made the PTX.
    pub compiler: (u32, u32),
    /// The GPU's compute capability.
    pub gpu: (u32, u32),
    /// The newest CUDA version that the driver supports.
    pub driver: (u32, u32),
}

/// Checks a function that says whether a machine runs a kernel that comes as PTX: the GPU's compute capability must
/// reach what it was compiled for, and the driver must not be older than the compiler.
pub fn will_it_run(answer: fn(&Pairing) -> bool) -> Verdict {
    const NAME: &str = "will_it_run";
    const GPU: &str = "the GPU needs at least the compute capability that the PTX was compiled for; higher is fine";
    const DRIVER: &str = "the driver must support at least the compiler's CUDA version; newer is fine";
    const PAIR: &str = "compare (major, minor) as a pair: 12.0 is above 8.9, and 8.10 would be above 8.9";
    let same = Pairing { compiled_for: (8, 0), compiler: (12, 8), gpu: (8, 0), driver: (12, 8) };
    let cases = [
        (same, true, "equal versions fit"),
        (Pairing { gpu: (9, 0), driver: (13, 0), ..same }, true, GPU),
        (Pairing { gpu: (7, 5), ..same }, false, GPU),
        (Pairing { compiled_for: (8, 9), gpu: (8, 6), ..same }, false, PAIR),
        (Pairing { compiled_for: (8, 9), gpu: (12, 0), ..same }, true, PAIR),
        (Pairing { driver: (12, 4), ..same }, false, DRIVER),
        (Pairing { driver: (13, 0), ..same }, true, DRIVER),
        (Pairing { compiler: (13, 0), driver: (12, 9), ..same }, false, PAIR),
        (Pairing { gpu: (9, 0), compiler: (13, 0), driver: (12, 4), ..same }, false, DRIVER),
        (Pairing { gpu: (7, 5), driver: (13, 0), ..same }, false, GPU),
    ];
    for (case, expected, hint) in cases {
        let text = |(major, minor): (u32, u32)| format!("{major}.{minor}");
        let shown = format!(
            "PTX for compute capability {}, compiled by CUDA {}, on a GPU of {} with a driver for CUDA {}",
            text(case.compiled_for),
            text(case.compiler),
            text(case.gpu),
            text(case.driver)
        );
        match run(|| answer(&case)) {
            Err(panic) => return Verdict::not_yet(NAME, format!("{shown}: {panic}"), PANIC_HINT),
            Ok(given) if given != expected => {
                let what = format!("{shown}: your answer is {given}, and it should be {expected}");
                return Verdict::not_yet(NAME, what, hint);
            }
            Ok(_) => {}
        }
    }
    Verdict::pass(NAME)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choosing_a_device_right_and_wrong() {
        assert!(
            choose_device(|gpus| {
                let fit = gpus.iter().enumerate().filter(|(_, gpu)| gpu.compute_capability >= (8, 0));
                fit.max_by_key(|(_, gpu)| gpu.free_bytes).map(|(at, _)| at)
            })
            .passed()
        );
        type Answer = fn(&[Candidate]) -> Option<usize>;
        let wrong: [(Answer, &str); 4] = [
            (|_| Some(0), "most free memory wins"),
            (|gpus| gpus.iter().enumerate().max_by_key(|(_, g)| g.free_bytes).map(|(at, _)| at), "7.0 is below"),
            (
                |gpus| (0..gpus.len()).max_by_key(|&at| (gpus[at].compute_capability.0 == 8, gpus[at].free_bytes)),
                "12.0",
            ),
            (|gpus| Some((0..gpus.len()).max_by_key(|&at| gpus[at].free_bytes).unwrap()), "7.0 is below"),
        ];
        for (answer, text) in wrong {
            let said = choose_device(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }

    #[test]
    fn mending_the_mismatch_right_and_wrong() {
        assert!(mend_mismatch(|w, b, x| w.multiply(&x.to(w.device())?)?.add(b)).passed());
        type Answer = fn(&Vector, &Vector, &Vector) -> Result<Vector>;
        let wrong: [(Answer, &str); 4] = [
            (|w, b, x| w.multiply(x)?.add(b), "device mismatch"),
            (|w, b, x| w.to(x.device())?.multiply(x)?.add(&b.to(x.device())?), "move the data to the model"),
            (|w, b, x| w.add(&x.to(w.device())?)?.add(b), "it should be [2.5"),
            (|_, _, _| todo!(), "panicked"),
        ];
        for (answer, text) in wrong {
            let said = mend_mismatch(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }

    #[test]
    fn whether_it_runs_right_and_wrong() {
        assert!(will_it_run(|p| p.gpu >= p.compiled_for && p.driver >= p.compiler).passed());
        type Answer = fn(&Pairing) -> bool;
        let wrong: [(Answer, &str); 6] = [
            (|p| p.gpu == p.compiled_for && p.driver == p.compiler, "higher is fine"),
            (|p| p.gpu >= p.compiled_for, "newer is fine"),
            (|p| p.driver >= p.compiler, "it should be false"),
            (|p| p.gpu.0 >= p.compiled_for.0 && p.driver >= p.compiler, "as a pair"),
            (|p| p.gpu.0 >= p.compiled_for.0 && p.gpu.1 >= p.compiled_for.1 && p.driver >= p.compiler, "as a pair"),
            (|_| todo!(), "panicked"),
        ];
        for (answer, text) in wrong {
            let said = will_it_run(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }
}
