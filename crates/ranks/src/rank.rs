//! A rank that is a thread of this CPU.

use crate::algorithms::{self, Algorithm};
use crate::collectives::{CollectiveElement, Collectives, Communicator, Op};
use crate::port::{CallSite, Group, Port, Shared, Signature};
use gpulab_measure::error::same_length;
use gpulab_measure::{Error, Result};
use std::cell::Cell;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

/// One rank of a [`World`](crate::World), or of a group of its ranks. It stays on its thread.
#[derive(Clone)]
pub struct Rank {
    shared: Arc<Shared>,
    group: Arc<Group>,
    me: usize,
    /// Collectives of this group, and messages, that this rank has made. Clones share them.
    collectives: Rc<Cell<usize>>,
    messages: Rc<Cell<usize>>,
    by: Algorithm,
}

impl std::fmt::Debug for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "rank {} of {}", self.me, self.group.members.len())
    }
}

impl Rank {
    pub(crate) fn new(shared: Arc<Shared>, group: Arc<Group>, me: usize) -> Rank {
        Rank { shared, group, me, collectives: Rc::default(), messages: Rc::default(), by: Algorithm::default() }
    }

    /// What tells whether the world has failed.
    #[cfg(feature = "nccl")]
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.shared)
    }

    /// This rank's number in its group, from 0.
    pub fn rank(&self) -> usize {
        self.me
    }

    /// How many ranks the group has.
    pub fn size(&self) -> usize {
        self.group.members.len()
    }

    /// The same rank, whose all-reduces go by that algorithm. A reduce-scatter and an all-gather go around a ring, or by direct
    /// messages where that is the algorithm.
    pub fn by(&self, algorithm: Algorithm) -> Rank {
        Rank { by: algorithm, ..self.clone() }
    }

    /// States that this rank now computes for so long, in µs: for [`Link::replay`](crate::Link::replay), which has no clock.
    /// Nothing is waited for.
    pub fn compute(&self, label: &str, us: f64) {
        self.shared.computes(self.group.members[self.me], label, us);
    }

    /// Begins an all-gather, and returns while the messages are in flight; [`Gathering::wait`] ends it. Every rank of the group
    /// begins it, in the same place among its collectives; other calls may come before the end. It goes by direct messages, so that
    /// no rank has to pass on what it waits for.
    ///
    /// # Examples
    /// ```
    /// use gpulab_ranks::World;
    /// let run = World::new(3).run(|rank| {
    ///     let (own, mut all) = ([rank.rank() as f32], [0.0; 3]);
    ///     let gathering = rank.start_all_gather(&own)?;
    ///     // … compute …
    ///     gathering.wait(&mut all)?;
    ///     Ok(all)
    /// })?;
    /// assert_eq!(run.results, [[0.0, 1.0, 2.0]; 3]);
    /// # Ok::<(), gpulab_measure::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Collectives`].
    #[track_caller]
    pub fn start_all_gather<T: CollectiveElement>(&self, own: &[T]) -> Result<Gathering<'_, T>> {
        let elements = own.len() * self.size();
        let signature = Signature { by: Algorithm::Direct.name(), ..of::<T>("all_gather", elements) };
        let port = self.enter(signature, Location::caller())?;
        // The place of this rank's part in the whole, which the log tells; the message carries the part alone.
        let mut all = vec![T::default(); elements];
        let range = self.me * own.len()..(self.me + 1) * own.len();
        all[range.clone()].copy_from_slice(own);
        let sent = algorithms::hand_out(&port, &all, &range)?;
        port.pause();
        Ok(Gathering { port, own: own.to_vec(), sent })
    }

    /// Begins a reduce-scatter, and returns while the messages are in flight; [`Scattering::wait`] ends it. As
    /// [`Rank::start_all_gather`]; the parts are added in the order of ranks.
    ///
    /// # Examples
    /// ```
    /// use gpulab_ranks::{Op, World};
    /// let run = World::new(2).run(|rank| {
    ///     let (data, mut own) = ([1.0 + rank.rank() as f32, 10.0], [0.0]);
    ///     let scattering = rank.start_reduce_scatter(&data, Op::Sum)?;
    ///     scattering.wait(&mut own)?;
    ///     Ok(own[0])
    /// })?;
    /// assert_eq!(run.results, [3.0, 20.0]);
    /// # Ok::<(), gpulab_measure::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Collectives`]; `LengthMismatch` where the ranks do not divide the length.
    #[track_caller]
    pub fn start_reduce_scatter<T: CollectiveElement>(&self, data: &[T], op: Op) -> Result<Scattering<'_, T>> {
        let own = data.len() / self.size();
        same_length("start_reduce_scatter: the data of all ranks together", own * self.size(), data.len())?;
        let by = Algorithm::Direct.name();
        let signature = Signature { op: Some(op), by, ..of::<T>("reduce_scatter", data.len()) };
        let port = self.enter(signature, Location::caller())?;
        let sent = algorithms::scatter(&port, data)?;
        port.pause();
        Ok(Scattering { port, own: data[self.me * own..][..own].to_vec(), op, sent })
    }

    fn next(counter: &Cell<usize>) -> usize {
        counter.replace(counter.get() + 1)
    }

    fn enter(&self, signature: Signature, place: CallSite) -> Result<Port<'_>> {
        let number = Rank::next(&self.collectives);
        Port::enter(&self.shared, &self.group, self.me, number, signature.name, Some(signature), place)
    }

    fn enter_message(&self, name: &'static str, place: CallSite) -> Result<Port<'_>> {
        Port::enter(&self.shared, &self.group, self.me, Rank::next(&self.messages), name, None, place)
    }

    fn other(&self, rank: usize, what: &str) -> Result<()> {
        match rank {
            rank if rank >= self.size() => Err(Error::invalid(
                format!("rank {} {what} rank {rank}, and there are {} ranks", self.me, self.size()),
                format!("name a rank from 0 to {}; `% size` closes a ring", self.size() - 1),
            )),
            rank if rank == self.me => Err(Error::invalid(
                format!("rank {rank} {what} itself"),
                "leave that message out: the numbers are there already",
            )),
            _ => Ok(()),
        }
    }
}

