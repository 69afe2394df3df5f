//! Exercises of lesson 02.

use super::Verdict;
use super::panics::{PANIC_HINT, run};
use crate::error::Result;
use crate::model::{Queue, Work};

/// Checks a function that gives the time of one kernel on the GPU, in µs, as a fair measurement finds it: the queue may
/// hold work already, the first launch is special, and single samples may be off.
pub fn time_kernel(answer: fn(&mut Queue, Work) -> Result<f64>) -> Verdict {
    const NAME: &str = "time_kernel";
    // (kernel, work queued before, is it the queue's first launch)
    for (us, before_us, first) in
        [(250.0, 0.0, false), (250.0, 0.0, true), (400.0, 60_000.0, false), (3000.0, 500.0, true)]
    {
        for seed in 1..=5 {
            let mut queue = Queue::with_seed(seed);
            let prepared = prepare(&mut queue, before_us, first);
            let launches = queue.launches();
            let given = match prepared.and_then(|()| run(|| answer(&mut queue, Work::of_us(us)))) {
                Err(panic) => return Verdict::not_yet(NAME, panic, PANIC_HINT),
                Ok(Err(error)) => {
                    return Verdict::not_yet(NAME, error.to_string(), "this queue has no fault: what failed?");
                }
                Ok(Ok(given)) => given,
            };
            // The launch's own 4 µs and a median's noise are within; the smallest mistake, a mean, is 10 % off.
            if (given / us - 1.0).abs() <= 0.04 {
                continue;
            }
            let what = format!("a kernel of {us} µs was measured as {given:.1} µs");
            return Verdict::not_yet(NAME, what, timing_hint(given, us, before_us, queue.launches() - launches));
        }
    }
    Verdict::pass(NAME)
}

fn prepare(queue: &mut Queue, before_us: f64, first: bool) -> std::result::Result<(), String> {
    let mut quiet = || -> Result<()> {
        if !first {
            queue.launch(Work::of_us(1.0))?;
            queue.synchronize()?;
        }
        if before_us > 0.0 {
            queue.launch(Work::of_us(before_us))?;
        }
        Ok(())
    };
    quiet().map_err(|error| error.to_string())
}

/// Which mistake gives such a figure.
fn timing_hint(given: f64, us: f64, before_us: f64, launches: usize) -> &'static str {
    match given {
        g if !g.is_finite() || g <= 0.0 => "return a positive time: end minus start, in µs",
        _ if launches == 0 => "nothing was launched: launch the work, and measure that",
        g if g < 5.0 || (g < 0.5 * us && us > 10.0) => {
            "that is the time of the launch: the GPU was still busy when you read the clock. Wait before you read it"
        }
        g if before_us > 0.0 && g > 0.2 * before_us && g > 1.5 * us => {
            "work from before was still in the queue and was counted too: wait before you start the clock"
        }
        g if g > us + 800.0 || (launches > 1 && g > us * 1.3) => {
            "the first launch loads the kernel's code, and that was counted: launch once before you measure"
        }
        _ if launches < 8 => "one run in ten takes twice as long: take more samples (say 21) and return their median",
        _ => "nearly: one run in ten takes twice as long, and a mean counts it in. Return the median of the samples",
    }
}

/// Checks a function that launches all the work, in order, and gives the index of the launch that fails on the GPU,
/// or `None`.
pub fn find_fault(answer: fn(&mut Queue, &[Work]) -> Option<usize>) -> Verdict {
    const NAME: &str = "find_fault";
    let work = vec![Work::of_us(80.0); 12];
    for fault in [Some(5), Some(0), Some(11), None] {
        let mut queue = Queue::with_seed(7);
        if let Some(at) = fault {
            queue = queue.with_fault_at(at);
        }
        let given = match run(|| answer(&mut queue, &work)) {
            Err(panic) => return Verdict::not_yet(NAME, panic, PANIC_HINT),
            Ok(given) => given,
        };
        if given == fault {
            continue;
        }
        let what = match fault {
            Some(at) => format!("launch {at} fails, and your answer is {given:?}"),
            None => format!("no launch fails, and your answer is {given:?}"),
        };
        let hint = match (given, fault) {
            (Some(given), Some(at)) if given > at => {
                "the error came out of a later call than the launch that caused it: wait after each launch"
            }
            (None, Some(_)) => {
                "an error that arrives after the last launch shows itself only when you wait for the queue"
            }
            _ => "count from 0, and answer `None` when everything ended well",
        };
        return Verdict::not_yet(NAME, what, hint);
    }
    Verdict::pass(NAME)
}

/// A curve: (size, ms) in rising order of size.
pub type Curve = [(usize, f64)];

