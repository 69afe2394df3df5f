//! What all topics have in common (arrays, cost, launches), so that one program runs, times and inspects every ladder.
//!
//! A new topic is a type such as [`Reduction`](super::Reduction) in a file of its own here, with `new(&gpu, path)` that
//! compiles a rung and checks it at awkward sizes, and an implementation of [`Topic`]; and a variant of
//! [`Ladder`](super::Ladder), whose `match`es then ask for the rest.

use super::Size;
use super::errors::wrong;
use gpulab::bench::Bench;
use gpulab::cpu;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Args, Buffer, Gpu, Kernel, KernelResources};
use gpulab::inspect::Inspection;
use gpulab::launch::{LaunchAttributes, LaunchConfig};
use gpulab::measurement::Summary;
use rayon::prelude::*;

/// One rung of a topic, compiled and checked. All rungs of a topic work on the same arrays.
pub trait Topic: Sync {
    /// The GPU that it was compiled for.
    fn gpu(&self) -> &Gpu;

    /// What a call at that size must do at least, whatever the rung; refuses sizes that are none.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid).
    fn work(&self, size: Size) -> Result<Cost>;

    /// Random arrays that a call reads, in the order in which [`Topic::call`] takes them; another `seed`, other numbers.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for a size that is none.
    fn inputs(&self, size: Size, seed: u64) -> Result<Vec<HostArray>>;

    /// The arrays that a call writes, results first. Rungs that ask for the same share them.
    ///
    /// # Errors
    /// As [`Topic::inputs`].
    fn outputs(&self, size: Size) -> Result<Vec<Allocation>>;

    /// Queues one call. Each launch goes through `launches`, which runs it, or looks into it.
    ///
    /// # Errors
    /// As [`Kernel::launch`]; [`Error::LengthMismatch`](gpulab::Error::LengthMismatch) for arrays of another size.
    fn call(&self, inputs: &[Array], outputs: &mut [Array], size: Size, launches: &mut Launches) -> Result<()>;

    /// How many rows the results have at that size, and of how many an error in a timed run shows.
    ///
    /// # Errors
    /// As [`Topic::inputs`].
    fn rows(&self, size: Size) -> Result<(usize, usize)>;

    /// That row of each result in f64.
    ///
    /// # Errors
    /// As [`Topic::inputs`].
    fn exact_row(&self, inputs: &[HostArray], size: Size, row: usize) -> Result<Vec<Reference>>;

    /// The path of the rung that takes this size, where it is not the rung itself.
    fn hands_to(&self, _size: Size) -> Option<&'static str> {
        None
    }

    /// The results in f64, at rows spread over the outputs: enough of them that an error shows.
    ///
    /// # Errors
    /// As [`Topic::inputs`].
    fn exact(&self, inputs: &[HostArray], size: Size) -> Result<Vec<Reference>> {
        let (all, enough) = self.rows(size)?;
        let rows = spread_rows(all, enough).into_par_iter().map(|row| self.exact_row(inputs, size, row));
        Ok(rows.collect::<Result<Vec<_>>>()?.concat())
    }

    /// Random inputs of that seed in device memory, and poisoned memory for the outputs.
    ///
    /// # Errors
    /// As [`Topic::inputs`], [`Gpu::to_device`](gpulab::gpu::Gpu::to_device).
    fn arrays(&self, size: Size, seed: u64) -> Result<(Vec<Array>, Vec<Array>)> {
        // First what fails where there is no room, before the host makes as many numbers.
        let outputs = poisoned(self.gpu(), &self.outputs(size)?)?;
        Ok((on_gpu(self.gpu(), &self.inputs(size, seed)?)?, outputs))
    }

    /// All four steps: allocates, copies the inputs to the device, queues a call, and copies the outputs back.
    ///
    /// # Errors
    /// As [`Topic::call`]; [`Error::OutOfMemory`](gpulab::Error::OutOfMemory).
    fn results(&self, inputs: &[HostArray], size: Size) -> Result<Vec<HostArray>> {
        // Poisoned: a number that the kernel forgets comes back as NaN.
        let mut outputs = poisoned(self.gpu(), &self.outputs(size)?)?;
        self.call(&on_gpu(self.gpu(), inputs)?, &mut outputs, size, &mut Launches::queue())?;
        outputs.iter().map(Array::to_host).collect()
    }

    /// The launches alone, by device events, in **ms per call**: the arrays are on the GPU already. Several sets of them
    /// are rotated, so that none is still in the cache from its last turn.
    ///
    /// # Errors
    /// [`Error::Unsupported`](gpulab::Error::Unsupported) on a simulated GPU; those of [`Topic::arrays`] and
    /// [`Topic::call`].
    fn time(&self, size: Size, plan: &Bench) -> Result<Summary> {
        self.gpu().has_times()?;
        let work = self.work(size)?;
        let count = self.gpu().sets_past_cache(work.bytes);
        fits(self.gpu(), &work, count)?;
        let mut sets = (0..count as u64).map(|seed| self.arrays(size, seed)).collect::<Result<Vec<_>>>()?;
        self.gpu().time(plan, |call| {
            let (inputs, outputs) = &mut sets[call % count];
            self.call(inputs, outputs, size, &mut Launches::queue())
        })
    }
}

