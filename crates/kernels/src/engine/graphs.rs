//! Which work becomes a CUDA graph, and what happens where there is no memory for one.

use gpulab::error::Result;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;

/// Work that is queued as one graph or launch by launch. What a shape queues depends on nothing but the shape.
pub(super) trait Work {
    /// What tells one piece of work from another.
    type Shape: Copy + Eq + Hash;
    /// What was captured.
    type Graph;

    /// Captures the launches of a shape; nothing runs yet. What was half captured is gone when this fails.
    fn capture(&mut self, shape: Self::Shape) -> Result<Self::Graph>;

    /// Queues what was captured.
    fn launch(&mut self, graph: &mut Self::Graph) -> Result<()>;

    /// Queues the launches of a shape, one by one.
    fn queue(&mut self, shape: Self::Shape) -> Result<()>;
}

/// Graphs by their shapes. To capture one costs about as much as some launches of its work, and each takes memory of the driver's: so a shape is
/// captured when it has come often enough, and of too many graphs the one goes that was not used for longest.
#[derive(Debug)]
pub(super) struct Graphs<S, G> {
    known: HashMap<S, Known<G>>,
    /// How many graphs are kept.
    most: usize,
    /// Pieces of work so far.
    now: u64,
    /// No graph is captured before that piece of work.
    not_before: u64,
    failures: u64,
}

#[derive(Debug)]
struct Known<G> {
    graph: Option<G>,
    seen: u32,
    used: u64,
}

/// For so many pieces of work no other graph is tried, where there was no memory for one.
const PAUSE: u64 = 256;
/// Shapes without a graph that are counted.
const COUNTED: usize = 1024;

impl<S: Copy + Eq + Hash, G> Graphs<S, G> {
    /// Room for that many graphs.
    pub(super) fn new(most: usize) -> Graphs<S, G> {
        Graphs { known: HashMap::new(), most, now: 0, not_before: 0, failures: 0 }
    }

    /// How often there was no memory for a graph.
    pub(super) fn failures(&self) -> u64 {
        self.failures
    }

    /// Queues a shape's work: as a graph from the `often`-th time on, launch by launch before and where there is no memory for a graph.
    pub(super) fn run(&mut self, work: &mut impl Work<Shape = S, Graph = G>, shape: S, often: u32) -> Result<()> {
        self.now += 1;
        let now = self.now;
        if let Entry::Vacant(new) = self.known.entry(shape) {
            new.insert(Known { graph: None, seen: 0, used: now });
            self.forget();
        }
        let Some(known) = self.known.get_mut(&shape) else { unreachable!("what is forgotten is older") };
        (known.seen, known.used) = (known.seen.saturating_add(1), now);
        if known.graph.is_none() && known.seen >= often && now >= self.not_before {
            match work.capture(shape) {
                Ok(graph) => known.graph = Some(graph),
                Err(error) if error.is_out_of_memory() => self.failed(),
                Err(error) => return Err(error),
            }
            self.forget();
        }
        let Entry::Occupied(mut known) = self.known.entry(shape) else { unreachable!("it was just used") };
        let Some(graph) = &mut known.get_mut().graph else { return work.queue(shape) };
        match work.launch(graph) {
            // The driver gets memory for a graph at its first launch, perhaps. Nothing of it has run.
            Err(error) if error.is_out_of_memory() => {
                known.remove();
                self.failed();
                work.queue(shape)
            }
            told => told,
        }
    }

    fn failed(&mut self) {
        self.failures += 1;
        self.not_before = self.now + PAUSE;
    }

