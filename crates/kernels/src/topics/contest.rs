//! All rungs of a ladder against each other and their peers, on the same arrays.

use super::topic::relative_error;
use super::{Array, Exact, Host, Ladder, LadderRun, Launches, Room, RunLine, Size, Topic, Work, reason};
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Contestant, Gpu};
use gpulab::measurement::{Backend, Summary};
use std::cell::RefCell;
use std::collections::HashMap;

/// How a ladder is timed: samples are long enough that the gap between two of them weighs nothing.
pub const CHECKS: Bench = Bench { warm_ups: 1, samples: 21, min_sample_ms: 1.0, budget_ms: 2000.0 };
/// The name of the copy from device memory to device memory.
pub(super) const COPY: &str = "device copy";
/// Beyond this error, relative to the result, a rung counts as wrong. Each was checked closely at small sizes before;
/// a long chain of f32 additions reaches 5e-4.
const WRONG: f64 = 0.02;
/// Of fewer results than this, one may be right by luck: then all sets of inputs are checked.
const FEW: usize = 64;

/// What takes part beside the rungs.
pub struct Peer<'a> {
    /// Its name in tables.
    pub name: String,
    /// Its error against f64, relative to the result, where it is known already.
    pub error: Option<f64>,
    /// What it does.
    pub work: PeerWork<'a>,
}

/// Queues a call that reads the first arrays and writes the second.
pub type OnArrays<'a> = Box<dyn FnMut(&[Array], &mut [Array]) -> Result<()> + 'a>;

