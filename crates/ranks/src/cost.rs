//! The time that messages take on links of a stated latency and bandwidth: the α–β model.
//!
//! A message of b bytes takes α + b·β: α is the latency, β the inverse of the bandwidth. Each rank sends one message and receives
//! one at a time, both at once if it likes; between two ranks lies a link that no other pair shares. Computing takes no time, unless a
//! rank states one ([`Rank::compute`](crate::Rank::compute)). Whatever is told by this module is predicted, not measured.

use crate::algorithms::Algorithm;
use crate::log::{Event, Log};
use gpulab_measure::measurement::Span;

/// What one message costs between any two ranks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// α: what a message takes however short it is, in µs.
    pub latency_us: f64,
    /// 1/β, in GB/s (10⁹ bytes a second), in each direction.
    pub gb_per_s: f64,
}

/// When each message would be in flight.
#[derive(Debug, Clone, PartialEq)]
pub struct Predicted {
    /// When each message of the log begins, in µs.
    pub starts_us: Vec<f64>,
    /// When each has arrived, in µs.
    pub ends_us: Vec<f64>,
    /// From when to when each entry of the log's `computed` is computed, in µs.
    pub computing_us: Vec<(f64, f64)>,
}

impl Predicted {
    /// When the last message has arrived and all is computed, in µs.
    pub fn total_us(&self) -> f64 {
        let computed = self.computing_us.iter().map(|span| span.1);
        self.ends_us.iter().copied().chain(computed).fold(0.0, f64::max)
    }

    /// One rank's timeline, for `plot::timeline`: a lane of what it computes, and one of its messages, those of a call together.
    ///
    /// # Examples
    /// ```
    /// use gpulab_ranks::{Collectives, Link, World};
    /// let run = World::new(2).run(|rank| {
    ///     let (own, mut all) = ([1.0_f32; 1000], [0.0; 2000]);
    ///     let gathering = rank.start_all_gather(&own)?; // on its way while this rank computes
    ///     rank.compute("layer 0", 30.0);
    ///     gathering.wait(&mut all)
    /// })?;
    /// let predicted = Link { latency_us: 6.0, gb_per_s: 1.0 }.replay(&run.log);
    /// assert_eq!((predicted.total_us(), predicted.timeline(&run.log, 0).len()), (30.0, 2));
    /// # Ok::<(), gpulab_measure::Error>(())
    /// ```
    pub fn timeline(&self, log: &Log, rank: usize) -> Vec<Span> {
        let mut calls: Vec<(&str, usize, f64, f64)> = Vec::new();
        for (at, message) in log.messages.iter().enumerate().filter(|(_, one)| one.from == rank || one.to == rank) {
            let (start, end) = (self.starts_us[at], self.ends_us[at]);
            match calls.iter_mut().find(|call| (call.0, call.1) == (message.call, message.number)) {
                Some(call) => (call.2, call.3) = (call.2.min(start), call.3.max(end)),
                None => calls.push((message.call, message.number, start, end)),
            }
        }
        let own = log.computed.iter().zip(&self.computing_us).filter(|(one, _)| one.rank == rank);
        let mut spans: Vec<Span> =
            own.map(|(one, (start, end))| Span::new("compute", &one.label, start / 1e3, end / 1e3)).collect();
        spans.extend(calls.iter().map(|(name, _, start, end)| Span::new("network", name, start / 1e3, end / 1e3)));
        spans
    }
}

impl Link {
    /// Every message takes one µs: start times are steps.
    pub(crate) const UNIT: Link = Link { latency_us: 1.0, gb_per_s: f64::INFINITY };

    /// What a message of so many bytes takes, in µs.
    ///
    /// # Examples
    /// ```
    /// let link = gpulab_ranks::Link { latency_us: 5.0, gb_per_s: 100.0 };
    /// assert_eq!(link.message_us(1_000_000), 15.0);
    /// ```
    pub fn message_us(self, bytes: usize) -> f64 {
        self.latency_us + bytes as f64 / (self.gb_per_s * 1e3)
    }

    /// Replays recorded messages on such links: each rank does what it did, in its own order, as soon as it can. What it said that
    /// it computes takes the stated time; meanwhile, messages of asynchronous calls are in flight.
    pub fn replay(self, log: &Log) -> Predicted {
        self.replay_with(log, 1.0)
    }

