//! What ranks sent each other: messages, and the calls that they belong to.

use std::ops::Range;

/// One message, as it was sent and received.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The call that it belongs to, such as `all_reduce`, or `send`.
    pub call: &'static str,
    /// How many calls of its group came before that, which tells one all-reduce from the next.
    pub number: usize,
    /// The step of a world in which each message takes one step, and a rank sends one and receives one at a time; from 0.
    pub step: usize,
    /// The sender, by its number in the world.
    pub from: usize,
    /// The receiver, by its number in the world.
    pub to: usize,
    /// Which elements of the buffer it carries.
    pub chunk: Range<usize>,
    /// Its size.
    pub bytes: usize,
    /// Whether the receiver adds it to its own numbers, or (false) puts it in their place.
    pub reduces: bool,
    /// When it was sent, in µs since the world began.
    pub sent_us: f64,
    /// When the receiver had it; NaN where it never did.
    pub received_us: f64,
}

/// One call of one rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The rank, by its number in the world.
    pub rank: usize,
    /// The group: 0 is the world.
    pub group: u64,
    /// How many calls of this group the rank had made before.
    pub number: usize,
    /// `all_reduce`, `send` …
    pub name: &'static str,
    /// When it began, in µs since the world began.
    pub entered_us: f64,
    /// When it returned; NaN where it did not.
    pub left_us: f64,
}

/// What a rank did with messages, in its own order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Send(usize),
    Receive(usize),
    /// Both at the same time.
    Exchange {
        sent: usize,
        received: usize,
    },
    /// Sent, without waiting.
    Post(usize),
    /// Computed.
    Compute(usize),
}

/// What a rank said that it computes.
#[derive(Debug, Clone, PartialEq)]
pub struct Computed {
    /// The rank, by its number in the world.
    pub rank: usize,
    /// What.
    pub label: String,
    /// How long it would take, in µs: stated, not measured.
    pub us: f64,
}

/// All messages and calls of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Log {
    /// In the order of steps, then of senders.
    pub messages: Vec<Message>,
    /// In the order in which they began.
    pub calls: Vec<Call>,
    /// In the order in which it was said.
    pub computed: Vec<Computed>,
    /// What each rank did, by the messages' places in the list.
    pub(crate) events: Vec<Vec<Event>>,
}

/// A rank that others wait for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Straggler {
    /// Its number in the world.
    pub rank: usize,
    /// Of so many collectives that all ranks made …
    pub collectives: usize,
    /// … it came to so many as the last one.
    pub last: usize,
    /// How long the others stood waiting for it there, in ms, on average.
    pub behind_ms: f64,
}

impl Log {
    /// Gives each message its step, and puts messages in that order.
    pub(crate) fn in_steps(mut self, starts: &[f64]) -> Log {
        for (message, start) in self.messages.iter_mut().zip(starts) {
            message.step = start.round() as usize;
        }
        let mut order: Vec<usize> = (0..self.messages.len()).collect();
        order.sort_by_key(|at| (self.messages[*at].step, self.messages[*at].from, *at));
        let mut place = vec![0; order.len()];
        order.iter().enumerate().for_each(|(new, old)| place[*old] = new);
        self.messages = order.iter().map(|old| self.messages[*old].clone()).collect();
        for event in self.events.iter_mut().flatten() {
            *event = match *event {
                Event::Send(at) => Event::Send(place[at]),
                Event::Post(at) => Event::Post(place[at]),
                Event::Compute(at) => Event::Compute(at),
                Event::Receive(at) => Event::Receive(place[at]),
                Event::Exchange { sent, received } => Event::Exchange { sent: place[sent], received: place[received] },
            };
        }
        self
    }

    /// How many ranks the world had.
    pub fn ranks(&self) -> usize {
        self.events.len()
    }

    /// How many steps there were.
    pub fn steps(&self) -> usize {
        self.messages.iter().map(|message| message.step + 1).max().unwrap_or(0)
    }

    /// How many messages that rank sent.
    pub fn messages_sent(&self, rank: usize) -> usize {
        self.messages.iter().filter(|message| message.from == rank).count()
    }

    /// How many bytes that rank sent.
    pub fn bytes_sent(&self, rank: usize) -> usize {
        self.messages.iter().filter(|message| message.from == rank).map(|message| message.bytes).sum()
    }

    /// How many bytes that rank received.
    pub fn bytes_received(&self, rank: usize) -> usize {
        self.messages.iter().filter(|message| message.to == rank).map(|message| message.bytes).sum()
    }

    /// How many bytes that rank sent in calls of this name, such as `all_gather`.
    pub fn bytes_sent_in(&self, rank: usize, call: &str) -> usize {
        self.messages.iter().filter(|one| one.from == rank && one.call == call).map(|one| one.bytes).sum()
    }

    /// The rank that comes last to most of the collectives of the world, where one does to more than half of them.
    pub fn straggler(&self) -> Option<Straggler> {
        let (ranks, mut last, mut behind) = (self.ranks(), vec![0; self.ranks()], vec![0.0; self.ranks()]);
        let together = |call: &&Call| call.group == 0 && !matches!(call.name, "send" | "recv" | "send_recv");
        let calls: Vec<&Call> = self.calls.iter().filter(together).collect();
        let most = calls.iter().map(|call| call.number + 1).max().unwrap_or(0);
        let mut collectives = 0;
        for number in 0..most {
            let mut entered: Vec<(f64, usize)> =
                calls.iter().filter(|call| call.number == number).map(|call| (call.entered_us, call.rank)).collect();
            if entered.len() < ranks || ranks < 2 {
                continue;
            }
            collectives += 1;
            entered.sort_by(|a, b| a.0.total_cmp(&b.0));
            let (at, rank) = entered[ranks - 1];
            last[rank] += 1;
            behind[rank] += (at - entered[ranks - 2].0) / 1e3;
        }
        let rank = (0..ranks).max_by_key(|rank| last[*rank])?;
        let behind_ms = behind[rank] / last[rank].max(1) as f64;
        (2 * last[rank] > collectives).then_some(Straggler { rank, collectives, last: last[rank], behind_ms })
    }
}