    /// Lets go of the graph that was not used for longest, and of old counts.
    fn forget(&mut self) {
        let oldest = |known: &HashMap<S, Known<G>>, kept: bool| {
            let of_kind = known.iter().filter(|(_, known)| known.graph.is_some() == kept);
            of_kind.min_by_key(|(_, known)| known.used).map(|(shape, _)| *shape)
        };
        let graphs = self.known.values().filter(|known| known.graph.is_some()).count();
        for (kept, count, most) in [(true, graphs, self.most), (false, self.known.len() - graphs, COUNTED)] {
            if count > most
                && let Some(shape) = oldest(&self.known, kept)
            {
                self.known.remove(&shape);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab::error::Error;

    /// Work that says how it was queued, on a GPU whose memory may be full.
    #[derive(Default)]
    struct Told {
        full: bool,
        full_at_launch: bool,
        broken: bool,
        captured: Vec<u32>,
        launched: Vec<u32>,
        queued: Vec<u32>,
    }

    fn driver(code: &str) -> Error {
        let [during, text, fix] = ["capturing a graph", "words", "something"].map(str::to_string);
        Error::Driver { during, code: code.to_string(), text, fix }
    }

    impl Work for Told {
        type Shape = u32;
        type Graph = u32;

        fn capture(&mut self, shape: u32) -> Result<u32> {
            match (self.full, self.broken) {
                (true, _) => Err(driver("CUDA_ERROR_OUT_OF_MEMORY")),
                (_, true) => Err(driver("CUDA_ERROR_ILLEGAL_ADDRESS")),
                _ => {
                    self.captured.push(shape);
                    Ok(shape)
                }
            }
        }

        fn launch(&mut self, graph: &mut u32) -> Result<()> {
            if self.full_at_launch {
                return Err(Error::OutOfMemory { asked: 2, free: 1, total: 1, reserved: 0 });
            }
            self.launched.push(*graph);
            Ok(())
        }

        fn queue(&mut self, shape: u32) -> Result<()> {
            self.queued.push(shape);
            Ok(())
        }
    }

    #[test]
    fn a_shape_is_captured_when_it_has_come_often_enough_and_only_once() {
        let (mut graphs, mut work) = (Graphs::new(4), Told::default());
        for shape in [7, 8, 7, 7, 8] {
            graphs.run(&mut work, shape, if shape == 8 { 1 } else { 3 }).unwrap();
        }
        assert_eq!((work.queued, work.captured, work.launched), (vec![7, 7], vec![8, 7], vec![8, 7, 8]));
        assert_eq!(graphs.failures(), 0);
    }

    #[test]
    fn without_memory_for_a_graph_each_step_is_still_queued_once_and_graphs_come_back_later() {
        for at_launch in [false, true] {
            let (mut graphs, mut work) = (Graphs::new(4), Told::default());
            graphs.run(&mut work, 1, 1).unwrap();
            (work.full, work.full_at_launch) = (!at_launch, at_launch);
            for _ in 0..PAUSE {
                graphs.run(&mut work, 2, 1).unwrap();
            }
            // It was tried once, and not in each step.
            assert_eq!((graphs.failures(), work.queued.len() as u64), (1, PAUSE), "{at_launch}");
            (work.full, work.full_at_launch) = (false, false);
            graphs.run(&mut work, 1, 1).unwrap();
            graphs.run(&mut work, 2, 1).unwrap();
            assert_eq!((&work.launched[..], work.queued.len() as u64), (&[1, 1, 2][..], PAUSE));
        }
    }

    #[test]
    fn another_error_is_no_lack_of_memory() {
        let (mut graphs, mut work) = (Graphs::new(4), Told { broken: true, ..Told::default() });
        assert!(graphs.run(&mut work, 1, 1).unwrap_err().to_string().contains("ILLEGAL_ADDRESS"));
        assert_eq!((work.queued.len(), graphs.failures()), (0, 0));
        work.broken = false;
        graphs.run(&mut work, 1, 1).unwrap();
        assert_eq!(work.launched, [1]);
    }

    #[test]
    fn of_too_many_graphs_the_one_goes_that_was_not_used_for_longest() {
        let (mut graphs, mut work) = (Graphs::new(2), Told::default());
        for shape in [1, 2, 1, 3, 1, 2] {
            graphs.run(&mut work, shape, 1).unwrap();
        }
        assert_eq!(work.captured, [1, 2, 3, 2]);
        assert_eq!(graphs.known.len(), 2);
        for shape in 10..10 + 2 * COUNTED as u32 {
            graphs.run(&mut work, shape, 2).unwrap();
            graphs.run(&mut work, 1, 1).unwrap();
        }
        assert!(graphs.known.len() <= COUNTED + 3, "{}", graphs.known.len());
    }
}
