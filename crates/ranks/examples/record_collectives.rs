//! Collectives on as many NVIDIA GPUs as this host has: first that they are right, then how fast, then what happens when they fail.
//!
//! `cargo run --release -p gpulab-ranks --features nccl --example record_collectives -- [--out FOLDER] [--commit HASH] [--part types,groups,peers,missing,time,tune,fail]
//! [--gpus N]`
//!
//! NCCL through `GpuRank`, and the all-reduce of our own over peer memory (`gpulab_ranks::peer`). Times are of CUDA's events, the slowest rank's,
//! medians of nine samples; "CUDA graph" is a graph of twenty calls. Rows are added to `collectives.csv` in FOLDER, in the columns of
//! `results/metrics.csv`: `size` is the bytes of the whole array, as nccl-tests counts them. `env/baselines/collectives_torch.py` adds PyTorch's,
//! and `--page` writes `collectives.md` from all rows.

use gpulab::gpu::Event;
use gpulab::prelude::*;
use gpulab::results;
use gpulab_ranks::nccl::{GpuRank, Nccl, NcclElement};
use gpulab_ranks::peer::{PeerAlgorithm, PeerElement, PeerMemory, PeerSettings};
use gpulab_ranks::{Collectives, Communicator, Op, Processes, RankEnvironment, bus_factor};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SAMPLES: usize = 9;
const GRAPH_CALLS: usize = 20;
/// Launches of such a graph in a sample.
const LAUNCHES: usize = 5;
const LIMIT: Duration = Duration::from_secs(10);

struct Settings {
    out: PathBuf,
    commit: String,
    parts: String,
    gpus: usize,
}

fn main() -> Result<()> {
    let mut settings = Settings {
        out: PathBuf::from("."),
        commit: "unknown".to_string(),
        parts: "types,groups,peers,missing,time,tune,fail".to_string(),
        gpus: usize::MAX,
    };
    let (mut arguments, mut paged) = (std::env::args().skip(1), false);
    while let Some(argument) = arguments.next() {
        let mut next = || arguments.next().expect("a value follows");
        match argument.as_str() {
            "--out" => settings.out = next().into(),
            "--commit" => settings.commit = next(),
            "--part" => settings.parts = next(),
            "--gpus" => settings.gpus = next().parse().expect("a number follows"),
            "--page" => paged = true,
            "--rank-process" => return rank_process(&next()),
            other => panic!("unknown: {other}"),
        }
    }
    if paged {
        return page(&settings.out);
    }
    let count = Gpu::count().min(settings.gpus);
    let gpus = (0..count).map(Gpu::open_index).collect::<Result<Vec<Gpu>>>()?;
    let nccl = Arc::new(Nccl::load()?);
    println!("{nccl:?}\n{} GPUs: {:?}", gpus.len(), gpus.first().map(ToString::to_string));
    let has = |part: &str| settings.parts.split(',').any(|one| one == part);
    let begin = Instant::now();
    if has("types") {
        let right = nccl.run(&gpus, nccl_is_right);
        told(right.map(|counts| format!("NCCL: {} comparisons per rank, all equal", counts[0])), begin);
    }
    if has("groups") {
        let right = nccl.run(&gpus, groups_are_right);
        told(right.map(|counts| format!("NCCL: {} groups right", counts[0])), begin);
    }
    if has("peers") {
        told(nccl.run(&gpus, peers_are_right).map(|lines| lines[0].clone()), begin);
    }
    if has("missing") && gpus.len() > 1 {
        let lines = nccl.run(&gpus, one_is_missing);
        told(lines.map(|lines| format!("a rank that does not come: {}", lines[0])), begin);
        let error = nccl.run(&gpus, |rank| match rank.rank() {
            0 => Err(Error::invalid("the loss is NaN", "lower the learning rate")),
            _ => {
                let mut x = rank.gpu().zeros::<f32>(1000)?;
                rank.all_reduce(&mut x, Op::Sum)?;
                rank.synchronize()
            }
        });
        told(error.map(|_| "NOBODY NOTICED an error of rank 0".to_string()), begin);
        let error = nccl.run(&gpus, |rank| match rank.rank() {
            0 => Ok(()),
            _ => {
                let mut x = rank.gpu().zeros::<f32>(1000)?;
                rank.all_reduce(&mut x, Op::Sum)?;
                rank.synchronize()
            }
        });
        told(error.map(|_| "NOBODY NOTICED that rank 0 skips NCCL's call".to_string()), begin);
    }
    let mut rows = Vec::new();
    if has("time") {
        rows.extend(slowest(nccl.run(&gpus, nccl_times)?));
        save(&settings, &gpus, &rows, 0)?;
        let saved = rows.len();
        rows.extend(slowest(nccl.run(&gpus, |rank| peer_times(rank, PeerSettings::default(), false))?));
        rows.extend(copies(&gpus)?);
        save(&settings, &gpus, &rows, saved)?;
        println!("{:.1} s so far", begin.elapsed().as_secs_f64());
    }
    if has("tune") {
        let saved = rows.len();
        let all = |rank: &GpuRank| {
            let rows: Vec<Vec<Row>> =
                variants().into_iter().map(|settings| peer_times(rank, settings, true)).collect::<Result<_>>()?;
            Ok(rows.concat())
        };
        rows.extend(slowest(nccl.run(&gpus, all)?));
        save(&settings, &gpus, &rows, saved)?;
        println!("{:.1} s so far", begin.elapsed().as_secs_f64());
    }
    if has("fail") {
        failures(gpus.len(), &nccl);
    }
    println!("{:.1} s in all", begin.elapsed().as_secs_f64());
    Ok(())
}

