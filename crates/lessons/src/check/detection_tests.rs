//! The exercises of lesson 01, solved right and wrong.

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
    let wrong: [(Answer, &str); 7] = [
        (|_| Some(0), "your answer is Some(0), the A2, and it should be Some(1), the A100\nhint: the most free memory"),
        (|_| None, "8.0 itself is high enough"),
        (|gpus| Some(gpus.len()), "no index of this list"),
        (|gpus| gpus.iter().enumerate().max_by_key(|(_, g)| g.free_bytes).map(|(at, _)| at), "7.0 is below"),
        (|gpus| (0..gpus.len()).max_by_key(|&at| (gpus[at].compute_capability.0 == 8, gpus[at].free_bytes)), "12.0"),
        (
            |gpus| {
                let fit = gpus.iter().filter(|gpu| gpu.compute_capability >= (8, 0)).enumerate();
                fit.max_by_key(|(_, gpu)| gpu.free_bytes).map(|(at, _)| at)
            },
            "`enumerate` first",
        ),
        (
            |gpus| {
                let fit = (0..gpus.len()).filter(|&at| gpus[at].compute_capability >= (8, 0));
                Some(fit.max_by_key(|&at| gpus[at].free_bytes).unwrap())
            },
            "panicked",
        ),
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
    let wrong: [(Answer, &str); 7] = [
        (|w, b, x| w.multiply(x)?.add(b), "device mismatch"),
        (|w, b, x| w.to(&Device::Cpu)?.multiply(&x.to(&Device::Cpu)?)?.add(&b.to(&Device::Cpu)?), "not always the CPU"),
        (|w, b, x| Ok(w.multiply(&x.to(w.device()).unwrap()).unwrap().add(b).unwrap()), "with `?`"),
        (|w, b, x| w.multiply(&x.to(w.device())?).or_else(|_| b.to(b.device()))?.add(b), "gave a result"),
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
    let wrong: [(Answer, &str); 9] = [
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
