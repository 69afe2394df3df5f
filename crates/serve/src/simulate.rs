//! A server without a model: the scheduler decides, a cost model says how long each step takes, and a clock is advanced by it.

use super::cost::StepPrice;
use super::load::Arrival;
use super::scheduler::{Request, RequestId, Scheduler, SequenceEvent};
use std::collections::{HashMap, VecDeque};

/// The token after which the simulated model ends an answer; no prompt of a [`crate::Load`] has it.
const END: u32 = u32::MAX;

/// One request, from its arrival to its last token. Times are in seconds from the beginning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RequestTimes {
    /// Which one.
    pub id: RequestId,
    /// When it came.
    pub arrived_s: f64,
    /// When its first token was there.
    pub first_s: f64,
    /// When its last token was there.
    pub finished_s: f64,
    /// Tokens of the prompt.
    pub prompt: usize,
    /// Tokens of the answer.
    pub answer: usize,
}

impl RequestTimes {
    /// Seconds until the first token (time to first token, TTFT).
    pub fn first_token_s(&self) -> f64 {
        self.first_s - self.arrived_s
    }

    /// Seconds until the last token.
    pub fn latency_s(&self) -> f64 {
        self.finished_s - self.arrived_s
    }

    /// Seconds from one token to the next (time per output token, TPOT); 0 for an answer of one.
    pub fn token_s(&self) -> f64 {
        (self.finished_s - self.first_s) / (self.answer - 1).max(1) as f64
    }
}

/// One step.
#[derive(Debug, Clone, PartialEq)]
pub struct StepRecord {
    /// When it began.
    pub begin_s: f64,
    /// When it ended.
    pub end_s: f64,
    /// Whose tokens it computed, and how many.
    pub pieces: Vec<(RequestId, usize)>,
    /// Requests that waited.
    pub waiting: usize,
    /// Blocks that were held.
    pub blocks: usize,
}

/// What a simulation has given.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Simulation {
    /// The requests that were answered, in the order in which they came.
    pub served: Vec<RequestTimes>,
    /// Requests that the queue had no place for, or that could never be served.
    pub refused: usize,
    /// All steps.
    pub steps: Vec<StepRecord>,
}

impl Simulation {
    /// Seconds from the beginning to the last token.
    pub fn seconds(&self) -> f64 {
        self.steps.last().map_or(0.0, |step| step.end_s)
    }

    /// Tokens of answers in a second.
    pub fn throughput(&self) -> f64 {
        self.served.iter().map(|one| one.answer).sum::<usize>() as f64 / self.seconds().max(f64::MIN_POSITIVE)
    }

    /// The value that the share `q` of all requests does not exceed: `quantile(0.99, RequestTimes::first_token_s)`. 0 where none was served.
    pub fn quantile(&self, q: f64, of: impl Fn(&RequestTimes) -> f64) -> f64 {
        let mut values: Vec<f64> = self.served.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        let rank = (q * values.len() as f64).ceil() as usize;
        values.get(rank.saturating_sub(1).min(values.len().saturating_sub(1))).copied().unwrap_or(0.0)
    }
}

/// Serves the requests, which come by their own clock, whatever the server does; each may be answered with as many tokens as the
/// scheduler's context leaves. Ends when all were answered or refused.
///
/// ```
/// use gpulab_serve::{StepCost, Limits, Load, Scheduler, RequestTimes, simulate};
/// let cost = StepCost { step_s: 10e-3, token_s: 50e-6, cached_s: 0.0 };
/// let mut scheduler = Scheduler::new(Limits::default(), 1024, 16)?;
/// let run = simulate(&mut scheduler, &Load { rate: 4.0, ..Load::default() }.arrivals(), cost);
/// assert_eq!((run.served.len(), run.refused), (100, 0));
/// // Nobody's first token comes before the step that reads the prompt (but for rounding).
/// assert!(run.quantile(0.0, RequestTimes::first_token_s) > 0.999 * cost.seconds(128, 128));
/// # Ok::<(), gpulab_serve::Error>(())
/// ```
pub fn simulate(scheduler: &mut Scheduler, arrivals: &[Arrival], cost: impl StepPrice) -> Simulation {
    run(scheduler, arrivals.iter().map(|arrival| (arrival.at_s, arrival)).collect(), &[], &cost)
}