/// An all-gather in flight.
#[must_use = "an all-gather that is begun ends with `wait`"]
#[derive(Debug)]
pub struct Gathering<'a, T> {
    port: Port<'a>,
    own: Vec<T>,
    sent: Vec<(usize, usize)>,
}

impl<T: CollectiveElement> Gathering<'_, T> {
    /// Waits for the parts of all ranks, and puts them into `all`, in the order of ranks.
    ///
    /// # Errors
    /// As [`Collectives`].
    #[track_caller]
    pub fn wait(mut self, all: &mut [T]) -> Result<()> {
        let (len, me) = (self.own.len(), self.port.me);
        same_length("all_gather: room for the data of all ranks", len * self.port.size(), all.len())?;
        self.port.resume(Location::caller())?;
        all[me * len..][..len].copy_from_slice(&self.own);
        algorithms::collect(&self.port, all)?;
        self.port.all_taken(&self.sent)?;
        self.port.leave()
    }
}

/// A reduce-scatter in flight.
#[must_use = "a reduce-scatter that is begun ends with `wait`"]
#[derive(Debug)]
pub struct Scattering<'a, T> {
    port: Port<'a>,
    own: Vec<T>,
    op: Op,
    sent: Vec<(usize, usize)>,
}

impl<T: CollectiveElement> Scattering<'_, T> {
    /// Waits for what all ranks have sent, and puts this rank's part of the reduced numbers into `own`.
    ///
    /// # Errors
    /// As [`Collectives`].
    #[track_caller]
    pub fn wait(mut self, own: &mut [T]) -> Result<()> {
        same_length("reduce_scatter: room for a rank's part", self.own.len(), own.len())?;
        self.port.resume(Location::caller())?;
        algorithms::add_parts(&self.port, &mut self.own, self.op)?;
        self.port.all_taken(&self.sent)?;
        algorithms::average(&mut self.own, self.op, self.port.size());
        own.copy_from_slice(&self.own);
        self.port.leave()
    }
}

fn of<T: CollectiveElement>(name: &'static str, elements: usize) -> Signature {
    Signature { name, dtype: T::NAME, elements, op: None, root: None, by: "" }
}

impl Communicator for Rank {
    fn rank(&self) -> usize {
        self.me
    }

    fn size(&self) -> usize {
        self.group.members.len()
    }

    #[track_caller]
    fn barrier(&self) -> Result<()> {
        let signature = Signature { name: "barrier", dtype: "", elements: 0, op: None, root: None, by: "" };
        let port = self.enter(signature, Location::caller())?;
        algorithms::barrier(&port)?;
        port.leave()
    }

