//! What collectives are made of: messages, and sums. Every function here is called by all ranks of a group.

use crate::collectives::{CollectiveElement, Op};
use crate::port::Port;
use gpulab_measure::Result;
use std::ops::Range;

/// How an all-reduce is made.
///
/// # Examples
/// ```
/// use gpulab_ranks::{Algorithm, Collectives, Op, World};
/// let messages = |by: Algorithm| {
///     let run = World::new(4).run(|rank| rank.by(by).all_reduce(&mut [1.0_f32; 8][..], Op::Sum));
///     run.unwrap().log.messages.len()
/// };
/// // Each of four ranks sends a quarter 2 · 3 times; along a tree everything goes up once and down once.
/// assert_eq!((messages(Algorithm::Ring), messages(Algorithm::Tree)), (4 * 6, 2 * 3));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Algorithm {
    /// A reduce-scatter around a ring, then an all-gather: 2 (n − 1) steps of an n-th of the data.
    #[default]
    Ring,
    /// A binomial tree towards rank 0 and back: 2 ⌈log₂ n⌉ steps of all the data.
    Tree,
    /// Pairs at distances 1, 2, 4 … exchange all they have: log₂ n steps of all the data. Where n is no power of two, two more.
    RecursiveDoubling,
    /// A reduce-scatter in which every rank sends each part straight to its owner, who adds in the order of ranks; then an
    /// all-gather in which every owner sends its part to all. As many messages and bytes as the ring, over links between all pairs.
    Direct,
}

impl Algorithm {
    /// Those that differ in what they cost; [`Algorithm::Direct`] costs what the ring does.
    pub const ALL: [Algorithm; 3] = [Algorithm::Ring, Algorithm::Tree, Algorithm::RecursiveDoubling];

    /// `ring`, `tree`, `recursive doubling`.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Ring => "ring",
            Algorithm::Tree => "tree",
            Algorithm::RecursiveDoubling => "recursive doubling",
            Algorithm::Direct => "direct messages",
        }
    }
}

/// Part `at` of `parts` nearly equal ones.
///
/// # Examples
/// ```
/// use gpulab_ranks::algorithms::part;
/// assert_eq!([0, 1, 2].map(|at| part(10, 3, at)), [0..3, 3..6, 6..10]);
/// ```
pub fn part(elements: usize, parts: usize, at: usize) -> Range<usize> {
    at * elements / parts..(at + 1) * elements / parts
}

/// Leaves rank r with the reduced part r; the other parts are sums of some.
///
/// In step s rank r sends part r − s − 1 and adds the part before that to its own, so the sum of part c begins at rank c + 1,
/// goes around, and ends at rank c: one order, the same in every run.
pub(crate) fn ring_reduce_scatter<T: CollectiveElement>(port: &Port<'_>, data: &mut [T], op: Op) -> Result<()> {
    let (n, me) = (port.size(), port.me);
    for step in 0..n - 1 {
        let (out, into) =
            (part(data.len(), n, (me + 2 * n - step - 1) % n), part(data.len(), n, (me + 2 * n - step - 2) % n));
        let theirs = port.exchange((me + 1) % n, data, out, true, (me + n - 1) % n, into.len())?;
        T::reduce(&mut data[into], &theirs, op);
    }
    Ok(())
}

/// Rank r has part r, and gets all others.
pub(crate) fn ring_all_gather<T: CollectiveElement>(port: &Port<'_>, data: &mut [T]) -> Result<()> {
    let (n, me) = (port.size(), port.me);
    for step in 0..n - 1 {
        let (out, into) = (part(data.len(), n, (me + n - step) % n), part(data.len(), n, (me + 2 * n - step - 1) % n));
        let theirs = port.exchange((me + 1) % n, data, out, false, (me + n - 1) % n, into.len())?;
        data[into].copy_from_slice(&theirs);
    }
    Ok(())
}

/// Sends each part of the data straight to its owner, and waits for nobody.
pub(crate) fn scatter<T: CollectiveElement>(port: &Port<'_>, data: &[T]) -> Result<Vec<(usize, usize)>> {
    let (n, me) = (port.size(), port.me);
    // In step s everybody sends to the rank s further on: nobody gets two messages at once.
    let owners = (1..n).map(|step| (me + step) % n);
    owners.map(|to| Ok((to, port.post(to, data, part(data.len(), n, to), true)?))).collect()
}

/// Adds what the others have sent to this rank's own part, in the order of ranks: so the sum is the same as that of one rank that
/// adds the parts one after the other.
pub(crate) fn add_parts<T: CollectiveElement>(port: &Port<'_>, own: &mut [T], op: Op) -> Result<()> {
    let (n, me) = (port.size(), port.me);
    let mut parts: Vec<Vec<T>> = vec![Vec::new(); n];
    parts[me] = own.to_vec();
    for step in 1..n {
        let from = (me + n - step) % n;
        parts[from] = port.receive(from, own.len())?;
    }
    own.copy_from_slice(&parts[0]);
    parts[1..].iter().for_each(|theirs| T::reduce(own, theirs, op));
    Ok(())
}