fn told(outcome: Result<String>, begin: Instant) {
    let text = outcome.unwrap_or_else(|error| format!("ERROR: {error}")).replace('\n', " ");
    println!("{:.1} s: {text}", begin.elapsed().as_secs_f64());
}

// ---- Right? ---------------------------------------------------------------------------------------------------------------

/// A number from 0 to 31 for each element: all sums of up to eight are exact in every type.
fn value(rank: usize, at: usize) -> u32 {
    let mut x = (rank as u32).wrapping_mul(0x9E37_79B9) ^ (at as u32).wrapping_mul(0x85EB_CA6B);
    x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
    (x ^ (x >> 15)) % 32
}

fn reduced(op: Op, ranks: usize, at: usize) -> f64 {
    let all = (0..ranks).map(|rank| f64::from(value(rank, at)));
    match op {
        Op::Sum => all.sum(),
        Op::Avg => all.sum::<f64>() / ranks as f64,
        Op::Max => all.fold(0.0, f64::max),
        Op::Min => all.fold(32.0, f64::min),
    }
}

fn wrong(what: &str, at: usize, expected: f64, got: f64) -> Error {
    Error::invalid(
        format!("{what}: element {at} is {got}, and {expected} is right"),
        "this is a bug: look at that call",
    )
}

fn same<T: NcclElement>(
    what: &str,
    got: &Buffer<T>,
    from: fn(T) -> f64,
    expected: impl Fn(usize) -> f64,
) -> Result<usize> {
    let got = got.to_host()?;
    match (0..got.len()).find(|at| from(got[*at]) != expected(*at)) {
        Some(at) => Err(wrong(what, at, expected(at), from(got[at]))),
        None => Ok(1),
    }
}

fn nccl_is_right(rank: &GpuRank) -> Result<usize> {
    let mut count = 0;
    count += of_type::<f32>(rank, "f32", |x| x as f32, f64::from, true)?;
    count +=
        of_type::<u16>(rank, "bf16", |x| cpu::bf16_from_f32(x as f32), |x| f64::from(cpu::f32_from_bf16(x)), true)?;
    count += of_type::<f64>(rank, "f64", f64::from, |x| x, true)?;
    count += of_type::<i8>(rank, "i8", |x| x as i8, f64::from, false)?;
    count += of_type::<u8>(rank, "u8", |x| x as u8, f64::from, false)?;
    count += of_type::<i32>(rank, "i32", |x| x as i32, f64::from, false)?;
    count += of_type::<u32>(rank, "u32", |x| x, f64::from, false)?;
    count += of_type::<i64>(rank, "i64", i64::from, |x| x as f64, false)?;
    count += of_type::<u64>(rank, "u64", u64::from, |x| x as f64, false)?;
    Ok(count)
}

/// So far rank 0 is: where a run hangs, its output says what was last.
fn progress(rank: &GpuRank, what: &str) {
    if rank.rank() == 0 {
        eprint!("{what} ");
    }
}

fn of_type<T: NcclElement>(
    rank: &GpuRank,
    name: &str,
    to: fn(u32) -> T,
    from: fn(T) -> f64,
    floats: bool,
) -> Result<usize> {
    let (me, n, gpu) = (rank.rank(), rank.size(), rank.gpu());
    let mine = |length: usize| gpu.to_device(&(0..length).map(|at| to(value(me, at))).collect::<Vec<T>>());
    let mut count = 0;
    progress(rank, name);
    for length in [1, 31, 1001, 65_537, (1 << 20) + 3] {
        let what = |call: &str| format!("{call} of {length} {name}");
        let mut ops = vec![Op::Sum, Op::Max, Op::Min];
        if floats && n.is_power_of_two() {
            ops.push(Op::Avg);
        }
        for op in ops {
            let mut x = mine(length)?;
            rank.all_reduce(&mut x, op)?;
            rank.synchronize()?;
            count += same(&what(&format!("all_reduce {}", op.name())), &x, from, |at| reduced(op, n, at))?;
        }
        let (whole, mut own) = (mine(n * length)?, gpu.poison::<T>(length)?);
        rank.reduce_scatter(&whole, &mut own, Op::Sum)?;
        rank.synchronize()?;
        count += same(&what("reduce_scatter"), &own, from, |at| reduced(Op::Sum, n, me * length + at))?;
        let (own, mut all) = (mine(length)?, gpu.poison::<T>(n * length)?);
        rank.all_gather(&own, &mut all)?;
        rank.synchronize()?;
        count += same(&what("all_gather"), &all, from, |at| f64::from(value(at / length, at % length)))?;
        for root in 0..n {
            let mut x = mine(length)?;
            rank.broadcast(&mut x, root)?;
            rank.synchronize()?;
            count += same(&what("broadcast"), &x, from, |at| f64::from(value(root, at)))?;
        }
        let (x, mut received) = (mine(length)?, gpu.poison::<T>(length)?);
        rank.send_recv(&x, (me + 1) % n, &mut received, (me + n - 1) % n)?;
        rank.synchronize()?;
        count += same(&what("send_recv"), &received, from, |at| f64::from(value((me + n - 1) % n, at)))?;
        if n > 1 {
            let (x, mut received) = (mine(length)?, gpu.poison::<T>(length)?);
            match me {
                0 => rank.send(&x, n - 1)?,
                _ if me == n - 1 => rank.recv(&mut received, 0)?,
                _ => {}
            }
            rank.synchronize()?;
            if me == n - 1 {
                same(&what("recv"), &received, from, |at| f64::from(value(0, at)))?;
            }
            count += 1;
        }
    }
    rank.barrier()?;
    Ok(count)
}