/// Checks a function that gives the smallest measured size from which on the GPU is faster, there and at every larger
/// size, or `None`. Both lists hold (size, ms) of the same sizes, in rising order.
pub fn crossover(answer: fn(&Curve, &Curve) -> Option<usize>) -> Verdict {
    const NAME: &str = "crossover";
    const SIZES: [usize; 5] = [64, 128, 256, 512, 1024];
    type Case = ([f64; 5], [f64; 5], Option<usize>, &'static str);
    let cases: [Case; 5] = [
        (
            [0.01, 0.08, 0.6, 5.0, 40.0],
            [0.2, 0.2, 0.2, 0.3, 0.5],
            Some(256),
            "the first size where the GPU's time is below",
        ),
        (
            [0.3, 0.08, 0.6, 5.0, 40.0],
            [0.2, 0.2, 0.2, 0.3, 0.5],
            Some(256),
            "a lucky win at one small size is no crossover: the GPU must stay ahead from there on. Look from the large end",
        ),
        ([0.1; 5], [0.2, 0.2, 0.2, 0.2, 0.2], None, "the GPU never wins here: answer `None`"),
        ([0.5; 5], [0.2; 5], Some(64), "the GPU wins everywhere, so the answer is the smallest size"),
        (
            [0.1, 0.2, 0.4, 0.8, 1.0],
            [0.2, 0.1, 0.2, 0.4, 1.0],
            None,
            "equal is not faster, and the largest size counts too",
        ),
    ];
    let pairs = |times: [f64; 5]| SIZES.into_iter().zip(times).collect::<Vec<_>>();
    for (cpu, gpu, expected, hint) in cases {
        match run(|| answer(&pairs(cpu), &pairs(gpu))) {
            Err(panic) => return Verdict::not_yet(NAME, panic, PANIC_HINT),
            Ok(given) if given != expected => {
                let what = format!(
                    "sizes {SIZES:?}\nCPU {cpu:?} ms\nGPU {gpu:?} ms\nyour answer is {given:?}, and it should be {expected:?}"
                );
                return Verdict::not_yet(NAME, what, hint);
            }
            Ok(_) => {}
        }
    }
    match run(|| answer(&[], &[])) {
        Ok(None) => Verdict::pass(NAME),
        Ok(given) => Verdict::not_yet(NAME, format!("without any size your answer is {given:?}"), "answer `None`"),
        Err(panic) => Verdict::not_yet(NAME, format!("without any size, {panic}"), PANIC_HINT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(mut samples: Vec<f64>) -> f64 {
        samples.sort_by(f64::total_cmp);
        samples[samples.len() / 2]
    }

    fn fair(queue: &mut Queue, work: Work) -> Result<f64> {
        queue.launch(work)?;
        queue.synchronize()?;
        let mut samples = Vec::new();
        for _ in 0..21 {
            let start = queue.event();
            queue.launch(work)?;
            samples.push(queue.event().us_since(&start));
        }
        Ok(median(samples))
    }

    fn batched(queue: &mut Queue, work: Work) -> Result<f64> {
        queue.launch(work)?;
        queue.synchronize()?;
        let mut samples = Vec::new();
        for _ in 0..21 {
            queue.synchronize()?;
            let start = queue.now_us();
            queue.launch(work)?;
            queue.synchronize()?;
            samples.push(queue.now_us() - start);
        }
        Ok(median(samples))
    }

    #[test]
    fn fair_timing_passes() {
        assert!(time_kernel(fair).passed(), "{}", time_kernel(fair).text());
        assert!(time_kernel(batched).passed(), "{}", time_kernel(batched).text());
    }

    #[test]
    fn each_unfair_timing_is_named() {
        type Answer = fn(&mut Queue, Work) -> Result<f64>;
        let wrong: [(Answer, &str); 5] = [
            (
                |queue, work| {
                    let start = queue.now_us();
                    queue.launch(work)?;
                    Ok(queue.now_us() - start)
                },
                "Wait before you read it",
            ),
            (
                |queue, work| {
                    let start = queue.now_us();
                    queue.launch(work)?;
                    queue.synchronize()?;
                    Ok(queue.now_us() - start)
                },
                "more samples",
            ),
            (
                |queue, work| {
                    queue.launch(work)?;
                    let start = queue.now_us();
                    queue.launch(work)?;
                    queue.synchronize()?;
                    Ok(queue.now_us() - start)
                },
                "",
            ),
            (|_, _| Ok(0.0), "positive"),
            (|_, _| Ok(250.0), "nothing was launched"),
        ];
        for (answer, text) in wrong {
            let said = time_kernel(answer).text();
            assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
        }
    }

    #[test]
    fn finding_the_fault_right_and_wrong() {
        let blocking = |queue: &mut Queue, work: &[Work]| {
            work.iter().position(|&work| queue.launch(work).and_then(|()| queue.synchronize()).is_err())
        };
        assert!(find_fault(blocking).passed(), "{}", find_fault(blocking).text());
        type Answer = fn(&mut Queue, &[Work]) -> Option<usize>;
        let wrong: [(Answer, &str); 3] = [
            (|queue, work| work.iter().position(|&work| queue.launch(work).is_err()), "NOT YET"),
            (
                |queue, work| {
                    for &work in work {
                        queue.launch(work).ok()?;
                    }
                    queue.synchronize().err().map(|_| work.len() - 1)
                },
                "",
            ),
            (|_, _| Some(5), "no launch fails"),
        ];
        for (answer, text) in wrong {
            let said = find_fault(answer).text();
            assert!(said.starts_with("NOT YET") && (said.contains(text) || said.contains("your answer")), "{said}");
        }
    }

    #[test]
    fn the_crossover_right_and_wrong() {
        let right = |cpu: &Curve, gpu: &Curve| {
            let ahead = cpu.iter().zip(gpu).rev().take_while(|(cpu, gpu)| gpu.1 < cpu.1);
            ahead.last().map(|(cpu, _)| cpu.0)
        };
        assert!(crossover(right).passed(), "{}", crossover(right).text());
        let first =
            |cpu: &Curve, gpu: &Curve| cpu.iter().zip(gpu).find(|(cpu, gpu)| gpu.1 < cpu.1).map(|(cpu, _)| cpu.0);
        assert!(crossover(first).text().contains("lucky win"));
        assert!(crossover(|_, _| None).text().contains("should be Some(256)"));
        assert!(crossover(|cpu, _| Some(cpu[0].0)).text().starts_with("NOT YET"));
    }
}