/// Holds every number of the results of one call on those inputs against f64.
///
/// # Errors
/// [`Error::Invalid`] that names the first number that is wrong, or was never written; as [`Topic::results`].
pub(super) fn check(topic: &impl Topic, path: &str, inputs: &[HostArray], size: impl Into<Size>) -> Result<()> {
    let size = size.into();
    let given = topic.results(inputs, size)?;
    for row in 0..topic.rows(size)?.0 {
        for piece in topic.exact_row(inputs, size, row)? {
            if let Some(what) = piece.wrong_in(&given) {
                return Err(wrong(path, format!("size {size}, row {row}, {what}")));
            }
        }
    }
    Ok(())
}

/// An error that names the first number of these that is wrong, or was never written.
pub(super) fn check_at(path: &str, place: &str, given: &[HostArray], exact: Vec<Vec<Reference>>) -> Result<()> {
    let first = exact.iter().flatten().find_map(|piece| Some((piece.from, piece.wrong_in(given)?)));
    first.map_or(Ok(()), |(from, what)| Err(wrong(path, format!("{place}, from number {from} on, {what}"))))
}

/// An error where so many sets of arrays have no room.
pub(crate) fn fits(gpu: &Gpu, work: &Cost, sets: usize) -> Result<()> {
    let (asked, stats) = ((work.held as u64).saturating_mul(sets as u64), gpu.memory()?);
    match asked > stats.total {
        true => Err(Error::OutOfMemory { asked, free: stats.free, total: stats.total, reserved: 0 }),
        false => Ok(()),
    }
}

/// Copies of those arrays in device memory.
///
/// # Errors
/// As [`Gpu::to_device`](gpulab::gpu::Gpu::to_device).
pub(crate) fn on_gpu(gpu: &Gpu, hosts: &[HostArray]) -> Result<Vec<Array>> {
    hosts.iter().map(|host| Array::new(gpu, host)).collect()
}

/// Poisoned memory for those arrays.
///
/// # Errors
/// As [`Gpu::poison`](gpulab::gpu::Gpu::poison).
pub(crate) fn poisoned(gpu: &Gpu, allocations: &[Allocation]) -> Result<Vec<Array>> {
    allocations.iter().map(|&allocation| Array::poisoned(gpu, allocation)).collect()
}

/// What a call must do at least.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// Bytes that must cross the memory's pins: each input read once, each result written once.
    pub bytes: usize,
    /// Bytes of all arrays of a call, which may be more: of a table, a call may need a few rows.
    pub held: usize,
    /// Additions and multiplications.
    pub operations: f64,
    /// The elements' type, `f32` or `bf16`.
    pub dtype: &'static str,
    /// What bounds it, and so what its rate counts.
    pub bound: Bound,
}

/// What a topic's speed is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bound {
    /// Memory: GB/s.
    Memory,
    /// Arithmetic: TFLOP/s.
    Arithmetic,
}

impl Cost {
    /// Work that memory bounds.
    pub fn of_bytes(bytes: usize, operations: f64, dtype: &'static str) -> Cost {
        Cost { bytes, held: bytes, operations, dtype, bound: Bound::Memory }
    }