/// Sends this rank's part to all others, and waits for nobody.
pub(crate) fn hand_out<T: CollectiveElement>(
    port: &Port<'_>,
    data: &[T],
    own: &Range<usize>,
) -> Result<Vec<(usize, usize)>> {
    let (n, me) = (port.size(), port.me);
    (1..n).map(|step| (me + step) % n).map(|to| Ok((to, port.post(to, data, own.clone(), false)?))).collect()
}

/// Receives the parts of all others; they are `part` of the data's length.
pub(crate) fn collect<T: CollectiveElement>(port: &Port<'_>, data: &mut [T]) -> Result<()> {
    let (n, me) = (port.size(), port.me);
    for from in (1..n).map(|step| (me + n - step) % n) {
        let into = part(data.len(), n, from);
        data[into.clone()].copy_from_slice(&port.receive(from, into.len())?);
    }
    Ok(())
}

/// Puts the reduced numbers on rank 0; the other ranks keep sums of some.
fn tree_reduce<T: CollectiveElement>(port: &Port<'_>, data: &mut [T], op: Op) -> Result<()> {
    let mut distance = 1;
    while distance < port.size() {
        if port.me & distance != 0 {
            return port.send(port.me - distance, data, 0..data.len(), true);
        }
        if port.me + distance < port.size() {
            let theirs = port.receive(port.me + distance, data.len())?;
            T::reduce(data, &theirs, op);
        }
        distance *= 2;
    }
    Ok(())
}

/// Puts the numbers of `root` on all ranks, by a binomial tree.
pub(crate) fn tree_broadcast<T: CollectiveElement>(port: &Port<'_>, data: &mut [T], root: usize) -> Result<()> {
    let n = port.size();
    let (from_root, rank) = ((port.me + n - root) % n, |from_root: usize| (from_root + root) % n);
    let mut distance = n.next_power_of_two();
    while distance > 1 {
        distance /= 2;
        if from_root % (2 * distance) == distance {
            let theirs = port.receive(rank(from_root - distance), data.len())?;
            data.copy_from_slice(&theirs);
        } else if from_root % (2 * distance) == 0 && from_root + distance < n {
            port.send(rank(from_root + distance), data, 0..data.len(), false)?;
        }
    }
    Ok(())
}

fn recursive_doubling<T: CollectiveElement>(port: &Port<'_>, data: &mut [T], op: Op) -> Result<()> {
    let (n, me, all) = (port.size(), port.me, 0..data.len());
    let pairs = 1 << n.ilog2();
    // Where n is no power of two, the first ranks double up: an odd one works for its neighbour as well.
    let extra = n - pairs;
    if me < 2 * extra && me % 2 == 0 {
        port.send(me + 1, data, all, true)?;
        let theirs = port.receive(me + 1, data.len())?;
        data.copy_from_slice(&theirs);
        return Ok(());
    }
    if me < 2 * extra {
        let theirs = port.receive(me - 1, data.len())?;
        T::reduce(data, &theirs, op);
    }
    let place = if me < 2 * extra { me / 2 } else { me - extra };
    let mut distance = 1;
    while distance < pairs {
        let other = place ^ distance;
        let other = if other < extra { 2 * other + 1 } else { other + extra };
        let theirs = port.exchange(other, data, all.clone(), true, other, data.len())?;
        T::reduce(data, &theirs, op);
        distance *= 2;
    }
    if me < 2 * extra {
        port.send(me - 1, data, all, false)?;
    }
    Ok(())
}

/// Reduces in place, on all ranks; [`Op::Avg`] divides at the end.
pub(crate) fn all_reduce<T: CollectiveElement>(port: &Port<'_>, data: &mut [T], op: Op, by: Algorithm) -> Result<()> {
    match by {
        _ if port.size() == 1 => {}
        Algorithm::Ring => {
            ring_reduce_scatter(port, data, op)?;
            ring_all_gather(port, data)?;
        }
        Algorithm::Tree => {
            tree_reduce(port, data, op)?;
            tree_broadcast(port, data, 0)?;
        }
        Algorithm::RecursiveDoubling => recursive_doubling(port, data, op)?,
        Algorithm::Direct => {
            let own = part(data.len(), port.size(), port.me);
            let sent = scatter(port, data)?;
            add_parts(port, &mut data[own.clone()], op)?;
            port.all_taken(&sent)?;
            let sent = hand_out(port, data, &own)?;
            collect(port, data)?;
            port.all_taken(&sent)?;
        }
    }
    average(data, op, port.size());
    Ok(())
}

/// Divides, where the op asks for it.
pub(crate) fn average<T: CollectiveElement>(data: &mut [T], op: Op, ranks: usize) {
    if op == Op::Avg {
        T::divide(data, ranks);
    }
}

/// Returns once all ranks are here: in step s everybody tells the rank 2ˢ further on (a dissemination barrier).
pub(crate) fn barrier(port: &Port<'_>) -> Result<()> {
    let (n, mut distance) = (port.size(), 1);
    while distance < n {
        let nothing: [u32; 0] = [];
        port.exchange((port.me + distance) % n, &nothing, 0..0, false, (port.me + n - distance) % n, 0)?;
        distance *= 2;
    }
    Ok(())
}
