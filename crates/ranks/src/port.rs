//! Messages between threads: what all ranks of a world share, who waits for whom, and what ended them.
//!
//! A rank that has to wait says so first. So the moment in which each rank that is left waits for another one is seen at once,
//! and needs no time limit: that is a deadlock.

use crate::collectives::{CollectiveElement, Op};
use crate::failure::{Failure, FailureCause};
use crate::log::{Call, Computed, Event, Log, Message};
use crate::wire::{Frame, Links};
use gpulab_measure::{Error, Result};
use std::any::Any;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::panic::Location;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a rank is to fail, so that it can be tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Fault {
    /// It vanishes before its message of this number (from 0).
    Dies { rank: usize, message: usize },
    /// It takes so much longer before each collective.
    Slow { rank: usize, by: Duration },
}

/// What a world is told before it runs.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// A rank that has waited so long ends the world.
    pub limit: Duration,
    /// Whether a send returns only when its message has been received.
    pub rendezvous: bool,
    /// Whether messages and calls are recorded.
    pub recorded: bool,
    pub faults: Vec<Fault>,
}

/// The payload of the panic by which a rank vanishes.
pub(crate) struct Vanished;

/// What a rank says of a collective when it enters it: of all ranks it has to be the same.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Signature {
    pub name: &'static str,
    pub dtype: &'static str,
    pub elements: usize,
    pub op: Option<Op>,
    pub root: Option<usize>,
    /// The algorithm, where there is a choice.
    pub by: &'static str,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.name)?;
        if !self.dtype.is_empty() {
            write!(f, " of {} {}", self.elements, self.dtype)?;
        }
        if let Some(op) = self.op {
            write!(f, ", {}", op.name())?;
        }
        if let Some(root) = self.root {
            write!(f, ", from rank {root}")?;
        }
        if !self.by.is_empty() {
            write!(f, ", by {}", self.by)?;
        }
        Ok(())
    }
}

pub(crate) type CallSite = &'static Location<'static>;

/// `src/main.rs:12`: file and line. In a notebook, whose cells are one generated file, the text of the line.
pub(crate) fn line(place: CallSite) -> String {
    let of_cell = std::env::var_os("EVCXR_TMPDIR").and_then(|folder| {
        let text = std::fs::read_to_string(Path::new(&folder).join(place.file())).ok()?;
        text.lines().nth(place.line() as usize - 1).map(|line| format!("`{}`", line.trim()))
    });
    of_cell.unwrap_or_else(|| format!("{}:{}", place.file(), place.line()))
}

/// A group of ranks, by their numbers in the world.
#[derive(Debug)]
pub(crate) struct Group {
    /// 0 is the world.
    pub id: u64,
    pub members: Vec<usize>,
}

struct Packet {
    message: usize,
    dtype: Cow<'static, str>,
    elements: usize,
    data: Data,
    /// The sender's line.
    place: Sender,
    /// The collective that it belongs to, in the words of its sender; empty where ranks are threads, whose calls are compared when
    /// they are entered.
    signature: String,
}

enum Data {
    /// Of a thread of this process: a `Vec` of the element type.
    Here(Box<dyn Any + Send>),
    /// Of another process.
    Bytes(Vec<u8>),
}

/// The line of the sender.
enum Sender {
    Here(CallSite),
    There(String),
}

impl fmt::Display for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Sender::Here(place) => f.write_str(&line(place)),
            Sender::There(line) => f.write_str(line),
        }
    }
}

/// What a rank waits for.
#[derive(Debug, Clone, Copy)]
enum Need {
    /// A message from this rank, in this group.
    From { rank: usize, group: u64, tag: usize },
    /// That this rank receives a message.
    Taken { rank: usize, message: usize },
}

