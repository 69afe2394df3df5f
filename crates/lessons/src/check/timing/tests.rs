//! Right answers pass, and each wrong one is told what is wrong with it.

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

/// Warmed up, each call waited for; the samples in rising order.
fn waited(queue: &mut Queue, work: Work, count: usize) -> Result<Vec<f64>> {
    queue.launch(work)?;
    queue.synchronize()?;
    let mut samples = Vec::new();
    for _ in 0..count {
        let start = queue.now_us();
        queue.launch(work)?;
        queue.synchronize()?;
        samples.push(queue.now_us() - start);
    }
    samples.sort_by(f64::total_cmp);
    Ok(samples)
}

fn batched(queue: &mut Queue, work: Work) -> Result<f64> {
    Ok(waited(queue, work, 21)?[10])
}

#[test]
fn fair_timing_passes() {
    assert!(time_kernel(fair).passed(), "{}", time_kernel(fair).text());
    assert!(time_kernel(batched).passed(), "{}", time_kernel(batched).text());
}

/// 21 waits, no warm-up, whatever is in the queue: the total.
fn total(queue: &mut Queue, work: Work) -> Result<f64> {
    let start = queue.now_us();
    for _ in 0..21 {
        queue.launch(work)?;
        queue.synchronize()?;
    }
    Ok(queue.now_us() - start)
}

fn waits_once(queue: &mut Queue, work: Work) -> Result<f64> {
    let start = queue.now_us();
    queue.launch(work)?;
    queue.synchronize()?;
    Ok(queue.now_us() - start)
}

#[test]
fn each_unfair_timing_is_named() {
    type Answer = fn(&mut Queue, Work) -> Result<f64>;
    let wrong: [(Answer, &str); 12] = [
        (
            |queue, work| {
                let start = queue.now_us();
                queue.launch(work)?;
                Ok(queue.now_us() - start)
            },
            "Wait before you read it",
        ),
        (waits_once, "more samples"),
        (
            |queue, work| {
                waits_once(queue, work)?;
                waits_once(queue, work)
            },
            "more samples",
        ),
        (total, "the time of one"),
        (|queue, work| Ok(total(queue, work)? / 21.0), "the median"),
        (|queue, work| Ok(fair(queue, work)? / 1e3), "milliseconds"),
        (|queue, work| Ok(fair(queue, work)? / 1e6), "seconds"),
        (|queue, work| Ok(waited(queue, work, 3)?[1]), "more samples"),
        (|queue, work| Ok(waited(queue, work, 21)?[20]), "disturbed runs"),
        (
            |queue, _| loop {
                queue.synchronize()?
            },
            "let the loop end",
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
fn the_hint_names_the_cold_start_and_the_work_before() {
    let taken =
        |given, before_us, first, launches| Taken { given, us: 400.0, before_us, first, launches }.hint().to_string();
    for (hint, text) in [
        (taken(60_402.0, 60_000.0, false, 1), "work from before"),
        (taken(3_300.0, 60_000.0, false, 21), "work from before"),
        (taken(1_304.0, 0.0, true, 1), "the first launch"),
        (taken(490.0, 0.0, true, 21), "the first launch"),
        (taken(440.0, 0.0, false, 21), "a mean counts it in"),
        (taken(f64::NAN, 0.0, false, 1), "positive"),
    ] {
        assert!(hint.contains(text), "{hint}");
    }
}

#[test]
fn finding_the_fault_right_and_wrong() {
    let blocking = |queue: &mut Queue, work: &[Work]| {
        work.iter().position(|&work| queue.launch(work).and_then(|()| queue.synchronize()).is_err())
    };
    assert!(find_fault(blocking).passed(), "{}", find_fault(blocking).text());
    type Answer = fn(&mut Queue, &[Work]) -> Option<usize>;
    let wrong: [(Answer, &str); 5] = [
        (|queue, work| work.iter().position(|&work| queue.launch(work).is_err()), "of an earlier launch"),
        (
            |queue, work| {
                for &work in work {
                    let _ = queue.launch(work);
                }
                queue.synchronize().err().map(|_| work.len() - 1)
            },
            "of an earlier launch",
        ),
        (
            |queue, work| {
                let blocking = |&work| queue.launch(work).and_then(|()| queue.synchronize()).is_err();
                work.iter().position(blocking).map(|at| at + 1)
            },
            "one too many",
        ),
        (
            |queue, work| {
                work.iter().for_each(|&work| drop(queue.launch(work)));
                Some(5)
            },
            "launch 0 fails",
        ),
        (|_, _| Some(5), "nothing was launched"),
    ];
    for (answer, text) in wrong {
        let said = find_fault(answer).text();
        assert!(said.starts_with("NOT YET") && said.contains(text), "{said}");
    }
}

#[test]
fn the_crossover_right_and_wrong() {
    let right = |cpu: &Curve, gpu: &Curve| {
        let ahead = cpu.iter().zip(gpu).rev().take_while(|(cpu, gpu)| gpu.1 < cpu.1);
        ahead.last().map(|(cpu, _)| cpu.0)
    };
    assert!(crossover(right).passed(), "{}", crossover(right).text());
    let first = |cpu: &Curve, gpu: &Curve| cpu.iter().zip(gpu).find(|(cpu, gpu)| gpu.1 < cpu.1).map(|(cpu, _)| cpu.0);
    assert!(crossover(first).text().contains("lucky win"));
    assert!(crossover(|_, _| None).text().contains("should be Some(256)"));
    assert!(crossover(|cpu, _| Some(cpu[0].0)).text().starts_with("NOT YET"));
    let place = |cpu: &Curve, gpu: &Curve| cpu.iter().zip(gpu).position(|(cpu, gpu)| gpu.1 < cpu.1);
    assert!(crossover(place).text().contains("a place in the list"));
    let outside = crossover(|cpu, _| Some(cpu[cpu.len()].0)).text();
    assert!(outside.contains("sizes [64") && outside.contains("index out of bounds"), "{outside}");
}