fn groups_are_right(rank: &GpuRank) -> Result<usize> {
    let (me, n, mut count) = (rank.rank(), rank.size(), 0);
    // Even and odd ranks; then all again, as a group; twice, as a group ends while the others go on.
    for (color, first, step) in [(me % 2, me % 2, 2), (7, 0, 1), (me % 2, me % 2, 2), (7, 0, 1)] {
        progress(rank, "split");
        let group = rank.split(color)?;
        let members: Vec<usize> = (first..n).step_by(step).collect();
        let mut x = rank.gpu().to_device(&(0..1001).map(|at| value(me, at) as f32).collect::<Vec<f32>>())?;
        group.all_reduce(&mut x, Op::Sum)?;
        group.synchronize()?;
        let expected = |at: usize| members.iter().map(|rank| f64::from(value(*rank, at))).sum();
        count += same(&format!("all_reduce in a group of {}", group.size()), &x, f64::from, expected)?;
        if group.size() != members.len() || members[group.rank()] != me {
            return Err(Error::invalid(format!("rank {me} is rank {} of its group", group.rank()), "this is a bug"));
        }
    }
    rank.barrier()?;
    Ok(count)
}

/// Numbers that change with each step, and the check of their sums, on the GPU: 0 to 31, so that sums of eight are exact in bf16.
const TOOLS: &str = r#"
#ifdef BF16
typedef unsigned short Number;
__device__ float read(Number x) { return __uint_as_float((unsigned)x << 16); }
__device__ Number made(float x) { return (Number)(__float_as_uint(x) >> 16); }
#else
typedef float Number;
__device__ float read(Number x) { return x; }
__device__ Number made(float x) { return x; }
#endif
__device__ float value(unsigned rank, unsigned at, unsigned step) {
    unsigned x = rank * 0x9E3779B9u ^ at * 0x85EBCA6Bu ^ step * 0xC2B2AE35u;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    return (float)((x ^ (x >> 15)) % 32);
}
extern "C" __global__ void fill(Number *x, long long n, int rank, const unsigned *step, float scale) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
        x[i] = made(scale * value(rank, (unsigned)i, *step));
    }
}
extern "C" __global__ void expect(const Number *x, long long n, int ranks, const unsigned *step, unsigned *wrong) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
        float sum = 0.0f;
        for (int rank = 0; rank < ranks; ++rank) {
            sum += value(rank, (unsigned)i, *step);
        }
        if (read(x[i]) != sum) {
            atomicAdd(wrong, 1u);
        }
    }
}
extern "C" __global__ void bump(unsigned *step) { *step += 1; }
"#;

struct Tools {
    fill: Kernel,
    expect: Kernel,
    bump: Kernel,
}

impl Tools {
    fn new(gpu: &Gpu, bf16: bool) -> Result<Tools> {
        let source = Source::text(TOOLS);
        let module = gpu.compile(if bf16 { source.define("BF16", 1) } else { source })?;
        Ok(Tools { fill: module.kernel("fill")?, expect: module.kernel("expect")?, bump: module.kernel("bump")? })
    }

    fn fill<T: PeerElement>(&self, x: &mut Buffer<T>, rank: usize, step: &Buffer<u32>, scale: f32) -> Result<()> {
        let n = x.len() as i64;
        self.fill.launch(LaunchConfig::new(264, 256), (x, n, rank as i32, step, scale))
    }

    fn expect<T: PeerElement>(
        &self,
        x: &Buffer<T>,
        ranks: usize,
        step: &Buffer<u32>,
        wrong: &mut Buffer<u32>,
    ) -> Result<()> {
        self.expect.launch(LaunchConfig::new(264, 256), (x, x.len() as i64, ranks as i32, step, wrong))
    }

    fn bump(&self, step: &mut Buffer<u32>) -> Result<()> {
        self.bump.launch(LaunchConfig::new(1, 1), (step,))
    }
}

fn peers_are_right(rank: &GpuRank) -> Result<String> {
    let begin = Instant::now();
    let floats = bits_are_right(rank)?;
    let calls = calls_follow::<f32>(rank, false, 10_000)? + calls_follow::<u16>(rank, true, 10_000)?;
    Ok(format!(
        "peer memory: {floats} arrays have the bits of a CPU's sums in the order of ranks; {calls} calls of changing data right; {:.1} s",
        begin.elapsed().as_secs_f64()
    ))
}

