use super::*;
use crate::{Batching, Lengths, Limits, Load};

const COST: StepCost = StepCost { step_s: 10e-3, token_s: 50e-6, cached_s: 0.1e-6 };

fn scheduler(batching: Batching, blocks: usize) -> Scheduler {
    Scheduler::new(Limits { sequences: 8, queue: 1000, batching, ..Limits::default() }, blocks, 16).unwrap()
}

fn load(rate: f64) -> Load {
    let (prompt, answer) = (Lengths::Uniform(20, 200), Lengths::Exponential(40, 400));
    Load { rate, requests: 300, prompt, answer, ..Load::default() }
}

#[test]
fn one_client_alone_waits_for_nobody() {
    let load = Load { rate: 0.1, requests: 20, ..Load::default() };
    let run = simulate(&mut scheduler(Batching::Continuous, 1024), &load.arrivals(), COST);
    for one in &run.served {
        assert!((one.first_token_s() - COST.seconds(128, 128)).abs() < 1e-9, "{one:?}");
        assert_eq!(one.answer, 64);
        // The cache grows by a token a step, from 129 to 191.
        assert!((one.token_s() - COST.seconds(1, 160)).abs() < 1e-9, "{}", one.token_s());
    }
}

#[test]
fn continuous_batching_answers_more_than_static_and_waits_less() {
    let arrivals = load(30.0).arrivals();
    let continuous = simulate(&mut scheduler(Batching::Continuous, 1024), &arrivals, COST);
    let fixed = simulate(&mut scheduler(Batching::Static, 1024), &arrivals, COST);
    assert!(continuous.throughput() > 1.5 * fixed.throughput());
    let p99 = |run: &Simulation| run.quantile(0.99, RequestTimes::first_token_s);
    assert!(p99(&continuous) < p99(&fixed));
    assert_eq!(continuous.served.len() + continuous.refused, 300);
}

#[test]
fn p99_grows_with_the_load_and_much_beyond_the_knee() {
    let at = |rate| {
        let run = simulate(&mut scheduler(Batching::Continuous, 1024), &load(rate).arrivals(), COST);
        run.quantile(0.99, RequestTimes::first_token_s)
    };
    let (low, half, beyond) = (at(1.0), at(7.0), at(60.0));
    assert!(low <= half && beyond > 10.0 * half, "{low} {half} {beyond}");
}

#[test]
fn requests_inside_are_rate_times_latency() {
    let run = simulate(&mut scheduler(Batching::Continuous, 1024), &load(5.0).arrivals(), COST);
    let latency = run.served.iter().map(RequestTimes::latency_s).sum::<f64>() / run.served.len() as f64;
    let rate = run.served.len() as f64 / run.seconds();
    assert!((run.mean_inside() - rate * latency).abs() < 1e-9);
    // Counted at the steps, which is another way to the same number: a step counts for as long as it takes.
    let inside = |step: &StepRecord| (step.pieces.len() + step.waiting) as f64 * (step.end_s - step.begin_s);
    let counted = run.steps.iter().map(inside).sum::<f64>() / run.seconds();
    assert!((counted / run.mean_inside() - 1.0).abs() < 0.1, "{counted} {}", run.mean_inside());
}

#[test]
fn what_all_prompts_begin_with_is_read_once() {
    let arrivals = Load { prompt: Lengths::Fixed(128), shared: 96, ..load(5.0) }.arrivals();
    let mut scheduler = scheduler(Batching::Continuous, 1024);
    simulate(&mut scheduler, &arrivals, COST);
    let reused = scheduler.counters().reused_tokens as f64 / (300.0 * 96.0);
    assert!(reused > 0.95, "{reused}");
    scheduler.audit().unwrap();
}

#[test]
fn a_small_cache_preempts_and_still_answers_all() {
    let arrivals = load(20.0).arrivals();
    let mut small = scheduler(Batching::Continuous, 48);
    let run = simulate(&mut small, &arrivals, COST);
    assert_eq!((run.served.len(), run.refused), (300, 0));
    assert!(small.counters().preemptions > 0);
    assert!(run.steps.iter().all(|step| step.blocks <= 48));
    assert_eq!(small.pool().free(), 48);
}

#[test]
fn a_full_queue_refuses() {
    let limits = Limits { sequences: 1, queue: 2, ..Limits::default() };
    let mut scheduler = Scheduler::new(limits, 64, 16).unwrap();
    let run = simulate(&mut scheduler, &Load { rate: 1000.0, ..Load::default() }.arrivals(), COST);
    assert!(run.refused > 90 && run.served.len() + run.refused == 100, "{}", run.refused);
    assert_eq!(simulate(&mut scheduler, &[], COST), Simulation::default());
}