    /// [`Link::replay`], with so many times the stated time for computing.
    pub(crate) fn replay_with(self, log: &Log, computing: f64) -> Predicted {
        let (ranks, messages) = (log.events.len(), log.messages.len());
        let (mut next, mut ready, mut inbox) = (vec![0; ranks], vec![0.0_f64; ranks], vec![0.0_f64; ranks]);
        let mut outbox = vec![0.0_f64; ranks];
        let mut found = Predicted {
            starts_us: vec![0.0; messages],
            ends_us: vec![f64::NAN; messages],
            computing_us: vec![(0.0, 0.0); log.computed.len()],
        };
        // Of an exchange the message goes first; its rank is then busy sending until then.
        let mut half: Vec<Option<f64>> = vec![None; ranks];
        loop {
            // When each rank's next event could begin. Whoever is first goes first, so that a busy receiver is served in the order
            // of time; nothing that comes later can begin before it.
            let sending = |rank: usize, at: usize| ready[rank].max(outbox[rank]).max(inbox[log.messages[at].to]);
            let arrived = |at: usize| Some(found.ends_us[at]).filter(|end| !end.is_nan());
            let begins = |rank: usize| match *log.events[rank].get(next[rank])? {
                Event::Send(at) | Event::Post(at) => Some(sending(rank, at)),
                Event::Receive(at) => arrived(at).map(|end| end.max(ready[rank])),
                Event::Exchange { sent, .. } if half[rank].is_none() => Some(sending(rank, sent)),
                Event::Exchange { received, .. } => arrived(received).map(|end| end.max(ready[rank])),
                Event::Compute(_) => Some(ready[rank]),
            };
            let able = (0..ranks).filter_map(|rank| Some((rank, begins(rank)?)));
            let Some((rank, start)) = able.min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
            let mut send = |at: usize| {
                let message = &log.messages[at];
                let end = start + self.message_us(message.bytes);
                (inbox[message.to], outbox[rank]) = (end, end);
                (found.starts_us[at], found.ends_us[at]) = (start, end);
                end
            };
            match log.events[rank][next[rank]] {
                Event::Send(at) => ready[rank] = send(at),
                Event::Post(at) => drop(send(at)),
                Event::Receive(_) => ready[rank] = start,
                Event::Exchange { sent, .. } if half[rank].is_none() => {
                    half[rank] = Some(send(sent));
                    continue;
                }
                Event::Exchange { .. } => ready[rank] = half[rank].take().unwrap_or_default().max(start),
                Event::Compute(at) => {
                    ready[rank] = start + computing * log.computed[at].us;
                    found.computing_us[at] = (start, ready[rank]);
                }
            }
            next[rank] += 1;
        }
        // What was sent and never received.
        for (at, end) in found.ends_us.iter_mut().enumerate() {
            if end.is_nan() {
                *end = found.starts_us[at];
            }
        }
        found
    }

    /// What an all-reduce of so many bytes takes on so many ranks, in µs: the textbook's formula, for parts of equal size.
    ///
    /// # Examples
    /// ```
    /// use gpulab_ranks::{Algorithm, Link};
    /// let link = Link { latency_us: 5.0, gb_per_s: 100.0 };
    /// // 6 steps of a quarter; 4 steps of all.
    /// assert_eq!(link.all_reduce_us(Algorithm::Ring, 4, 4_000_000), 6.0 * 15.0);
    /// assert_eq!(link.all_reduce_us(Algorithm::Tree, 4, 4_000_000), 4.0 * 45.0);
    /// ```
    pub fn all_reduce_us(self, algorithm: Algorithm, ranks: usize, bytes: usize) -> f64 {
        let n = ranks as f64;
        let whole = self.message_us(bytes);
        if ranks < 2 {
            return 0.0;
        }
        match algorithm {
            Algorithm::Ring | Algorithm::Direct => {
                2.0 * (n - 1.0) * (self.latency_us + bytes as f64 / n / (self.gb_per_s * 1e3))
            }
            Algorithm::Tree => 2.0 * n.log2().ceil() * whole,
            Algorithm::RecursiveDoubling => {
                let extra = if ranks.is_power_of_two() { 0.0 } else { 2.0 };
                (n.log2().floor() + extra) * whole
            }
        }
    }
}

/// What nccl-tests multiplies the *algorithm bandwidth* (bytes ÷ time) by to get the *bus bandwidth*, which can be compared
/// with a link's rate whatever the number of ranks: 2 (n − 1)/n for `all_reduce`, (n − 1)/n for `reduce_scatter` and `all_gather`
/// (where the bytes are those of all ranks together), 1 for the rest.
///
/// # Examples
/// ```
/// // 1 GB on 4 ranks in 10 ms.
/// assert_eq!(gpulab_ranks::bus_factor("all_reduce", 4) * 1.0 / 0.010, 150.0);
/// ```
pub fn bus_factor(collective: &str, ranks: usize) -> f64 {
    let share = (ranks as f64 - 1.0) / ranks as f64;
    match collective {
        "all_reduce" => 2.0 * share,
        "reduce_scatter" | "all_gather" => share,
        _ => 1.0,
    }
}