/// Random bits against the CPU's sum in the order of ranks.
fn bits_are_right(rank: &GpuRank) -> Result<usize> {
    let peers = rank.peer_memory(PeerSettings::default())?;
    let random = |rank: usize, at: usize| {
        let mut x = (rank as u32 + 1).wrapping_mul(0x9E37_79B9) ^ (at as u32).wrapping_mul(0x85EB_CA6B);
        x = (x ^ (x >> 16)).wrapping_mul(0x7FEB_352D);
        ((x ^ (x >> 15)) as f32 / 2.0_f32.powi(31) - 1.0) * 2.0_f32.powi((x % 20) as i32 - 10)
    };
    let (me, n, mut count) = (rank.rank(), rank.size(), 0);
    for length in [1, 2, 3, 5, 31, 33, 127, 1001, 16_384, 65_537, 131_071] {
        let mine: Vec<f32> = (0..length).map(|at| random(me, at)).collect();
        let sums: Vec<f32> =
            (0..length).map(|at| (1..n).fold(random(0, at), |sum, rank| sum + random(rank, at))).collect();
        let half = |x: f32| cpu::f32_from_bf16(cpu::bf16_from_f32(x));
        let halves: Vec<f32> =
            (0..length).map(|at| (1..n).fold(half(random(0, at)), |sum, rank| sum + half(random(rank, at)))).collect();
        for way in [PeerAlgorithm::OneShotPush, PeerAlgorithm::OneShotPull, PeerAlgorithm::TwoShot] {
            let mut x = rank.gpu().to_device(&mine)?;
            let mut y = rank.gpu().to_device(&mine.iter().map(|x| cpu::bf16_from_f32(*x)).collect::<Vec<u16>>())?;
            let (x, y) = match way {
                PeerAlgorithm::TwoShot => {
                    let (mut shared, mut halves) = (peers.share(rank, x)?, peers.share(rank, y)?);
                    peers.all_reduce_shared(&mut shared)?;
                    peers.all_reduce_shared(&mut halves)?;
                    peers.check()?;
                    (shared.own().to_host()?, halves.own().to_host()?)
                }
                _ => {
                    peers.all_reduce_by(way, &mut x)?;
                    peers.all_reduce_by(way, &mut y)?;
                    peers.check()?;
                    (x.to_host()?, y.to_host()?)
                }
            };
            let what = format!("{way:?}, {length} numbers");
            if let Some(at) = (0..length).find(|at| x[*at].to_bits() != sums[*at].to_bits()) {
                return Err(wrong(&what, at, sums[at].into(), x[at].into()));
            }
            if let Some(at) = (0..length).find(|at| y[*at] != cpu::bf16_from_f32(halves[*at])) {
                return Err(wrong(&(what + " of bf16"), at, halves[at].into(), cpu::f32_from_bf16(y[at]).into()));
            }
            count += 2;
            // A shared buffer is let go when nobody uses it.
            rank.barrier()?;
        }
    }
    Ok(count)
}

/// Calls one behind the other, of all ways and sizes, without the host between them; then in a CUDA graph.
fn calls_follow<T: PeerElement>(rank: &GpuRank, bf16: bool, calls: usize) -> Result<usize> {
    let (gpu, n, me) = (rank.gpu(), rank.size(), rank.rank());
    let peers = rank.peer_memory(PeerSettings::default())?;
    let tools = Tools::new(gpu, bf16)?;
    let (mut step, mut wrong_ones) = (gpu.zeros::<u32>(1)?, gpu.zeros::<u32>(1)?);
    let lengths = [1, 77, 1024, 9999, 40_001, 131_072];
    let mut buffers = lengths.map(|length| gpu.zeros::<T>(length)).into_iter().collect::<Result<Vec<_>>>()?;
    let mut shared =
        lengths.map(|length| peers.share(rank, gpu.zeros::<T>(length)?)).into_iter().collect::<Result<Vec<_>>>()?;
    let mut one = |call: usize, step: &mut Buffer<u32>, wrong_ones: &mut Buffer<u32>| -> Result<()> {
        let at = call * 7 % lengths.len();
        match call % 3 {
            2 => {
                tools.fill(shared[at].own_mut(), me, step, 1.0)?;
                peers.all_reduce_shared(&mut shared[at])?;
                tools.expect(shared[at].own(), n, step, wrong_ones)?;
            }
            way => {
                tools.fill(&mut buffers[at], me, step, 1.0)?;
                peers.all_reduce_by([PeerAlgorithm::OneShotPush, PeerAlgorithm::OneShotPull][way], &mut buffers[at])?;
                tools.expect(&buffers[at], n, step, wrong_ones)?;
            }
        }
        tools.bump(step)
    };
    for call in 0..calls {
        one(call, &mut step, &mut wrong_ones)?;
        if call % 1000 == 999 {
            peers.check()?;
        }
    }
    peers.check()?;
    let (in_graph, launches) = (2 * 3 * lengths.len(), 30);
    let mut graph = gpu.capture(|| (0..in_graph).try_for_each(|call| one(call, &mut step, &mut wrong_ones)))?;
    (0..launches).try_for_each(|_| graph.launch())?;
    peers.check()?;
    match wrong_ones.to_host()?[0] {
        0 => Ok(calls + in_graph * launches),
        count => {
            Err(Error::invalid(format!("{count} sums are wrong in {calls} calls (bf16: {bf16})"), "this is a bug"))
        }
    }
}