    /// Work that arithmetic bounds.
    pub fn of_operations(operations: f64, bytes: usize, dtype: &'static str) -> Cost {
        Cost { bytes, held: bytes, operations, dtype, bound: Bound::Arithmetic }
    }

    /// The same, where the arrays hold more bytes than a call must move.
    pub fn holding(self, held: usize) -> Cost {
        Cost { held, ..self }
    }

    /// The unit of its rate.
    pub fn unit(&self) -> &'static str {
        match self.bound {
            Bound::Memory => "GB/s",
            Bound::Arithmetic => "TFLOP/s",
        }
    }

    /// The rate of a call that takes so many ms.
    pub fn rate(&self, ms: f64) -> f64 {
        match self.bound {
            Bound::Memory => self.bytes as f64 / ms / 1e6,
            Bound::Arithmetic => self.operations / ms / 1e9,
        }
    }
}

/// A piece of a result in f64: numbers `from` to `from + values.len()` of that output.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// Which output, counted from 0.
    pub output: usize,
    /// Its first number.
    pub from: usize,
    /// What stands there.
    pub values: Vec<f64>,
    /// How far off each number of a right kernel may be.
    pub allowed: Vec<f64>,
}

impl Reference {
    /// Those numbers of the output, from `from` on; number `at` of them may be `allowed(at, its exact value)` off.
    pub fn new(output: usize, from: usize, values: Vec<f64>, allowed: impl Fn(usize, f64) -> f64) -> Reference {
        let allowed = values.iter().enumerate().map(|(at, &exact)| allowed(at, exact)).collect();
        Reference { output, from, values, allowed }
    }

    /// The first number that is further off, or was never written, in words.
    pub(super) fn wrong_in(&self, given: &[HostArray]) -> Option<String> {
        let given = &given[self.output];
        let right = |at: usize| {
            let (number, exact) = (given.get(self.from + at), self.values[at]);
            let close = (number - exact).abs() <= self.allowed[at] || (number.is_nan() && exact.is_nan());
            close && !given.is_poison(self.from + at)
        };
        let at = (0..self.values.len()).find(|&at| !right(at))?;
        let (number, exact) = (given.get(self.from + at), self.values[at]);
        Some(format!("number {at} of output {}: {number} on the GPU, {exact} exactly", self.output))
    }
}

/// ‖given − exact‖ ÷ ‖exact‖ over those pieces of the results of several calls, each on its own set of inputs. NaN, which
/// was never written, makes it NaN.
///
/// # Errors
/// Those of `given`, which is asked for the outputs of each call.
///
/// # Panics
/// When a piece lies outside its output: a mistake of the topic.
pub fn relative_error(exact: &[Vec<Reference>], mut given: impl FnMut(usize) -> Result<Vec<HostArray>>) -> Result<f64> {
    let (mut off, mut all) = (0.0, 0.0);
    for (set, pieces) in exact.iter().enumerate() {
        let outputs = given(set)?;
        for piece in pieces {
            for (at, value) in piece.values.iter().enumerate() {
                off += (outputs[piece.output].get(piece.from + at) - value).powi(2);
                all += value * value;
            }
        }
    }
    Ok(if off == 0.0 { 0.0 } else { (off / all).sqrt() })
}

/// `count` of `all` rows (all, if there are fewer), spread evenly, with the first and the last.
pub fn spread_rows(all: usize, count: usize) -> Vec<usize> {
    match all.min(count) {
        0 => Vec::new(),
        1 => vec![0],
        rows => (0..rows).map(|at| at * (all - 1) / (rows - 1)).collect(),
    }
}

/// How the launches of a call go out.
#[derive(Debug, Default)]
pub struct Launches {
    mode: Mode,
    /// What the call must do, when it is looked into.
    pub work: Option<Cost>,
    /// What each launch did, when they are looked into.
    pub inspections: Vec<Inspection>,
    /// Each launch's shape, and what its kernel needs, when that is asked for.
    pub resources: Vec<(LaunchConfig, KernelResources)>,
}

#[derive(Debug, Default)]
enum Mode {
    #[default]
    Queue,
    Inspect,
    Resources,
}

