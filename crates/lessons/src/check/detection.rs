//! Exercises of lesson 01.

use super::Verdict;
use super::verdict::{ask, asking, run, timed, told, wrong};
use crate::device::{ComputeDevice, DeviceVector};
use gpulab::error::{Error, Result};

/// Checks a function that computes `weight × x + bias` where `weight` and `bias` (the model) live, wherever `x` is.
pub fn fix_mismatch(answer: fn(&DeviceVector, &DeviceVector, &DeviceVector) -> Result<DeviceVector>) -> Verdict {
    timed("fix_mismatch", move || {
        let other = &ComputeDevice::other();
        let places = [
            (&ComputeDevice::Cpu, &ComputeDevice::Cpu),
            (other, other),
            (&ComputeDevice::Cpu, other),
            (other, &ComputeDevice::Cpu),
        ];
        for (model, data) in places {
            let (weight, bias) = (model.vector(&[2.0, 3.0, -1.0])?, model.vector(&[0.5, 0.0, 1.0])?);
            let x = data.vector(&[1.0, 2.0, 4.0])?;
            let place = format!("with the model on {model} and the data on {data}");
            let given = match ask(&place, || answer(&weight, &bias, &x))? {
                Err(error) => {
                    let hint = match error {
                        Error::DeviceMismatch { .. } => {
                            "bring `x` to the device of `weight` before the first operation"
                        }
                        _ => "these three fit: what does your code combine?",
                    };
                    return wrong(format!("{place}: {error}"), hint);
                }
                Ok(given) => given,
            };
            let moved = weight.copies() + bias.copies();
            if moved > 0 && !model.same_as(data) {
                return told(
                    format!("{place}: your code copied the model's vectors to a device {moved} times"),
                    "the result is right, and the model has moved; a model is large and used again, data are exchanged",
                    "which one vector must be somewhere else for this operation?",
                );
            }
            if !given.device().same_as(model) {
                let hint = if given.device().same_as(data) {
                    "move the data to the model, not the model to the data: a model is large and used again"
                } else {
                    "compute where `weight` lives: `weight.device()` says where, and it is not always the CPU"
                };
                return wrong(format!("{place}: the result is on {}", given.device()), hint);
            }
            let values = given.to_host()?;
            if values != [2.5, 6.0, -3.0] {
                return wrong(
                    format!("{place}: the result is {values:?}, and it should be [2.5, 6.0, -3.0]"),
                    "the formula is weight × x + bias, element by element",
                );
            }
        }
        let (weight, bias) = (ComputeDevice::Cpu.vector(&[2.0, 3.0])?, ComputeDevice::Cpu.vector(&[0.5, 0.0])?);
        let short = other.vector(&[1.0])?;
        let what = match run(|| answer(&weight, &bias, &short)) {
            Ok(Err(_)) => return Ok(()),
            Ok(Ok(_)) => "your code gave a result".to_string(),
            Err(panic) => panic,
        };
        let what = format!("with two weights and one number of data, which is an error: {what}");
        wrong(what, "pass every error on with `?`: whoever calls your function decides")
    })
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
    timed("will_it_run", move || {
        const GPU: &str = "the GPU needs at least the compute capability that the PTX was compiled for; higher is fine";
        const DRIVER: &str = "the driver must support at least the compiler's CUDA version; newer is fine";
        const MINOR: &str = "as a pair, 8.6 is below 8.9: where the majors are equal, the minors decide";
        const MAJOR: &str = "as a pair, 12.0 is above 8.9: the minors count only where the majors are equal";
        const NEW: &str = "as a pair, 12.9 is below 13.0: compare the majors first, then the minors";
        let same = Pairing { compiled_for: (8, 0), compiler: (12, 8), gpu: (8, 0), driver: (12, 8) };
        let cases = [
            (same, true, "equal versions fit: `>=`, not `>`"),
            (Pairing { gpu: (9, 0), ..same }, true, GPU),
            (Pairing { driver: (13, 0), ..same }, true, DRIVER),
            (Pairing { gpu: (7, 5), ..same }, false, GPU),
            (Pairing { driver: (12, 4), ..same }, false, DRIVER),
            (Pairing { compiled_for: (8, 9), gpu: (8, 6), ..same }, false, MINOR),
            (Pairing { compiled_for: (8, 9), gpu: (12, 0), ..same }, true, MAJOR),
            (Pairing { compiler: (13, 0), driver: (12, 9), ..same }, false, NEW),
            (Pairing { compiler: (12, 9), driver: (13, 0), ..same }, true, NEW),
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
            let given = ask(&shown, || answer(&case))?;
            if given != expected {
                return wrong(format!("{shown}: your answer is {given}, and it should be {expected}"), hint);
            }
        }
        // All pairs of these, so that no list of cases is an answer.
        const CAPABILITIES: [(u32, u32); 6] = [(7, 5), (8, 0), (8, 6), (8, 9), (9, 0), (12, 1)];
        const VERSIONS: [(u32, u32); 5] = [(11, 8), (12, 4), (12, 9), (13, 0), (13, 2)];
        let pairs = |all: &'static [(u32, u32)]| all.iter().flat_map(move |&a| all.iter().map(move |&b| (a, b)));
        for (compiled_for, gpu) in pairs(&CAPABILITIES) {
            for (compiler, driver) in pairs(&VERSIONS) {
                let case = Pairing { compiled_for, compiler, gpu, driver };
                asking(&format!("{case:?}"));
                let (given, expected) = (ask("", || answer(&case))?, gpu >= compiled_for && driver >= compiler);
                if given != expected {
                    let what = format!("{case:?}: your answer is {given}, and it should be {expected}");
                    let failing = if gpu < compiled_for { GPU } else { DRIVER };
                    return wrong(what, if expected { "both conditions hold here" } else { failing });
                }
            }
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixing_the_mismatch_right_and_wrong() {
        assert!(fix_mismatch(|w, b, x| w.multiply(&x.to(w.device())?)?.add(b)).passed());
        type Answer = fn(&DeviceVector, &DeviceVector, &DeviceVector) -> Result<DeviceVector>;
        let wrong: [(Answer, &str); 9] = [
            // The model goes to the data, and the result comes back; constants.
            (
                |w, b, x| w.to(x.device())?.multiply(x)?.add(&b.to(x.device())?)?.to(w.device()),
                "copied the model's vectors to a device 2 times",
            ),
            (|w, _, _| w.device().vector(&[2.5, 6.0, -3.0]), "gave a result"),
            (|w, b, x| w.multiply(x)?.add(b), "device mismatch"),
            (
                |w, b, x| {
                    w.to(&ComputeDevice::Cpu)?.multiply(&x.to(&ComputeDevice::Cpu)?)?.add(&b.to(&ComputeDevice::Cpu)?)
                },
                "not always the CPU",
            ),
            (|w, b, x| Ok(w.multiply(&x.to(w.device()).unwrap()).unwrap().add(b).unwrap()), "with `?`"),
            (|w, b, x| w.multiply(&x.to(w.device())?).or_else(|_| b.to(b.device()))?.add(b), "gave a result"),
            (|w, b, x| w.to(x.device())?.multiply(x)?.add(&b.to(x.device())?), "a model is large and used again"),
            (|w, b, x| w.add(&x.to(w.device())?)?.add(b), "it should be [2.5"),
            (|_, _, _| todo!(), "panicked"),
        ];
        for (answer, text) in wrong {
            let said = fix_mismatch(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }

    #[test]
    fn whether_it_runs_right_and_wrong() {
        assert!(will_it_run(|p| p.gpu >= p.compiled_for && p.driver >= p.compiler).passed());
        type Answer = fn(&Pairing) -> bool;
        let wrong: [(Answer, &str); 12] = [
            // The cases by heart; what is always said; a digit after the other.
            (
                |p| {
                    p.gpu.0 != 7
                        && p.gpu != (8, 6)
                        && p.driver != (12, 4)
                        && (p.driver, p.compiler) != ((12, 9), (13, 0))
                },
                "Pairing",
            ),
            (|_| true, "higher is fine"),
            (
                |p| p.gpu.0 * 10 + p.gpu.1 >= p.compiled_for.0 * 10 + p.compiled_for.1 && p.driver.1 >= p.compiler.1,
                "newer is fine",
            ),
            (|p| p.gpu == p.compiled_for && p.driver == p.compiler, "higher is fine"),
            (|p| p.gpu >= p.compiled_for, "newer is fine"),
            (|p| p.driver >= p.compiler, "higher is fine"),
            (|p| p.gpu >= p.compiled_for && p.driver <= p.compiler, "newer is fine"),
            (|p| p.gpu > p.compiled_for && p.driver > p.compiler, "equal versions fit"),
            (|p| p.gpu >= p.compiled_for && p.driver.0 >= p.compiler.0, "with a driver for CUDA 12.4"),
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