/// Serves `clients` clients, each of which sends its next request when the one before is answered (a closed loop): all of `requests`, in
/// their order, by whoever is free. Their times are not looked at.
///
/// ```
/// use gpulab_serve::{Limits, Load, Scheduler, StepCost, simulate_clients};
/// let cost = StepCost { step_s: 10e-3, token_s: 0.0, cached_s: 0.0 };
/// let mut scheduler = Scheduler::new(Limits::default(), 1024, 16)?;
/// let run = simulate_clients(&mut scheduler, &Load::default().arrivals(), 2, cost);
/// // 100 requests by 2 clients; of each request a step reads the prompt, 63 give the other tokens, and one says that the answer is over.
/// assert_eq!((run.served.len(), run.steps.len()), (100, 50 * 65));
/// # Ok::<(), gpulab_serve::Error>(())
/// ```
pub fn simulate_clients(
    scheduler: &mut Scheduler,
    requests: &[Arrival],
    clients: usize,
    cost: impl StepPrice,
) -> Simulation {
    let (first, later) = requests.split_at(clients.min(requests.len()));
    run(scheduler, first.iter().map(|request| (0.0, request)).collect(), later, &cost)
}

/// Each of `later` comes when a request is over.
fn run<'a>(
    scheduler: &mut Scheduler,
    mut coming: VecDeque<(f64, &'a Arrival)>,
    later: &'a [Arrival],
    cost: &dyn StepPrice,
) -> Simulation {
    let mut run = Simulation::default();
    let mut inside: HashMap<RequestId, (RequestTimes, usize)> = HashMap::new();
    let (mut now, mut later) = (0.0, later.iter());
    loop {
        while let Some(&(arrived_s, arrival)) = coming.front().filter(|(at_s, _)| *at_s <= now) {
            coming.pop_front();
            let most_new = scheduler.limits().context.saturating_sub(arrival.prompt.len());
            let capacity = scheduler.pool().blocks() * scheduler.pool().block_size();
            let most_new = most_new.min(capacity.saturating_sub(arrival.prompt.len()));
            let Ok(id) = scheduler.submit(Request::new(arrival.prompt.clone(), most_new)) else {
                run.refused += 1;
                coming.extend(later.next().map(|next| (now, next)));
                continue;
            };
            let prompt = arrival.prompt.len();
            let one = RequestTimes { id, arrived_s, first_s: 0.0, finished_s: 0.0, prompt, answer: 0 };
            inside.insert(id, (one, arrival.answer));
        }
        let step = scheduler.plan();
        if step.is_empty() {
            // A request that waits beside an empty batch is let in by the next plan.
            match coming.front() {
                Some((at_s, _)) => now = *at_s,
                None if scheduler.is_idle() => break,
                None => unreachable!("the oldest request always goes on"),
            }
            continue;
        }
        let begin_s = now;
        now += cost.seconds_of(&step);
        run.steps.push(StepRecord {
            begin_s,
            end_s: now,
            pieces: step.pieces.iter().map(|piece| (piece.id, piece.tokens.len())).collect(),
            waiting: scheduler.waiting(),
            blocks: scheduler.pool().blocks() - scheduler.pool().free(),
        });
        // After the last token of its answer, the model says that it is over: the token itself is no part of it.
        let choose = |id| if inside[&id].0.answer >= inside[&id].1 { END } else { 0 };
        let chosen: Vec<u32> = step.pieces.iter().filter(|one| one.samples).map(|one| choose(one.id)).collect();
        for event in scheduler.complete(&step, &chosen, &|token| token == END) {
            match event {
                SequenceEvent::Token(id, _) => {
                    let one = &mut inside.get_mut(&id).expect("it came").0;
                    one.answer += 1;
                    one.finished_s = now;
                    if one.answer == 1 {
                        one.first_s = now;
                    }
                }
                SequenceEvent::Finished(id, _) => {
                    run.served.push(inside.remove(&id).expect("it came").0);
                    coming.extend(later.next().map(|next| (now, next)));
                }
            }
        }
    }
    run.served.sort_by_key(|one| one.id);
    run
}

#[cfg(test)]
mod tests;