impl Launches {
    /// Queues each on the default stream.
    pub fn queue() -> Launches {
        Launches::default()
    }

    /// Runs each in the simulator, and keeps what it did.
    pub fn inspect() -> Launches {
        Launches { mode: Mode::Inspect, ..Launches::default() }
    }

    /// Launches nothing, and asks the driver what each kernel needs.
    pub fn resources() -> Launches {
        Launches { mode: Mode::Resources, ..Launches::default() }
    }

    /// Whether somebody looks at the kernel: then it is to be the rung's own, whatever would be faster at that size.
    pub fn look(&self) -> bool {
        !matches!(self.mode, Mode::Queue)
    }

    /// One launch.
    ///
    /// # Errors
    /// As [`Kernel::launch`], [`Kernel::inspect`], [`Kernel::resources`].
    pub fn launch<'a>(&mut self, kernel: &Kernel, config: LaunchConfig, args: impl Args<'a>) -> Result<()> {
        self.launch_with(kernel, config, LaunchAttributes::NONE, args)
    }

    /// One launch with attributes, of which those that look into it take no notice.
    ///
    /// # Errors
    /// As [`Kernel::launch_with`], [`Kernel::inspect`], [`Kernel::resources`].
    pub fn launch_with<'a>(
        &mut self,
        kernel: &Kernel,
        config: LaunchConfig,
        attributes: LaunchAttributes,
        args: impl Args<'a>,
    ) -> Result<()> {
        match self.mode {
            Mode::Queue => kernel.launch_with(config, attributes, args),
            Mode::Inspect => kernel.inspect(config, args).map(|seen| self.inspections.push(seen)),
            Mode::Resources => kernel.resources(config).map(|needs| self.resources.push((config, needs))),
        }
    }
}

/// Numbers on the host.
#[derive(Debug, Clone, PartialEq)]
pub enum HostArray {
    /// f32.
    F32(Vec<f32>),
    /// bf16, as bits.
    Bf16(Vec<u16>),
    /// Positions in another array.
    Index(Vec<i32>),
    /// Codes of few bits, several in a word.
    Codes(Vec<u32>),
}

/// Numbers in device memory.
#[derive(Debug)]
pub enum Array {
    /// f32.
    F32(Buffer<f32>),
    /// bf16, as bits.
    Bf16(Buffer<u16>),
    /// Positions in another array.
    Index(Buffer<i32>),
    /// Codes of few bits, several in a word.
    Codes(Buffer<u32>),
}

/// An array that a rung writes: what it holds, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Allocation {
    /// So many f32.
    F32(usize),
    /// So many bf16.
    Bf16(usize),
}

impl HostArray {
    /// Its bytes, as they lie in memory.
    pub fn bytes(&self) -> &[u8] {
        match self {
            HostArray::F32(numbers) => gpulab::launch::as_bytes(numbers),
            HostArray::Bf16(numbers) => gpulab::launch::as_bytes(numbers),
            HostArray::Index(numbers) => gpulab::launch::as_bytes(numbers),
            HostArray::Codes(words) => gpulab::launch::as_bytes(words),
        }
    }

    /// What it holds: `f32`, `bf16`, `i32`, or `u32` for words of codes.
    pub fn dtype(&self) -> &'static str {
        match self {
            HostArray::F32(_) => "f32",
            HostArray::Bf16(_) => "bf16",
            HostArray::Index(_) => "i32",
            HostArray::Codes(_) => "u32",
        }
    }

    /// How many numbers; of codes, how many words.
    pub fn len(&self) -> usize {
        match self {
            HostArray::F32(numbers) => numbers.len(),
            HostArray::Bf16(numbers) => numbers.len(),
            HostArray::Index(numbers) => numbers.len(),
            HostArray::Codes(words) => words.len(),
        }
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number `at`, exactly; of codes, their word.
    pub fn get(&self, at: usize) -> f64 {
        match self {
            HostArray::F32(numbers) => f64::from(numbers[at]),
            HostArray::Bf16(numbers) => f64::from(cpu::f32_from_bf16(numbers[at])),
            HostArray::Index(numbers) => f64::from(numbers[at]),
            HostArray::Codes(words) => f64::from(words[at]),
        }
    }

    /// Whether number `at` still is what poisoned memory holds.
    pub(super) fn is_poison(&self, at: usize) -> bool {
        let number = self.bytes().chunks(self.bytes().len() / self.len()).nth(at);
        number.is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0xFF))
    }

    /// Numbers `from` to `from + count`, exactly.
    pub fn part(&self, from: usize, count: usize) -> Vec<f64> {
        (from..from + count).map(|at| self.get(at)).collect()
    }
}