fn one_is_missing(rank: &GpuRank) -> Result<String> {
    let peers = rank.peer_memory(PeerSettings { wait: Duration::from_secs(1), ..PeerSettings::default() })?;
    let last = rank.size() - 1;
    let begin = Instant::now();
    let mut texts = Vec::new();
    if rank.rank() != last {
        let mut x = rank.gpu().zeros::<f32>(1000)?;
        for way in [PeerAlgorithm::OneShotPush, PeerAlgorithm::OneShotPull] {
            peers.all_reduce_by(way, &mut x)?;
            match peers.check() {
                Ok(()) => return Err(Error::invalid("nobody missed it", "this is a bug")),
                Err(error) => texts.push(error.to_string().replace('\n', " ")),
            }
        }
        if !texts[0].contains(&format!("for rank {last} in call 1")) {
            return Err(Error::invalid(format!("it names another rank: {}", texts[0]), "this is a bug"));
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    rank.barrier()?;
    Ok(format!("{seconds:.1} s: {}", texts.first().cloned().unwrap_or_default()))
}

// ---- How fast? ------------------------------------------------------------------------------------------------------------

/// One curve's point on one rank: samples in µs.
#[derive(Clone)]
struct Row {
    name: String,
    dtype: &'static str,
    size: usize,
    samples: Vec<f64>,
}

/// Of each sample that of the rank that was slowest.
fn slowest(ranks: Vec<Vec<Row>>) -> Vec<Row> {
    let mut rows = ranks[0].clone();
    for (at, row) in rows.iter_mut().enumerate() {
        for (sample, us) in row.samples.iter_mut().enumerate() {
            *us = ranks.iter().map(|rank| rank[at].samples[sample]).fold(0.0, f64::max);
        }
    }
    rows
}

/// The same on every rank, whatever it measures.
fn calls_for(bytes: usize) -> usize {
    let few = [(1 << 20, 50), (1 << 24, 20), (1 << 28, 5)].into_iter().find(|(most, _)| bytes <= *most);
    few.map_or(3, |(_, calls)| calls)
}

fn timed(
    rank: &GpuRank,
    name: String,
    size: usize,
    calls: usize,
    mut prepare: impl FnMut() -> Result<()>,
    mut work: impl FnMut() -> Result<()>,
) -> Result<Row> {
    let mut samples = Vec::new();
    for sample in 0..=SAMPLES {
        prepare()?;
        rank.barrier()?;
        // One call goes ahead: it brings the ranks together, and the GPU does not wait for the host behind the first event.
        work()?;
        let start: Event = rank.gpu().event()?;
        (0..calls).try_for_each(|_| work())?;
        let end = rank.gpu().event()?;
        rank.synchronize()?;
        // The first one warms up.
        if sample > 0 {
            samples.push(1e3 * end.ms_since(&start)?);
        }
    }
    Ok(Row { name, dtype: "f32", size, samples })
}

fn each(mut row: Row, calls: usize) -> Row {
    row.samples.iter_mut().for_each(|us| *us /= calls as f64);
    row
}

fn sizes(powers: std::ops::RangeInclusive<u32>, step: usize) -> impl Iterator<Item = usize> {
    powers.step_by(step).map(|power| 1_usize << power)
}

const SMALL: usize = 4 << 20;

fn nccl_times(rank: &GpuRank) -> Result<Vec<Row>> {
    let (gpu, n, me) = (rank.gpu(), rank.size(), rank.rank());
    let tools = Tools::new(gpu, false)?;
    let step = gpu.zeros::<u32>(1)?;
    let mut rows = Vec::new();
    for size in sizes(10..=30, 2) {
        let (mut whole, mut part) = (gpu.zeros::<f32>(size / 4)?, gpu.zeros::<f32>(size / 4 / n)?);
        for what in ["all-reduce", "reduce-scatter", "all-gather", "broadcast"] {
            let call = |whole: &mut Buffer<f32>, part: &mut Buffer<f32>| match what {
                "all-reduce" => rank.all_reduce(whole, Op::Sum),
                "reduce-scatter" => rank.reduce_scatter(whole, part, Op::Sum),
                "all-gather" => rank.all_gather(part, whole),
                _ => rank.broadcast(whole, 0),
            };
            // An all-gather needs a whole number of parts.
            if what != "all-reduce" && what != "broadcast" && part.len() * n != whole.len() {
                continue;
            }
            let calls = calls_for(size);
            // So small that sums of sums of as many calls stay finite.
            tools.fill(&mut part, me, &step, 1e-9)?;
            let (a, b) = (std::cell::RefCell::new(&mut whole), std::cell::RefCell::new(&mut part));
            let prepare = || tools.fill(&mut a.borrow_mut(), me, &step, 1e-9);
            let work = || call(&mut a.borrow_mut(), &mut b.borrow_mut());
            rows.push(each(timed(rank, format!("NCCL: {what}"), size, calls, prepare, work)?, calls));
            if size <= SMALL {
                rank.barrier()?;
                let graph = gpu.capture(|| (0..GRAPH_CALLS).try_for_each(|_| work()))?;
                let graph = std::cell::RefCell::new(graph);
                let row = timed(rank, format!("NCCL: {what}, CUDA graph"), size, LAUNCHES, prepare, || {
                    graph.borrow_mut().launch()
                })?;
                rows.push(each(row, LAUNCHES * GRAPH_CALLS));
                rank.barrier()?;
            }
        }
    }
    Ok(rows)
}

fn named(way: PeerAlgorithm) -> &'static str {
    match way {
        PeerAlgorithm::OneShotPush => "one shot, pushed",
        PeerAlgorithm::OneShotPull => "one shot, pulled",
        PeerAlgorithm::TwoShot => "two shots",
    }
}

/// Other constants than the default's.
fn variants() -> Vec<PeerSettings> {
    let tried = [
        (256, 32, 4),
        (256, 128, 4),
        (512, 16, 4),
        (512, 32, 4),
        (512, 64, 4),
        (512, 128, 4),
        (512, 128, 2),
        (512, 128, 8),
    ];
    let wide = [(1024, 8, 4), (1024, 16, 4), (1024, 32, 4), (1024, 64, 4), (1024, 128, 4)];
    let of = |(threads, blocks, vectors)| PeerSettings { threads, blocks, vectors, ..PeerSettings::default() };
    tried.into_iter().chain(wide).map(of).collect()
}

fn peer_times(rank: &GpuRank, settings: PeerSettings, tune: bool) -> Result<Vec<Row>> {
    let (gpu, me) = (rank.gpu(), rank.rank());
    let settings = PeerSettings { push_bytes: 4 << 20, ..settings };
    let peers: PeerMemory = rank.peer_memory(settings)?;
    let tools = Tools::new(gpu, false)?;
    let step = gpu.zeros::<u32>(1)?;
    let mut rows = Vec::new();
    let label = match tune {
        true => format!(" ({} threads, {} blocks, {} vectors)", settings.threads, settings.blocks, settings.vectors),
        false => String::new(),
    };
    let powers: Vec<u32> = if tune { vec![10, 16, 20, 22, 28, 30] } else { (10..=30).collect() };
    for way in [PeerAlgorithm::OneShotPush, PeerAlgorithm::OneShotPull, PeerAlgorithm::TwoShot] {
        for power in &powers {
            let size = 1_usize << power;
            let most = match way {
                PeerAlgorithm::OneShotPush => settings.push_bytes,
                PeerAlgorithm::OneShotPull => settings.most_bytes,
                PeerAlgorithm::TwoShot => 1 << 30,
            };
            // A pushed message has no vectors; large sizes are tuned in two shots alone.
            let odd = way == PeerAlgorithm::TwoShot && size > SMALL && power % 2 == 1;
            let pointless = tune
                && (way == PeerAlgorithm::OneShotPush && settings.vectors != 4
                    || way == PeerAlgorithm::TwoShot && size < 1 << 20);
            if size > most || odd || pointless {
                continue;
            }
            let calls = calls_for(size);
            let mut shared = peers.share(rank, gpu.zeros::<f32>(size / 4)?)?;
            let x = std::cell::RefCell::new(&mut shared);
            let prepare = || tools.fill(x.borrow_mut().own_mut(), me, &step, 1e-9);
            let work = || match way {
                PeerAlgorithm::TwoShot => peers.all_reduce_shared(&mut x.borrow_mut()),
                _ => peers.all_reduce_by(way, x.borrow_mut().own_mut()),
            };
            if !tune || size > SMALL {
                rows.push(each(
                    timed(rank, format!("peer memory: {}{label}", named(way)), size, calls, prepare, work)?,
                    calls,
                ));
            }
            if size <= SMALL {
                let graph = std::cell::RefCell::new(gpu.capture(|| (0..GRAPH_CALLS).try_for_each(|_| work()))?);
                let name = format!("peer memory: {}, CUDA graph{label}", named(way));
                let row = timed(rank, name, size, LAUNCHES, prepare, || graph.borrow_mut().launch())?;
                rows.push(each(row, LAUNCHES * GRAPH_CALLS));
            }
            peers.check()?;
            // Nobody lets go of a buffer that another rank still uses.
            rank.barrier()?;
        }
    }
    Ok(rows)
}

/// From GPU 0 to GPU 1, by the copy engines, with the access that the peers' kernels opened; then in both directions at once.
fn copies(gpus: &[Gpu]) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    let [first, second, ..] = gpus else { return Ok(rows) };
    let driver = |error| gpulab::cuda::driver_error("a copy between GPUs", error);
    for size in sizes(10..=30, 2) {
        let (a, b) = (first.zeros::<f32>(size / 4)?, second.zeros::<f32>(size / 4)?);
        let (mut to_a, mut to_b) = (first.zeros::<f32>(size / 4)?, second.zeros::<f32>(size / 4)?);
        let calls = calls_for(size).min(10);
        let mut copy = |both: bool| -> Result<f64> {
            first.synchronize()?;
            second.synchronize()?;
            let (from, to) = (first.cuda_stream()?, second.cuda_stream()?);
            let (start, other) = (second.event()?, first.event()?);
            for _ in 0..calls {
                to.memcpy_dtod(&a.as_cuda()?, &mut to_b.as_cuda_mut()?).map_err(driver)?;
                if both {
                    from.memcpy_dtod(&b.as_cuda()?, &mut to_a.as_cuda_mut()?).map_err(driver)?;
                }
            }
            let us = second.event()?.ms_since(&start)?.max(first.event()?.ms_since(&other)?);
            Ok(1e3 * us / calls as f64)
        };
        for (name, both) in
            [("copy from GPU to GPU", false), ("copy from GPU to GPU, in both directions at once", true)]
        {
            copy(both)?;
            let samples = (0..SAMPLES).map(|_| copy(both)).collect::<Result<Vec<f64>>>()?;
            rows.push(Row { name: name.to_string(), dtype: "f32", size, samples });
        }
    }
    Ok(rows)
}