/// What a peer does.
pub enum PeerWork<'a> {
    /// Queues a call on the rungs' own arrays.
    OnArrays(OnArrays<'a>),
    /// Queues a call on arrays of its own, and is given the call's number.
    Calls(Box<dyn FnMut(usize) -> Result<()> + 'a>),
    /// Takes one sample by a clock of its own, in ms a call.
    Clocked(Box<dyn FnMut() -> Result<f64> + 'a>),
}

/// What is about to be timed, as a peer may want to see it.
pub struct Job<'a> {
    /// The ladder.
    pub ladder: Ladder,
    /// The size.
    pub size: Size,
    /// What a call must do.
    pub work: Work,
    /// The inputs, a set for each turn.
    pub sets: &'a [Vec<Host>],
    /// Results in f64, of the first set or of several.
    pub exact: &'a [Vec<Exact>],
}

/// An error where so many sets of arrays have no room.
pub(super) fn fits(gpu: &Gpu, work: &Work, sets: usize) -> Result<()> {
    let (asked, stats) = ((work.held as u64).saturating_mul(sets as u64), gpu.memory()?);
    match asked > stats.total {
        true => Err(Error::OutOfMemory { asked, free: stats.free, total: stats.total, reserved: 0 }),
        false => Ok(()),
    }
}

/// Sets of outputs for each shape that a rung asks for: most rungs of a ladder ask for the same one.
type Outputs = HashMap<Vec<Room>, RefCell<Vec<Vec<Array>>>>;

pub(super) fn run<'a>(
    ladder: Ladder,
    gpu: &Gpu,
    size: Size,
    plan: &Bench,
    more: &mut dyn FnMut(&Job<'_>) -> Result<Vec<Peer<'a>>>,
) -> Result<LadderRun> {
    gpu.has_times()?;
    let mut run = LadderRun::empty(ladder, size, gpu);
    let rungs = open(ladder, gpu, size, &mut run)?;
    let Some((_, first)) = rungs.first() else {
        return Err(Error::Unsupported {
            what: format!("{gpu} runs no rung of the ladder {}", ladder.topic()),
            fix: "see the recorded run (`ladder.measure(&lesson, size)`)".to_string(),
        });
    };
    let work = first.work(size)?;
    run.work(&work);
    let count = gpu.sets_past_cache(work.bytes);
    fits(gpu, &work, count)?;
    let sets = (0..count as u64).map(|seed| first.inputs(size, seed)).collect::<Result<Vec<_>>>()?;
    let on_gpu = |hosts: &Vec<Host>| hosts.iter().map(|host| Array::new(gpu, host)).collect::<Result<Vec<_>>>();
    let inputs = sets.iter().map(on_gpu).collect::<Result<Vec<_>>>()?;
    let mut exact = vec![first.exact(&sets[0], size)?];
    if exact[0].iter().map(|piece| piece.values.len()).sum::<usize>() < FEW {
        exact.extend(sets[1..].iter().map(|set| first.exact(set, size)).collect::<Result<Vec<_>>>()?);
    }

    let mut outputs = Outputs::new();
    let mut shapes = Vec::new();
    for (_, rung) in &rungs {
        let shape = rung.room(size)?;
        if !outputs.contains_key(&shape) {
            let set = |_| shape.iter().map(|&room| Array::poisoned(gpu, room)).collect::<Result<Vec<_>>>();
            outputs.insert(shape.clone(), RefCell::new((0..count).map(set).collect::<Result<_>>()?));
        }
        shapes.push(shape);
    }
    let parts = parts(gpu, &inputs, &work)?;
    let sources: Vec<&Array> = match parts.is_empty() {
        true => inputs.iter().map(|set| largest(set)).collect(),
        false => parts.iter().collect(),
    };
    let mut targets: Vec<Array> = sources.iter().map(|from| Array::like(gpu, from)).collect::<Result<Vec<_>>>()?;
    let mut peers = Vec::new();
    // Device events see no copy on a Mac: its CPU makes them, in memory that it shares with the GPU.
    match gpu.backend() {
        Backend::Metal => run.notes.push("no device copy: on a Mac it is the CPU that copies".to_string()),
        _ => peers.push(copy(&sources, &mut targets)),
    }
    peers.extend(ladder.vendor(gpu, size, &mut run.notes)?);
    peers.extend(more(&Job { ladder, size, work, sets: &sets, exact: &exact })?);

    let mut contestants = Vec::new();
    for ((path, rung), shape) in rungs.iter().zip(&shapes) {
        let outputs = &outputs[shape];
        let queue = |set: usize| rung.call(&inputs[set], &mut outputs.borrow_mut()[set], size, &mut Launches::queue());
        let error = checked(&mut outputs.borrow_mut()[0], &exact, |set, arrays| {
            rung.call(&inputs[set], arrays, size, &mut Launches::queue())
        })?;
        if error.is_nan() || error > WRONG {
            return Err(super::wrong(path, format!("size {size}: off by {error:.1e} of the result")));
        }
        run.lines.push(RunLine::rung(path, error, work.unit()));
        contestants.push(Contestant::Calls(Box::new(move |call| queue(call % count))));
    }
    let outputs = &outputs[&shapes[0]];
    for peer in peers {
        let Peer { name, mut error, work: peer_work } = peer;
        let copies = name == COPY;
        contestants.push(match peer_work {
            PeerWork::OnArrays(mut call) => {
                let call_on = |set: usize, arrays: &mut [Array]| call(&inputs[set], arrays);
                error = Some(checked(&mut outputs.borrow_mut()[0], &exact, call_on)?);
                let inputs = &inputs;
                Contestant::Calls(Box::new(move |at| {
                    let set = at % count;
                    call(&inputs[set], &mut outputs.borrow_mut()[set])
                }))
            }
            PeerWork::Calls(call) => Contestant::Calls(call),
            PeerWork::Clocked(sample) => Contestant::Clocked(sample),
        });
        run.lines.push(RunLine::peer(&name, error, if copies { "GB/s" } else { work.unit() }));
    }
    let copied = 2 * sources[0].bytes();
    let samples = gpu.time_interleaved(plan, &mut contestants)?;
    let rates: Vec<Vec<f64>> = run
        .lines
        .iter()
        .zip(&samples)
        .map(|(line, samples)| {
            let rate = |&ms: &f64| if line.name == COPY { copied as f64 / ms / 1e6 } else { work.rate(ms) };
            samples.iter().map(rate).collect()
        })
        .collect();
    let peers: Vec<(usize, RunLine)> =
        run.lines.iter().cloned().enumerate().filter(|(_, line)| line.is_peer()).collect();
    for (at, line) in run.lines.iter_mut().enumerate() {
        (line.time, line.rate) = (Summary::of(&samples[at]), Summary::of(&rates[at]));
        if line.is_peer() {
            continue;
        }
        for (peer_at, peer) in peers.iter().filter(|(_, peer)| peer.unit == line.unit) {
            let ratios: Vec<f64> = rates[at].iter().zip(&rates[*peer_at]).map(|(ours, theirs)| ours / theirs).collect();
            line.against.push((peer.name.clone(), Summary::of(&ratios)));
        }
    }
    Ok(run)
}

/// The rungs that this GPU runs; the others go into the notes.
fn open(ladder: Ladder, gpu: &Gpu, size: Size, run: &mut LadderRun) -> Result<Vec<(&'static str, Box<dyn Topic>)>> {
    let mut rungs = Vec::new();
    for rung in ladder.rungs() {
        match rung.supported_on(gpu).and_then(|()| ladder.open(gpu, rung.path)) {
            Ok(opened) => {
                if let Some(other) = opened.hands_to(size) {
                    run.notes.push(format!("`{}` hands this size to `{other}`", rung.path));
                }
                rungs.push((rung.path, opened));
            }
            // Too old a GPU, or blocks with more shared memory than its multiprocessors have.
            Err(error @ (Error::Unsupported { .. } | Error::LaunchLimit { .. })) => {
                let why = reason(&error);
                let who = if why.contains(rung.path) { String::new() } else { format!("`{}`: ", rung.path) };
                run.notes.push(format!("left out: {who}{why}"));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(rungs)
}

/// Calls it on each set of inputs, with poisoned outputs, and gives its error.
fn checked(
    outputs: &mut [Array],
    exact: &[Vec<Exact>],
    mut call: impl FnMut(usize, &mut [Array]) -> Result<()>,
) -> Result<f64> {
    let needed = exact.iter().flatten().map(|piece| piece.output).max().map_or(0, |last| last + 1);
    relative_error(exact, |set| {
        outputs.iter_mut().try_for_each(Array::poison)?;
        call(set, outputs)?;
        outputs[..needed].iter().map(Array::to_host).collect()
    })
}

fn largest(set: &[Array]) -> &Array {
    set.iter().max_by_key(|array| array.bytes()).expect("a topic reads at least one array")
}

/// What the copy reads where the largest input is more than a call moves, such as a table of which it needs a few rows:
/// random numbers, half as many bytes as the call moves, for each set. Else none: the copy reads the largest input.
fn parts(gpu: &Gpu, inputs: &[Vec<Array>], work: &Work) -> Result<Vec<Array>> {
    let part = |seed| Array::new(gpu, &Host::F32(cpu::random_f32(work.bytes / 2 / size_of::<f32>(), seed)));
    let whole = |set: &Vec<Array>| largest(set).bytes() <= work.bytes;
    if inputs.iter().all(whole) { Ok(Vec::new()) } else { (0..inputs.len() as u64).map(part).collect() }
}

/// A copy in device memory, of another array in each turn.
fn copy<'a>(sources: &'a [&'a Array], targets: &'a mut [Array]) -> Peer<'a> {
    let work = move |call: usize| {
        let set = call % sources.len();
        targets[set].copy_from(sources[set])
    };
    Peer { name: COPY.to_string(), error: None, work: PeerWork::Calls(Box::new(work)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The arrays, the call and the reference of every topic fit together. The rungs' own tests know more sizes.
    #[test]
    fn every_rung_is_right_on_the_shared_arrays() {
        let gpu = Gpu::simulated().unwrap();
        for &ladder in Ladder::ALL {
            let size = [Size::One(5000), Size::Two(33, 104), Size::Three(33, 40, 24), Size::Three(2, 33, 64)]
                .into_iter()
                .find(|&size| ladder.size(size).is_ok_and(|taken| taken == size))
                .unwrap();
            for path in ladder.rungs().iter().filter(|rung| !rung.only).map(|rung| rung.path) {
                let rung = ladder.open(&gpu, path).unwrap_or_else(|error| panic!("{error}"));
                let hosts = rung.inputs(size, 3).unwrap();
                let inputs: Vec<Array> = hosts.iter().map(|host| Array::new(&gpu, host).unwrap()).collect();
                let room = rung.room(size).unwrap();
                let mut outputs: Vec<Array> = room.iter().map(|&room| Array::poisoned(&gpu, room).unwrap()).collect();
                let call = |_, outputs: &mut [Array]| rung.call(&inputs, outputs, size, &mut Launches::queue());
                let error = checked(&mut outputs, &[rung.exact(&hosts, size).unwrap()], call);
                let error = error.unwrap_or_else(|error| panic!("{path}: {error}"));
                assert!(error < 0.01, "{path} at {size}: {error}");
            }
        }
    }

    #[test]
    fn the_copy_moves_no_more_than_a_call() {
        let gpu = Gpu::simulated().unwrap();
        let inputs = [vec![Array::new(&gpu, &Host::F32(vec![0.0; 1000])).unwrap()]];
        let parts = |bytes| parts(&gpu, &inputs, &Work::of_bytes(bytes, 0.0, "f32")).unwrap();
        // A sum reads all of its input; a lookup a few rows of a table.
        assert!(parts(4000).is_empty());
        assert_eq!(parts(1600).iter().map(Array::bytes).collect::<Vec<_>>(), [800]);
    }

    #[test]
    fn a_number_that_is_never_written_shows() {
        let gpu = Gpu::simulated().unwrap();
        let mut outputs = [Array::poisoned(&gpu, Room::F32(8)).unwrap()];
        let exact = [vec![Exact { output: 0, from: 2, values: vec![1.0] }]];
        assert!(checked(&mut outputs, &exact, |_, _| Ok(())).unwrap().is_nan());
    }
}