    #[track_caller]
    fn split(&self, color: usize) -> Result<Rank> {
        let number = self.collectives.get();
        let port = self.enter(of::<u64>("split", 1), Location::caller())?;
        let mut colors = vec![0_u64; port.size()];
        colors[self.me] = color as u64;
        algorithms::ring_all_gather(&port, &mut colors)?;
        port.leave()?;
        let same: Vec<usize> = (0..colors.len()).filter(|at| colors[*at] == color as u64).collect();
        let me = same.iter().position(|at| *at == self.me).expect("a rank has its own colour");
        // All its members find the same name for the group, and no other group has it.
        let mut hasher = DefaultHasher::new();
        (self.group.id, number, color).hash(&mut hasher);
        let members = same.iter().map(|at| self.group.members[*at]).collect();
        let group = Arc::new(Group { id: hasher.finish() | 1, members });
        Ok(Rank { by: self.by, ..Rank::new(Arc::clone(&self.shared), group, me) })
    }
}

impl<T: CollectiveElement> Collectives<[T]> for Rank {
    #[track_caller]
    fn all_reduce(&self, data: &mut [T], op: Op) -> Result<()> {
        let signature = Signature { op: Some(op), by: self.by.name(), ..of::<T>("all_reduce", data.len()) };
        let port = self.enter(signature, Location::caller())?;
        algorithms::all_reduce(&port, data, op, self.by)?;
        port.leave()
    }

    #[track_caller]
    fn reduce_scatter(&self, data: &[T], own: &mut [T], op: Op) -> Result<()> {
        let what = "reduce_scatter: the data of all ranks together".to_string();
        same_length(what, own.len() * self.group.members.len(), data.len())?;
        let direct = self.by == Algorithm::Direct;
        let by = if direct { self.by.name() } else { "" };
        let signature = Signature { op: Some(op), by, ..of::<T>("reduce_scatter", data.len()) };
        let port = self.enter(signature, Location::caller())?;
        if direct {
            let sent = algorithms::scatter(&port, data)?;
            own.copy_from_slice(&data[self.me * own.len()..][..own.len()]);
            algorithms::add_parts(&port, own, op)?;
            port.all_taken(&sent)?;
            algorithms::average(own, op, port.size());
            return port.leave();
        }
        let mut sums = data.to_vec();
        algorithms::ring_reduce_scatter(&port, &mut sums, op)?;
        own.copy_from_slice(&sums[self.me * own.len()..][..own.len()]);
        algorithms::average(own, op, port.size());
        port.leave()
    }

    #[track_caller]
    fn all_gather(&self, own: &[T], all: &mut [T]) -> Result<()> {
        let what = "all_gather: room for the data of all ranks".to_string();
        same_length(what, own.len() * self.group.members.len(), all.len())?;
        let direct = self.by == Algorithm::Direct;
        let by = if direct { self.by.name() } else { "" };
        let port = self.enter(Signature { by, ..of::<T>("all_gather", all.len()) }, Location::caller())?;
        let range = self.me * own.len()..(self.me + 1) * own.len();
        all[range.clone()].copy_from_slice(own);
        if direct {
            let sent = algorithms::hand_out(&port, all, &range)?;
            algorithms::collect(&port, all)?;
            port.all_taken(&sent)?;
            return port.leave();
        }
        algorithms::ring_all_gather(&port, all)?;
        port.leave()
    }

    #[track_caller]
    fn broadcast(&self, data: &mut [T], root: usize) -> Result<()> {
        if root >= self.group.members.len() {
            self.other(root, "broadcasts from")?;
        }
        let signature = Signature { root: Some(root), ..of::<T>("broadcast", data.len()) };
        let port = self.enter(signature, Location::caller())?;
        algorithms::tree_broadcast(&port, data, root)?;
        port.leave()
    }

    #[track_caller]
    fn send(&self, data: &[T], to: usize) -> Result<()> {
        self.other(to, "sends to")?;
        let port = self.enter_message("send", Location::caller())?;
        port.send(to, data, 0..data.len(), false)?;
        port.leave()
    }

    #[track_caller]
    fn recv(&self, data: &mut [T], from: usize) -> Result<()> {
        self.other(from, "receives from")?;
        let port = self.enter_message("recv", Location::caller())?;
        data.copy_from_slice(&port.receive(from, data.len())?);
        port.leave()
    }

    #[track_caller]
    fn send_recv(&self, data: &[T], to: usize, received: &mut [T], from: usize) -> Result<()> {
        self.other(to, "sends to")?;
        self.other(from, "receives from")?;
        let port = self.enter_message("send_recv", Location::caller())?;
        received.copy_from_slice(&port.exchange(to, data, 0..data.len(), false, from, received.len())?);
        port.leave()
    }
}