// ---- What goes wrong ------------------------------------------------------------------------------------------------------

/// One rank that is a process, told how to fail; its place comes from the environment, as `torchrun` gives it.
fn rank_process(how: &str) -> Result<()> {
    let place = RankEnvironment::from_environment()?;
    let world = Processes::from_environment(LIMIT)?;
    let done = world.run(|rank| {
        // In here, so that all ranks are told which one has no GPU, or no NCCL.
        let gpu = Gpu::open_index(place.local_rank)?;
        Arc::new(Nccl::load()?).join(rank, &gpu, |on_gpu| on_rank(on_gpu, how, place))
    });
    done.map_err(Error::from)
}

fn on_rank(rank: &GpuRank, how: &str, place: RankEnvironment) -> Result<()> {
    let all_reduce = || -> Result<f32> {
        let mut x = rank.gpu().to_device(&vec![1.0_f32; 1 << 20])?;
        rank.all_reduce(&mut x, Op::Sum)?;
        rank.synchronize()?;
        Ok(x.to_host()?[12_345])
    };
    let sum = all_reduce()?;
    if sum != place.size as f32 {
        return Err(Error::invalid(format!("the sum is {sum}"), "this is a bug"));
    }
    println!("ready {}", rank.size());
    std::io::stdout().flush().expect("the pipe is open");
    match how {
        // Until it is killed, or another one is.
        "loop" => loop {
            all_reduce()?;
        },
        "error" if place.rank == 1 => Err(Error::invalid("the loss is NaN", "lower the learning rate")),
        "error" => all_reduce().map(drop),
        _ => Ok(()),
    }
}