impl Array {
    /// A copy in device memory.
    ///
    /// # Errors
    /// As [`Gpu::to_device`].
    pub fn new(gpu: &Gpu, host: &HostArray) -> Result<Array> {
        Ok(match host {
            HostArray::F32(numbers) => Array::F32(gpu.to_device(numbers)?),
            HostArray::Bf16(numbers) => Array::Bf16(gpu.to_device(numbers)?),
            HostArray::Index(numbers) => Array::Index(gpu.to_device(numbers)?),
            HostArray::Codes(words) => Array::Codes(gpu.to_device(words)?),
        })
    }

    /// Poisoned: all bits set, so that a number that no kernel writes is NaN.
    ///
    /// # Errors
    /// As [`Gpu::poison`].
    pub fn poisoned(gpu: &Gpu, allocation: Allocation) -> Result<Array> {
        Ok(match allocation {
            Allocation::F32(len) => Array::F32(gpu.poison(len)?),
            Allocation::Bf16(len) => Array::Bf16(gpu.poison(len)?),
        })
    }

    /// Poisons it anew.
    ///
    /// # Errors
    /// As [`Buffer::fill_bytes`].
    pub fn poison(&mut self) -> Result<()> {
        match self {
            Array::F32(buffer) => buffer.fill_bytes(0xFF),
            Array::Bf16(buffer) => buffer.fill_bytes(0xFF),
            Array::Index(buffer) => buffer.fill_bytes(0xFF),
            Array::Codes(buffer) => buffer.fill_bytes(0xFF),
        }
    }

    /// Allocation for as much, poisoned.
    ///
    /// # Errors
    /// As [`Gpu::poison`].
    pub fn like(gpu: &Gpu, other: &Array) -> Result<Array> {
        Ok(match other {
            Array::F32(buffer) => Array::F32(gpu.poison(buffer.len())?),
            Array::Bf16(buffer) => Array::Bf16(gpu.poison(buffer.len())?),
            Array::Index(buffer) => Array::Index(gpu.poison(buffer.len())?),
            Array::Codes(buffer) => Array::Codes(gpu.poison(buffer.len())?),
        })
    }

