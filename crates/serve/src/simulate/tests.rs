use super::*;
use crate::{Batching, Lengths, Limits, Load, RooflineCost, StepCost};

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
fn clients_in_a_closed_loop_wait_for_their_answers() {
    let requests = Load { requests: 30, ..load(1.0) }.arrivals();
    let run = simulate_clients(&mut scheduler(Batching::Continuous, 1024), &requests, 3, COST);
    assert_eq!(run.served.len(), 30);
    assert!(run.steps.iter().all(|step| step.pieces.len() + step.waiting <= 3));
    // But for the last ones, each answer is followed by a request at once.
    let starts: Vec<f64> = run.served.iter().map(|one| one.arrived_s).collect();
    let mut ends: Vec<f64> = run
        .served
        .iter()
        .map(|one| run.steps.iter().find(|step| step.end_s >= one.finished_s).unwrap().end_s)
        .collect();
    ends.sort_by(f64::total_cmp);
    assert_eq!(starts[..3], [0.0; 3]);
    assert!(starts[3..].iter().zip(&ends).all(|(start, end)| start >= end), "{starts:?} {ends:?}");
}

#[test]
fn spread_prompts_delay_no_first_token_at_half_load_and_hold_up_no_answer_at_full_load() {
    let cost =
        RooflineCost { weights_s: 1e-3, large_s: 0.7e-3, row_s: 3e-6, cached_s: 8e-9, answer_s: 1e-6, block_rows: 1 };
    let limits = Limits { sequences: 32, step_tokens: 2048, queue: 4096, ..Limits::default() };
    let of = |chunk| Scheduler::new(limits, 8192, 16).unwrap().with_chunked_prefill(chunk);
    let load = Load { prompt: Lengths::Uniform(100, 900), answer: Lengths::Uniform(32, 128), ..Load::default() };
    let (mut halves, mut fulls) = (Vec::new(), Vec::new());
    for chunk in [2048, 256] {
        let requests = Load { requests: 640, ..load }.arrivals();
        fulls.push(simulate_clients(&mut of(chunk), &requests, 32, cost));
        let rate = fulls[0].throughput() / 80.0 / 2.0;
        halves.push(simulate(&mut of(chunk), &Load { rate, requests: 2000, ..load }.arrivals(), cost));
    }
    let p99 = |run: &Simulation| run.quantile(0.99, RequestTimes::first_token_s);
    assert!(p99(&halves[1]) <= 1.01 * p99(&halves[0]), "{} {}", p99(&halves[0]), p99(&halves[1]));
    // Steps that answers took part in, and that took longer than two of the usual ones.
    let long = |run: &Simulation| {
        run.steps.iter().filter(|step| step.pieces.len() > 24 && step.end_s - step.begin_s > 3e-3).count()
    };
    assert!(long(&fulls[0]) > 20 && long(&fulls[1]) < long(&fulls[0]) / 10, "{} {}", long(&fulls[0]), long(&fulls[1]));
    assert!(fulls[1].throughput() > fulls[0].throughput(), "{} {}", fulls[0].throughput(), fulls[1].throughput());
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
    // Counted at the steps: a step counts for as long as it takes.
    let inside = |step: &StepRecord| (step.pieces.len() + step.waiting) as f64 * (step.end_s - step.begin_s);
    let counted = run.steps.iter().map(inside).sum::<f64>() / run.seconds();
    assert!((counted / (rate * latency) - 1.0).abs() < 0.1, "{counted} {rate} {latency}");
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