fn start(how: &str, rank: usize, size: usize, port: u16, local: usize) -> Child {
    Command::new(std::env::current_exe().expect("a program has a path"))
        .args(["--rank-process", how])
        .env("RANK", rank.to_string())
        .env("WORLD_SIZE", size.to_string())
        .env("LOCAL_RANK", local.to_string())
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", port.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the system starts a process")
}

/// How a process ended, within so long; it is killed where it has not.
fn ended(mut child: Child, within: Duration) -> String {
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().expect("it is a child") {
            Some(status) => break status.to_string(),
            None if begin.elapsed() > within => {
                child.kill().expect("it is a child");
                break format!("HUNG for {} s", within.as_secs());
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let output = child.wait_with_output().expect("it has ended");
    let text = String::from_utf8_lossy(&output.stderr).replace("\\n", " ");
    let text = text.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    format!("{status}, {:.2} s: {text}", begin.elapsed().as_secs_f64())
}

fn failures(gpus: usize, nccl: &Arc<Nccl>) {
    println!("\nWhat goes wrong ({nccl:?})");
    match Nccl::from_file(Path::new("/nowhere/libnccl.so.2")) {
        Ok(_) => println!("WRONG: a file that is not there was loaded"),
        Err(error) => println!("NCCL missing: {}", error.to_string().replace('\n', " ")),
    }
    if gpus < 2 {
        println!("SKIPPED: the rest needs two GPUs");
        return;
    }
    // A killed process, in the middle of its collectives.
    let wait_ready = |children: &mut [Child]| {
        for child in children {
            let mut line = String::new();
            let pipe = child.stdout.as_mut().expect("it was asked for");
            let _ = BufReader::new(pipe).read_line(&mut line);
            print!("{} ", line.trim());
        }
        println!();
    };
    let mut two = vec![start("loop", 0, 2, 29_511, 0), start("loop", 1, 2, 29_511, 1)];
    wait_ready(&mut two);
    std::thread::sleep(Duration::from_millis(500));
    let mut second = two.pop().expect("there are two");
    let killed = Instant::now();
    second.kill().expect("it runs");
    println!(
        "rank 1 killed; rank 0: {} ({:.2} s after it)",
        ended(two.remove(0), 2 * LIMIT),
        killed.elapsed().as_secs_f64()
    );
    let _ = second.wait();
    // An error of one rank.
    let mut two = vec![start("error", 0, 2, 29_512, 0), start("error", 1, 2, 29_512, 1)];
    wait_ready(&mut two);
    let (zero, one) = (two.remove(0), two.remove(0));
    let one = std::thread::spawn(|| ended(one, 2 * LIMIT));
    println!("rank 1 returns an error; rank 0: {}", ended(zero, 2 * LIMIT));
    println!("and rank 1: {}", one.join().expect("it does not panic"));
    // Nothing goes wrong.
    let two = [start("end", 0, 2, 29_515, 0), start("end", 1, 2, 29_515, 1)];
    for (rank, child) in two.into_iter().enumerate() {
        println!("two processes that end well; rank {rank}: {}", ended(child, LIMIT));
    }
    // World sizes that differ.
    let two = [start("end", 0, 2, 29_513, 0), start("end", 1, 3, 29_513, 1)];
    for (rank, child) in two.into_iter().enumerate() {
        println!("world sizes 2 and 3; rank {rank}: {}", ended(child, LIMIT));
    }
    // More ranks than GPUs.
    let all: Vec<Child> = (0..=gpus).map(|rank| start("end", rank, gpus + 1, 29_514, rank)).collect();
    for (rank, child) in all.into_iter().enumerate() {
        println!("{} ranks on {gpus} GPUs; rank {rank}: {}", gpus + 1, ended(child, 2 * LIMIT));
    }
}

// ---- The rows and their page ----------------------------------------------------------------------------------------------

fn save(settings: &Settings, gpus: &[Gpu], rows: &[Row], from: usize) -> Result<()> {
    let measurement = |Row { name, dtype, size, samples }: &Row| {
        let name = format!("{} GPUs: {name}", gpus.len());
        let row = Measurement::new(&name, Backend::Cuda, *size, "time", "µs", Summary::of(samples)).dtype(dtype);
        let (time, commit, machine) = (results::now_utc(), settings.commit.clone(), gpus[0].name().to_string());
        Measurement { time, commit, lesson: "60_multi_gpu".to_string(), machine, ..row }
    };
    let rows: Vec<Measurement> = rows[from..].iter().map(measurement).collect();
    results::append_to(&settings.out.join("collectives.csv"), &rows)
}

/// What a row holds that the page shows: µs, by name and bytes; of rows of one name and size the last one.
fn read_rows(file: &Path) -> Result<BTreeMap<(String, usize), f64>> {
    let rows = results::read(file)?.into_iter();
    Ok(rows.map(|row| ((row.experiment, row.size as usize), row.summary.median)).collect())
}

fn page(folder: &Path) -> Result<()> {
    let rows = read_rows(&folder.join("collectives.csv"))?;
    let facts = std::fs::read_to_string(folder.join("facts.txt")).unwrap_or_default();
    let ranks = rows.keys().next().and_then(|(name, _)| name.split(' ').next()?.parse::<usize>().ok()).unwrap_or(2);
    let at = |name: &str, size: usize| rows.get(&(format!("{ranks} GPUs: {name}"), size)).copied();
    let mut page = format!(
        "# Collectives on {ranks} GPUs\n\nGenerated by `record_collectives --page` from [collectives.csv](collectives.csv).\n\n{facts}\n"
    );
    let number = |value: Option<f64>, digits: usize| value.map_or(String::new(), |value| format!("{value:.digits$}"));
    let over = |a: Option<f64>, b: Option<f64>| {
        a.zip(b).map_or(String::new(), |(ours, theirs)| format!("{:.2}", theirs / ours))
    };
    for what in ["all-reduce", "reduce-scatter", "all-gather", "broadcast"] {
        let _ = writeln!(
            page,
            "## NCCL: {what}\n\n| bytes | µs | PyTorch, µs | in a CUDA graph, µs | PyTorch in a graph, µs | bus, GB/s | PyTorch, GB/s | speed over PyTorch |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
        );
        for size in sizes(10..=30, 2) {
            let (ours, theirs) = (at(&format!("NCCL: {what}"), size), at(&format!("PyTorch: {what}"), size));
            let graphs = [format!("NCCL: {what}, CUDA graph"), format!("PyTorch: {what}, CUDA graph")]
                .map(|name| at(&name, size));
            let bus =
                |us: Option<f64>| us.map(|us| size as f64 / (us * 1e3) * bus_factor(&what.replace('-', "_"), ranks));
            if ours.is_some() || theirs.is_some() {
                let _ = writeln!(
                    page,
                    "| {size} | {} | {} | {} | {} | {} | {} | {} |",
                    number(ours, 1),
                    number(theirs, 1),
                    number(graphs[0], 1),
                    number(graphs[1], 1),
                    number(bus(ours), 1),
                    number(bus(theirs), 1),
                    over(ours, theirs)
                );
            }
        }
        page += "\n";
    }
    page += "## All-reduce over peer memory, µs\n\n| bytes | pushed | pulled | two shots | pushed, graph | pulled, graph | two shots, graph | NCCL | NCCL, graph | PyTorch | best of ours over PyTorch | two shots, bus GB/s | copy, GB/s |\n| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |\n";
    for size in sizes(10..=30, 1) {
        let ways = [PeerAlgorithm::OneShotPush, PeerAlgorithm::OneShotPull, PeerAlgorithm::TwoShot]
            .map(|way| at(&format!("peer memory: {}", named(way)), size));
        let graphs = [PeerAlgorithm::OneShotPush, PeerAlgorithm::OneShotPull, PeerAlgorithm::TwoShot]
            .map(|way| at(&format!("peer memory: {}, CUDA graph", named(way)), size));
        let [nccl, nccl_graph, torch, copy] =
            ["NCCL: all-reduce", "NCCL: all-reduce, CUDA graph", "PyTorch: all-reduce", "copy from GPU to GPU"]
                .map(|name| at(name, size));
        let best = ways.into_iter().flatten().min_by(f64::total_cmp);
        if best.is_none() {
            continue;
        }
        let rate = |us: Option<f64>| number(us.map(|us| size as f64 / (us * 1e3)), 0);
        let bus = ways[2].map(|us| us / bus_factor("all_reduce", ranks));
        let cells: Vec<String> =
            ways.into_iter().chain(graphs).chain([nccl, nccl_graph, torch]).map(|us| number(us, 2)).collect();
        let _ = writeln!(
            page,
            "| {size} | {} | {} | {} | {} |",
            cells.join(" | "),
            over(best, torch),
            rate(bus),
            rate(copy)
        );
    }
    let tuned: Vec<(&(String, usize), &f64)> =
        rows.iter().filter(|((name, _), _)| name.contains(" threads, ")).collect();
    if !tuned.is_empty() {
        page += "\n## Constants: the five fastest of each size\n\n| way | bytes | µs | constants |\n| --- | ---: | ---: | --- |\n";
        let mut groups: BTreeMap<(String, usize), Vec<(f64, String)>> = BTreeMap::new();
        for ((name, size), us) in tuned {
            if let Some((way, constants)) = name.split_once(" (") {
                let way = way.split_once(": ").map_or(way, |(_, way)| way);
                groups
                    .entry((way.to_string(), *size))
                    .or_default()
                    .push((*us, constants.trim_end_matches(')').to_string()));
            }
        }
        for ((way, size), mut found) in groups {
            found.sort_by(|a, b| a.0.total_cmp(&b.0));
            for (us, constants) in found.into_iter().take(5) {
                let _ = writeln!(page, "| {way} | {size} | {us:.2} | {constants} |");
            }
        }
    }
    // What lessons read, without the constants that were tried.
    let mut of_lessons = format!("{}\n", results::HEADER);
    for file in ["collectives.csv", "sharding.csv", "timeline.csv"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        text.lines()
            .skip(1)
            .filter(|line| !line.contains(" threads, "))
            .for_each(|line| of_lessons += &format!("{line}\n"));
    }
    let file = folder.join("recorders.csv");
    // The steps of GPT-2, of other programs, are brought in by hand.
    let before = std::fs::read_to_string(&file).unwrap_or_default();
    before
        .lines()
        .filter(|line| line.contains(" GPUs: GPT-2 step: "))
        .for_each(|line| of_lessons += &format!("{line}\n"));
    let problem =
        |file: &Path, error| Error::invalid(format!("{}: {error}", file.display()), "give another folder with --out");
    std::fs::write(&file, of_lessons).map_err(|error| problem(&file, error))?;
    let file = folder.join("collectives.md");
    std::fs::write(&file, page).map_err(|error| problem(&file, error))
}