    /// Copies another one of the same kind and length, in device memory.
    ///
    /// # Errors
    /// As [`Buffer::copy_from_buffer`]; [`Error::Invalid`] for another kind.
    pub fn copy_from(&mut self, other: &Array) -> Result<()> {
        match (self, other) {
            (Array::F32(to), Array::F32(from)) => to.copy_from_buffer(from),
            (Array::Bf16(to), Array::Bf16(from)) => to.copy_from_buffer(from),
            (Array::Index(to), Array::Index(from)) => to.copy_from_buffer(from),
            (Array::Codes(to), Array::Codes(from)) => to.copy_from_buffer(from),
            (to, _) => Err(other.other(&format!("the kind of {to:?}"))),
        }
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Array::F32(buffer) => buffer.bytes(),
            Array::Bf16(buffer) => buffer.bytes(),
            Array::Index(buffer) => buffer.bytes(),
            Array::Codes(buffer) => buffer.bytes(),
        }
    }

    /// A copy on the host.
    ///
    /// # Errors
    /// As [`Buffer::to_host`].
    pub fn to_host(&self) -> Result<HostArray> {
        Ok(match self {
            Array::F32(buffer) => HostArray::F32(buffer.to_host()?),
            Array::Bf16(buffer) => HostArray::Bf16(buffer.to_host()?),
            Array::Index(buffer) => HostArray::Index(buffer.to_host()?),
            Array::Codes(buffer) => HostArray::Codes(buffer.to_host()?),
        })
    }

    /// Its f32.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it holds something else; so do its siblings.
    pub fn f32(&self) -> Result<&Buffer<f32>> {
        if let Array::F32(buffer) = self { Ok(buffer) } else { Err(self.other("f32")) }
    }

    /// Its f32, to be written.
    ///
    /// # Errors
    /// As [`Array::f32`].
    pub fn f32_mut(&mut self) -> Result<&mut Buffer<f32>> {
        if let Array::F32(buffer) = self { Ok(buffer) } else { Err(self.other("f32")) }
    }

    /// Its bf16.
    ///
    /// # Errors
    /// As [`Array::f32`].
    pub fn bf16(&self) -> Result<&Buffer<u16>> {
        if let Array::Bf16(buffer) = self { Ok(buffer) } else { Err(self.other("bf16")) }
    }

    /// Its bf16, to be written.
    ///
    /// # Errors
    /// As [`Array::f32`].
    pub fn bf16_mut(&mut self) -> Result<&mut Buffer<u16>> {
        if let Array::Bf16(buffer) = self { Ok(buffer) } else { Err(self.other("bf16")) }
    }

    /// Its indices.
    ///
    /// # Errors
    /// As [`Array::f32`].
    pub fn index(&self) -> Result<&Buffer<i32>> {
        if let Array::Index(buffer) = self { Ok(buffer) } else { Err(self.other("indices")) }
    }

    /// Its words of codes.
    ///
    /// # Errors
    /// As [`Array::f32`].
    pub fn codes(&self) -> Result<&Buffer<u32>> {
        if let Array::Codes(buffer) = self { Ok(buffer) } else { Err(self.other("codes")) }
    }

    fn other(&self, wanted: &str) -> Error {
        Error::invalid(
            format!("an array of {wanted} is needed here, and this is {self:?}"),
            "look at the topic's `inputs` and `outputs`: they give the arrays in the order of `call`",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_relative_and_nan_shows() {
        let exact = [vec![Reference::new(1, 1, vec![3.0, 4.0], |_, _| 0.0)]];
        let error = |given: Vec<f32>| {
            relative_error(&exact, |_| Ok(vec![HostArray::F32(vec![]), HostArray::F32(given.clone())])).unwrap()
        };
        assert_eq!((error(vec![9.0, 3.0, 4.0]), error(vec![0.0, 3.0, 4.5])), (0.0, 0.1));
        assert!(error(vec![0.0, f32::NAN, 4.0]).is_nan());
        // Of two calls, one is off by 0.5 and the other by nothing.
        let one = |value| vec![Reference::new(0, 0, vec![value], |_, _| 0.0)];
        let twice = relative_error(&[one(3.0), one(4.0)], |set| Ok(vec![HostArray::F32(vec![[3.0, 4.5][set]])]));
        assert_eq!(twice, Ok(0.1));
    }

    #[test]
    fn a_wrong_or_unwritten_number_is_named() {
        let piece = Reference::new(1, 1, vec![3.0, f64::NAN], |_, exact| exact * 2.0_f64.powi(-8));
        let wrong = |numbers: [f32; 2]| {
            piece.wrong_in(&[HostArray::F32(vec![]), HostArray::F32([&[9.0], &numbers[..]].concat())])
        };
        assert_eq!((wrong([3.0, f32::NAN]), wrong([3.011, -f32::NAN])), (None, None));
        assert_eq!(wrong([3.5, f32::NAN]).unwrap(), "number 0 of output 1: 3.5 on the GPU, 3 exactly");
        assert!(wrong([3.012, f32::NAN]).is_some());
        // What a kernel forgets is found, even where NaN is right.
        let unwritten = f32::from_bits(u32::MAX);
        assert!(wrong([unwritten, f32::NAN]).unwrap().contains("number 0 of output 1: NaN on the GPU"));
        for forgotten in [unwritten, 7.0] {
            assert!(wrong([3.0, forgotten]).unwrap().contains("NaN exactly"), "{forgotten}");
        }
    }

    #[test]
    fn rows_are_spread_from_the_first_to_the_last() {
        assert_eq!([spread_rows(0, 3), spread_rows(1, 3), spread_rows(2, 3)], [vec![], vec![0], vec![0, 1]]);
        assert_eq!(spread_rows(101, 3), [0, 50, 100]);
    }
}
