//! The time that messages take on links of a stated latency and bandwidth: the α–β model.
//!
//! A message of b bytes takes α + b·β: α is the latency, β the inverse of the bandwidth. Each rank sends one message and receives
//! one at a time, both at once if it likes; between two ranks lies a link that no other pair shares. Computing takes no time. Whatever
//! is told by this module is predicted, not measured.

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
}

impl Predicted {
    /// When the last message has arrived, in µs.
    pub fn total_us(&self) -> f64 {
        self.ends_us.iter().copied().fold(0.0, f64::max)
    }

    /// A lane for each sender, for `plot::timeline`.
    pub fn spans(&self, log: &Log) -> Vec<Span> {
        let span = |(at, message): (usize, &crate::log::Message)| {
            let (lane, label) = (format!("rank {}", message.from), format!("to rank {}", message.to));
            Span::new(&lane, &label, self.starts_us[at] / 1e3, self.ends_us[at] / 1e3)
        };
        log.messages.iter().enumerate().map(span).collect()
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

    /// Replays recorded messages on such links: each rank does what it did, in its own order, as soon as it can.
    pub fn replay(self, log: &Log) -> Predicted {
        let (ranks, messages) = (log.events.len(), log.messages.len());
        let (mut next, mut ready, mut inbox) = (vec![0; ranks], vec![0.0_f64; ranks], vec![0.0_f64; ranks]);
        let mut found = Predicted { starts_us: vec![0.0; messages], ends_us: vec![f64::NAN; messages] };
        // Of an exchange the message goes first; its rank is then busy sending until then.
        let mut half: Vec<Option<f64>> = vec![None; ranks];
        loop {
            // Whoever is ready first goes first, so that a busy receiver is served in the order of time.
            let able = |rank: &usize| match log.events[*rank].get(next[*rank]) {
                None => false,
                Some(Event::Send(_)) => true,
                Some(Event::Receive(at)) => !found.ends_us[*at].is_nan(),
                Some(Event::Exchange { received, .. }) => half[*rank].is_none() || !found.ends_us[*received].is_nan(),
            };
            let Some(rank) = (0..ranks).filter(able).min_by(|a, b| ready[*a].total_cmp(&ready[*b])) else { break };
            let mut send = |at: usize, ready: f64| {
                let message = &log.messages[at];
                let start = ready.max(inbox[message.to]);
                let end = start + self.message_us(message.bytes);
                inbox[message.to] = end;
                (found.starts_us[at], found.ends_us[at]) = (start, end);
                end
            };
            match log.events[rank][next[rank]] {
                Event::Send(at) => ready[rank] = send(at, ready[rank]),
                Event::Receive(at) => ready[rank] = ready[rank].max(found.ends_us[at]),
                Event::Exchange { sent, .. } if half[rank].is_none() => {
                    half[rank] = Some(send(sent, ready[rank]));
                    continue;
                }
                Event::Exchange { received, .. } => {
                    let sent = half[rank].take().unwrap_or_default();
                    ready[rank] = sent.max(found.ends_us[received]);
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
            Algorithm::Ring => 2.0 * (n - 1.0) * (self.latency_us + bytes as f64 / n / (self.gb_per_s * 1e3)),
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