impl Need {
    fn rank(self) -> usize {
        match self {
            Need::From { rank, .. } | Need::Taken { rank, .. } => rank,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Status {
    Running,
    Waiting(Need),
    Ended,
}

struct State {
    /// By group, tag, sender and receiver. Each collective has a tag of its own, and messages between two ranks have 0: so a
    /// collective never takes a message that is meant for a `recv`.
    mail: HashMap<(u64, usize, usize, usize), VecDeque<Packet>>,
    status: Vec<Status>,
    /// What each rank does now, or did last: the call's name and line.
    doing: Vec<Option<(&'static str, CallSite)>>,
    /// Whether it is still in that call.
    inside: Vec<bool>,
    /// Messages that each rank has sent; and all of them together, which numbers the next one.
    sent: Vec<usize>,
    messages: usize,
    /// Messages that nobody has received yet.
    in_flight: HashSet<usize>,
    /// Of each group's nth collective, who came first, and with what.
    entered: HashMap<(u64, usize), (usize, Signature, CallSite)>,
    failure: Option<(Failure, Instant)>,
    log: Log,
}

/// What all ranks of a world share.
pub(crate) struct Shared {
    state: Mutex<State>,
    /// One for each rank: something that it may wait for has changed.
    wake: Vec<Condvar>,
    begin: Instant,
    pub settings: Settings,
    /// The way to the other ranks, where each is a process of its own.
    links: Option<Arc<Links>>,
}

impl Shared {
    pub fn new(ranks: usize, settings: Settings, links: Option<Arc<Links>>) -> Shared {
        let log = Log { events: vec![Vec::new(); ranks], ..Log::default() };
        let state = State {
            mail: HashMap::new(),
            status: vec![Status::Running; ranks],
            doing: vec![None; ranks],
            inside: vec![false; ranks],
            sent: vec![0; ranks],
            messages: 0,
            in_flight: HashSet::new(),
            entered: HashMap::new(),
            failure: None,
            log,
        };
        let wake = (0..ranks).map(|_| Condvar::new()).collect();
        Shared { state: Mutex::new(state), wake, begin: Instant::now(), settings, links }
    }

    /// Ends the world because of what was seen of another process.
    pub fn fail_with(&self, cause: FailureCause, ranks: Vec<usize>, what: String, fix: &str) {
        self.fail(&mut self.lock(), cause, ranks, what, fix);
    }

    /// What ended the world, if anything has: as it is told to other processes.
    pub fn failed(&self) -> Option<(FailureCause, Vec<usize>, String, String)> {
        let state = self.lock();
        let (failure, _) = state.failure.as_ref()?;
        Some((failure.cause, failure.ranks.clone(), failure.what.clone(), failure.fix.clone()))
    }

    /// Takes in a message of another process.
    pub fn arrived(&self, from: usize, to: usize, frame: Frame) {
        let packet = Packet {
            message: usize::MAX,
            dtype: Cow::Owned(frame.dtype),
            elements: frame.elements,
            data: Data::Bytes(frame.bytes),
            place: Sender::There(frame.line),
            signature: frame.signature,
        };
        let key = (frame.group, frame.tag, from, to);
        self.lock().mail.entry(key).or_default().push_back(packet);
        self.wake[to].notify_all();
    }

    /// Waits until all other ranks have ended, or one has failed.
    pub fn wait_for_all(&self, rank: usize) {
        let mut state = self.lock();
        while state.failure.is_none() && !state.status.iter().all(|status| matches!(status, Status::Ended)) {
            state = self.wake[rank].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now_us(&self) -> f64 {
        1e6 * self.begin.elapsed().as_secs_f64()
    }

    /// Ends the world, unless it has ended before: the first failure is the cause of the others.
    fn fail(&self, state: &mut State, cause: FailureCause, ranks: Vec<usize>, what: String, fix: &str) {
        if state.failure.is_none() {
            let (fix, log) = (fix.to_string(), Box::default());
            state.failure = Some((Failure { cause, ranks, what, fix, ended_ms: 0.0, log }, Instant::now()));
            self.wake.iter().for_each(Condvar::notify_all);
        }
    }

    /// Notes what a rank says that it computes.
    pub fn computes(&self, rank: usize, label: &str, us: f64) {
        if self.settings.recorded {
            let log = &mut self.lock().log;
            log.events[rank].push(Event::Compute(log.computed.len()));
            log.computed.push(Computed { rank, label: label.to_string(), us });
        }
    }

    /// Notes that a rank is done, and how.
    pub fn ended(&self, rank: usize, with: Option<(FailureCause, String)>) {
        let mut state = self.lock();
        state.status[rank] = Status::Ended;
        self.wake.iter().for_each(Condvar::notify_all);
        if let Some((cause, said)) = with {
            let place = match (&state.doing[rank], state.inside[rank]) {
                (None, _) => " before its first call".to_string(),
                (Some((name, place)), true) => format!(" in `{name}` ({})", line(place)),
                (Some((name, place)), false) => format!(" after `{name}` ({})", line(place)),
            };
            let (what, fix) = match cause {
                FailureCause::Panicked => (
                    format!("rank {rank} panicked{place}: {said}"),
                    "look there: the other ranks were well, and were ended with it",
                ),
                FailureCause::Died => (
                    format!("rank {rank} died{place}, without a word"),
                    "look for its process in the system's log (out of memory? killed?), and start again from the last checkpoint",
                ),
                _ => {
                    let (what, next) = said.split_once("\nnext: ").unwrap_or((&said, ""));
                    let next = if next.is_empty() { "handle the error where it arises" } else { next };
                    let what = format!("rank {rank} returned an error{place}: {what}");
                    self.fail(&mut state, cause, vec![rank], what, next);
                    return;
                }
            };
            self.fail(&mut state, cause, vec![rank], what, fix);
        }
        self.find_deadlock(&mut state);
    }

    /// The log, and the failure if there was one.
    pub fn outcome(&self) -> Result<Log, Failure> {
        let mut state = self.lock();
        let log = std::mem::take(&mut state.log);
        match state.failure.take() {
            None => Ok(log),
            Some((failure, at)) => {
                Err(Failure { ended_ms: 1e3 * at.elapsed().as_secs_f64(), log: Box::new(log), ..failure })
            }
        }
    }

    /// Whether what that rank waits for has come.
    fn has(state: &State, rank: usize, need: Need) -> bool {
        match need {
            Need::From { rank: from, group, tag } => state.mail.contains_key(&(group, tag, from, rank)),
            Need::Taken { message, .. } => !state.in_flight.contains(&message),
        }
    }

    /// Whether each rank that is left waits for something that has not come: then nothing will ever come.
    fn find_deadlock(&self, state: &mut State) {
        let mut waiting = Vec::new();
        for (rank, status) in state.status.iter().enumerate() {
            match *status {
                Status::Running => return,
                Status::Waiting(need) if Shared::has(state, rank, need) => return,
                Status::Waiting(need) => waiting.push((rank, need)),
                Status::Ended => {}
            }
        }
        if waiting.is_empty() || state.failure.is_some() {
            return;
        }
        let mut what = "deadlock: each rank that is left waits for another one".to_string();
        for (rank, need) in &waiting {
            let (name, place) = state.doing[*rank].expect("it waits in a call");
            let on = match need {
                Need::From { rank, .. } => format!("a message from rank {rank}"),
                Need::Taken { rank, .. } => format!("rank {rank} to receive"),
            };
            what += &format!("\n  rank {rank} waits in `{name}` ({}) for {on}", line(place));
        }
        for (rank, status) in state.status.iter().enumerate() {
            if matches!(status, Status::Ended) {
                let none = if self.links.is_some() { ";" } else { "without any call" };
                let last = state.doing[rank].map_or(none.to_string(), |(name, place)| {
                    format!("; its last call was `{name}` ({})", line(place))
                });
                let last = last.trim_end_matches(';');
                what += &format!(
                    "\n  rank {rank} has ended{}{last}",
                    if last.is_empty() || last.starts_with(';') { "" } else { " " }
                );
            }
        }
        let gone = state.status.iter().any(|status| matches!(status, Status::Ended));
        let fix = match gone {
            true => "let every rank make the same calls: look for a condition around the call that one rank skips",
            false => {
                "let each message that is sent be received: where two ranks send to each other, use `send_recv`, or let one receive first"
            }
        };
        let ranks = waiting.into_iter().map(|(rank, _)| rank).collect();
        self.fail(state, FailureCause::Deadlock, ranks, what, fix);
    }
}

/// One rank's way to the others during one call.
pub(crate) struct Port<'a> {
    shared: &'a Shared,
    group: &'a Group,
    /// This rank's number in the group.
    pub me: usize,
    name: &'static str,
    number: usize,
    tag: usize,
    place: CallSite,
    /// What the receiver in another process compares; empty where ranks are threads.
    signature: String,
    /// Its place among the recorded calls.
    entry: Option<usize>,
}

impl fmt::Debug for Port<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} in `{}`", self.me, self.name)
    }
}

impl<'a> Port<'a> {
    /// Enters a call. `signature` is given for a collective: the first rank to come says what it is to be.
    pub fn enter(
        shared: &'a Shared,
        group: &'a Group,
        me: usize,
        number: usize,
        name: &'static str,
        signature: Option<Signature>,
        place: CallSite,
    ) -> Result<Port<'a>> {
        let rank = group.members[me];
        if signature.is_some() {
            for fault in &shared.settings.faults {
                match *fault {
                    Fault::Slow { rank: slow, by } if slow == rank => std::thread::sleep(by),
                    _ => {}
                }
            }
        }
        let mut state = shared.lock();
        (state.doing[rank], state.inside[rank]) = (Some((name, place)), true);
        let tag = if signature.is_some() { number + 1 } else { 0 };
        let told = signature.as_ref().filter(|_| shared.links.is_some()).map(ToString::to_string).unwrap_or_default();
        let entered_us = shared.now_us();
        let entry = shared.settings.recorded.then(|| {
            state.log.calls.push(Call { rank, group: group.id, number, name, entered_us, left_us: f64::NAN });
            state.log.calls.len() - 1
        });
        if let Some(signature) = signature.filter(|_| shared.links.is_none()) {
            let key = (group.id, number);
            match state.entered.get(&key) {
                None => drop(state.entered.insert(key, (rank, signature, place))),
                Some((first, theirs, at)) if *theirs != signature => {
                    let what = format!(
                        "the ranks do not make the same calls: as collective {number} of {}, rank {first} calls {theirs} ({}), and rank {rank} calls {signature} ({})",
                        if group.id == 0 { "the world" } else { "their group" },
                        line(at),
                        line(place)
                    );
                    let fix = "make the same calls in the same order, of the same length and type, on every rank: compare the two lines";
                    shared.fail(&mut state, FailureCause::Mismatch, vec![rank], what, fix);
                }
                Some(_) => {}
            }
        }
        let port = Port { shared, group, me, name, number, tag, place, signature: told, entry };
        port.alive(&state)?;
        Ok(port)
    }

    /// How many ranks the group has.
    pub fn size(&self) -> usize {
        self.group.members.len()
    }

    fn rank(&self) -> usize {
        self.group.members[self.me]
    }

    /// The rank goes on with something else, and comes back by [`Port::resume`].
    pub fn pause(&self) {
        self.shared.lock().inside[self.rank()] = false;
    }

    /// The rank is back in the call, from that line.
    pub fn resume(&mut self, place: CallSite) -> Result<()> {
        self.place = place;
        let mut state = self.shared.lock();
        (state.doing[self.rank()], state.inside[self.rank()]) = (Some((self.name, place)), true);
        self.alive(&state)
    }

    /// The call is over.
    pub fn leave(self) -> Result<()> {
        let mut state = self.shared.lock();
        if let Some(entry) = self.entry {
            state.log.calls[entry].left_us = self.shared.now_us();
        }
        state.inside[self.rank()] = false;
        self.alive(&state)
    }

    fn alive(&self, state: &State) -> Result<()> {
        match &state.failure {
            None => Ok(()),
            Some((failure, _)) => Err(Error::invalid(failure.what.clone(), failure.fix.clone())),
        }
    }

    /// Sends `data[range]` to that member, and waits for nobody.
    pub fn post<T: CollectiveElement>(
        &self,
        to: usize,
        data: &[T],
        range: Range<usize>,
        reduces: bool,
    ) -> Result<usize> {
        let sent = self.put(to, &data[range.clone()], range.start, reduces)?;
        self.note(Event::Post(sent));
        Ok(sent)
    }

    /// Puts a message on its way.
    fn put<T: CollectiveElement>(&self, to: usize, data: &[T], start: usize, reduces: bool) -> Result<usize> {
        let (from, to) = (self.rank(), self.group.members[to]);
        // The copy is the work; it is done before the lock is taken.
        let packet: Vec<T> = if self.shared.links.is_none() { data.to_vec() } else { Vec::new() };
        let mut state = self.shared.lock();
        self.alive(&state)?;
        let sent = state.sent[from];
        if self.shared.settings.faults.contains(&Fault::Dies { rank: from, message: sent }) {
            drop(state);
            std::panic::panic_any(Vanished);
        }
        state.sent[from] += 1;
        let message = state.messages;
        state.messages += 1;
        if let Some(links) = &self.shared.links {
            drop(state);
            let frame = Frame {
                group: self.group.id,
                tag: self.tag,
                elements: data.len(),
                dtype: T::NAME.to_string(),
                signature: self.signature.clone(),
                line: line(self.place),
                bytes: T::to_bytes(data),
            };
            // Where it cannot be sent, the receiver is gone: the thread that reads from it says so, and how.
            if links.send(to, &frame).is_err() {
                drop(self.wait(self.shared.lock(), Need::From { rank: to, group: u64::MAX, tag: usize::MAX })?);
            }
            return Ok(message);
        }
        state.in_flight.insert(message);
        if self.shared.settings.recorded {
            state.log.messages.push(Message {
                call: self.name,
                number: self.number,
                step: 0,
                from,
                to,
                chunk: start..start + data.len(),
                bytes: size_of_val(data),
                reduces,
                sent_us: self.shared.now_us(),
                received_us: f64::NAN,
            });
        }
        let (elements, data) = (packet.len(), Data::Here(Box::new(packet)));
        let (dtype, place) = (Cow::Borrowed(T::NAME), Sender::Here(self.place));
        let packet = Packet { message, dtype, elements, data, place, signature: String::new() };
        state.mail.entry((self.group.id, self.tag, from, to)).or_default().push_back(packet);
        self.shared.wake[to].notify_all();
        Ok(message)
    }

    /// Waits for what this rank needs.
    fn wait<'s>(&self, mut state: MutexGuard<'s, State>, need: Need) -> Result<MutexGuard<'s, State>> {
        let (rank, start) = (self.rank(), Instant::now());
        loop {
            self.alive(&state)?;
            if Shared::has(&state, rank, need) {
                state.status[rank] = Status::Running;
                return Ok(state);
            }
            state.status[rank] = Status::Waiting(need);
            self.shared.find_deadlock(&mut state);
            if state.failure.is_some() {
                continue;
            }
            let Some(left) = self.shared.settings.limit.checked_sub(start.elapsed()) else {
                self.late(&mut state, need);
                continue;
            };
            let waited = self.shared.wake[rank].wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Names the rank at the end of the chain: the one that waits for nobody.
    fn late(&self, state: &mut State, need: Need) {
        let mut late = need.rank();
        for _ in 0..state.status.len() {
            match state.status[late] {
                Status::Waiting(next) if !Shared::has(state, late, next) => late = next.rank(),
                _ => break,
            }
        }
        let seen = match (&state.doing[late], state.inside[late]) {
            _ if self.shared.links.is_some() => {
                "has sent nothing for it; its process is alive, and may itself be waiting".to_string()
            }
            (None, _) => "has made no call yet".to_string(),
            (Some((name, place)), true) => format!("is still in `{name}` ({})", line(place)),
            (Some((name, place)), false) => format!("has computed since `{name}` ({})", line(place)),
        };
        let limit = self.shared.settings.limit.as_secs_f64();
        let what = format!(
            "rank {late} is late: rank {} has waited {limit} s in `{}` ({}), and rank {late} {seen}",
            self.rank(),
            self.name,
            line(self.place)
        );
        self.shared.fail(
            state,
            FailureCause::Late,
            vec![late],
            what,
            "see what that rank does there; if it needs the time, give the world a longer `time_limit`",
        );
    }

    /// Takes the next message of that rank; its elements are put at `start`.
    fn take<T: CollectiveElement>(&self, from: usize, elements: usize) -> Result<(usize, Vec<T>)> {
        let (from, to) = (self.group.members[from], self.rank());
        let state = self.shared.lock();
        let need = Need::From { rank: from, group: self.group.id, tag: self.tag };
        let mut state = self.wait(state, need)?;
        let key = (self.group.id, self.tag, from, to);
        let packets = state.mail.get_mut(&key).expect("it has come");
        let packet = packets.pop_front().expect("an empty queue is removed");
        if packets.is_empty() {
            state.mail.remove(&key);
        }
        if packet.signature != self.signature {
            let number = self.number;
            let what = format!(
                "the ranks do not make the same calls: as collective {number} of {}, rank {from} calls {} ({}), and rank {to} calls {} ({})",
                if self.group.id == 0 { "the world" } else { "their group" },
                packet.signature,
                packet.place,
                self.signature,
                line(self.place)
            );
            let fix = "make the same calls in the same order, of the same length and type, on every rank: compare the two lines";
            self.shared.fail(&mut state, FailureCause::Mismatch, vec![from, to], what, fix);
        }
        if packet.dtype != T::NAME || packet.elements != elements {
            let what = format!(
                "rank {from} sends {} {} ({}), and rank {to} receives {elements} {} ({})",
                packet.elements,
                packet.dtype,
                packet.place,
                T::NAME,
                line(self.place)
            );
            let fix = "make lengths and types of the two calls equal";
            self.shared.fail(&mut state, FailureCause::Mismatch, vec![from, to], what, fix);
        }
        self.alive(&state)?;
        state.in_flight.remove(&packet.message);
        if let Some(message) = state.log.messages.get_mut(packet.message) {
            message.received_us = self.shared.now_us();
        }
        if self.shared.settings.rendezvous {
            self.shared.wake[from].notify_all();
        }
        drop(state);
        let data = match packet.data {
            Data::Here(data) => *data.downcast::<Vec<T>>().expect("the types were compared"),
            Data::Bytes(bytes) => T::from_bytes(&bytes),
        };
        Ok((packet.message, data))
    }

    /// With rendezvous: waits until that message has been received.
    fn taken(&self, to: usize, message: usize) -> Result<()> {
        if self.shared.settings.rendezvous {
            let state = self.shared.lock();
            drop(self.wait(state, Need::Taken { rank: self.group.members[to], message })?);
        }
        Ok(())
    }

    /// With rendezvous: waits until all of these have been received, each by its receiver.
    pub fn all_taken(&self, sent: &[(usize, usize)]) -> Result<()> {
        sent.iter().try_for_each(|(to, message)| self.taken(*to, *message))
    }

    fn note(&self, event: Event) {
        if self.shared.settings.recorded {
            self.shared.lock().log.events[self.rank()].push(event);
        }
    }

    /// Sends `data[range]` to that member of the group.
    pub fn send<T: CollectiveElement>(&self, to: usize, data: &[T], range: Range<usize>, reduces: bool) -> Result<()> {
        let sent = self.put(to, &data[range.clone()], range.start, reduces)?;
        self.taken(to, sent)?;
        self.note(Event::Send(sent));
        Ok(())
    }

    /// Receives so many elements from that member.
    pub fn receive<T: CollectiveElement>(&self, from: usize, elements: usize) -> Result<Vec<T>> {
        let (received, data) = self.take(from, elements)?;
        self.note(Event::Receive(received));
        Ok(data)
    }

    /// Sends `data[range]` to one member, and receives so many elements from another, at the same time.
    pub fn exchange<T: CollectiveElement>(
        &self,
        to: usize,
        data: &[T],
        range: Range<usize>,
        reduces: bool,
        from: usize,
        elements: usize,
    ) -> Result<Vec<T>> {
        let sent = self.put(to, &data[range.clone()], range.start, reduces)?;
        let (received, data) = self.take(from, elements)?;
        self.taken(to, sent)?;
        self.note(Event::Exchange { sent, received });
        Ok(data)
    }
}
