//! An all-reduce of our own over peer memory: each GPU reads and writes the others' memory, over NVLink or PCIe.
//!
//! NCCL's calls cost more time than a small message does. Here one kernel does all of it, in one of three ways ([`PeerAlgorithm`]); all ranks add in
//! the order of ranks, so all have the same bits, and every time the same. Calls follow one another without a barrier of the host, also
//! in a CUDA graph. A rank that never comes ends the wait of the others after [`PeerSettings::wait`], and [`PeerMemory::check`] names it.

use crate::collectives::Communicator;
use crate::nccl::GpuRank;
use gpulab::cuda::driver_error;
use gpulab::cudarc::driver::{DevicePtr, DriverError, result, sys};
use gpulab::gpu::{Buffer, Gpu, Kernel};
use gpulab::launch::{Element, LaunchConfig, Source};
use gpulab_measure::error::same_length;
use gpulab_measure::{Error, Result};
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::Duration;

const SOURCE: &str = include_str!("peer/all_reduce.cu");
/// Ranks that a kernel has addresses for.
const MOST_RANKS: usize = 8;
/// Flags are set aside for so many; all blocks of a call run at the same time, as they wait for the others'.
const MOST_BLOCKS: u32 = 128;
const CONTROL_BYTES: usize = 256;

/// How an all-reduce goes over peer memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PeerAlgorithm {
    /// Each rank writes its numbers into all others' memory, with a flag beside every four bytes; whoever has them all adds. One way over
    /// the link, twice the bytes.
    OneShotPush,
    /// Each rank puts its numbers aside, raises a flag at the others, and reads what they put aside. The bytes once, a way there and back.
    OneShotPull,
    /// In place, in memory that all ranks reach ([`PeerMemory::share`]): rank `r` reads the `r`-th part of all, adds, and writes the sums to
    /// all. Of n bytes `2 (N − 1)/N n` go over each link, as with a ring; of one shot `(N − 1) n`.
    TwoShot,
}

/// Constants of the kernels. The default was among the fastest on two H200s (`results/h200x2/`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PeerSettings {
    /// Threads per block.
    pub threads: u32,
    /// Blocks at most; at most 128.
    pub blocks: u32,
    /// 16-byte words that a thread of [`PeerAlgorithm::OneShotPull`] and [`PeerAlgorithm::TwoShot`] has in flight at a time.
    pub vectors: u32,
    /// Up to so many bytes [`PeerMemory::all_reduce`] pushes.
    pub push_bytes: usize,
    /// Up to so many bytes it pulls, and more it refuses.
    pub most_bytes: usize,
    /// After so long, a rank that has not come is missing.
    pub wait: Duration,
}

impl Default for PeerSettings {
    fn default() -> PeerSettings {
        PeerSettings {
            threads: 512,
            blocks: 128,
            vectors: 4,
            push_bytes: 512 << 10,
            most_bytes: 8 << 20,
            wait: Duration::from_secs(5),
        }
    }
}

impl PeerSettings {
    /// Each rank's numbers as they are, twice as many bytes where they are pushed.
    fn slot_bytes(&self) -> usize {
        self.most_bytes.max(2 * self.push_bytes).next_multiple_of(256)
    }

    fn workspace_bytes(&self, ranks: usize) -> usize {
        CONTROL_BYTES + 4 * 2 * MOST_BLOCKS as usize * MOST_RANKS + 2 * ranks * self.slot_bytes()
    }

    fn source(&self, ranks: usize, bf16: bool) -> Source {
        let source = Source::text(SOURCE)
            .define("RANKS", ranks)
            .define("MOST_RANKS", MOST_RANKS)
            .define("MOST_BLOCKS", MOST_BLOCKS)
            .define("SLOT_BYTES", self.slot_bytes())
            .define("THREADS", self.threads)
            .define("VECTORS", self.vectors)
            .define("LIMIT_NS", format!("{}ull", self.wait.as_nanos()));
        if bf16 { source.define("BF16", 1) } else { source }
    }

    /// Blocks for so many bytes: all ranks find the same number.
    fn launch(&self, way: PeerAlgorithm, ranks: usize, bytes: usize) -> LaunchConfig {
        let at_a_time = match way {
            PeerAlgorithm::OneShotPush => 8,
            PeerAlgorithm::OneShotPull => 16,
            PeerAlgorithm::TwoShot => 16 * ranks,
        };
        let blocks = bytes.div_ceil(at_a_time * self.threads as usize).clamp(1, self.blocks.min(MOST_BLOCKS) as usize);
        LaunchConfig::new(blocks as u32, self.threads)
    }
}

/// A number that [`PeerMemory`] adds: `f32`, and `u16` for the bits of a `bf16`, whose sums are taken in `f32` and rounded once.
pub trait PeerElement: Element {
    #[doc(hidden)]
    const BF16: bool;
}

impl PeerElement for f32 {
    const BF16: bool = false;
}

impl PeerElement for u16 {
    const BF16: bool = true;
}

/// The kernels for one dtype.
struct Kernels {
    push: Kernel,
    pull: Kernel,
    two_shots: Kernel,
}

/// One rank's access to the memory of the others.
pub struct PeerMemory {
    gpu: Gpu,
    rank: usize,
    settings: PeerSettings,
    /// Of all ranks. Of the pool, so that freeing one waits for nothing: NCCL's kernel of a rank may already wait for the rank that frees.
    workspaces: Vec<Arc<Buffer<u8>>>,
    /// Where they are.
    at: [u64; MOST_RANKS],
    f32: OnceCell<Kernels>,
    bf16: OnceCell<Kernels>,
}

impl std::fmt::Debug for PeerMemory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "peer memory of rank {} of {}", self.rank, self.workspaces.len())
    }
}

/// A buffer whose addresses all ranks know.
#[derive(Debug)]
pub struct PeerBuffer<T: PeerElement> {
    own: Buffer<T>,
    at: [u64; MOST_RANKS],
}

impl<T: PeerElement> PeerBuffer<T> {
    /// This rank's own numbers.
    pub fn own(&self) -> &Buffer<T> {
        &self.own
    }

    /// This rank's own numbers, to be written.
    pub fn own_mut(&mut self) -> &mut Buffer<T> {
        &mut self.own
    }
}

/// Where a buffer lies, for other GPUs.
fn address<T: Element>(buffer: &Buffer<T>) -> Result<u64> {
    let stream = buffer.gpu().cuda_stream()?;
    let view = buffer.as_cuda()?;
    let (address, _guard) = view.device_ptr(&stream);
    Ok(address)
}

fn problem(error: DriverError) -> Error {
    driver_error("giving the GPUs access to each other's memory", error)
}

/// Lets this rank's kernels reach the memory of those GPUs.
fn reach(gpu: &Gpu, others: &[Gpu]) -> Result<()> {
    let own = gpu.cuda_context()?;
    own.bind_to_thread().map_err(problem)?;
    for other in others.iter().filter(|other| !other.same_as(gpu)) {
        let theirs = other.cuda_context()?;
        let mut can = 0;
        // SAFETY: both contexts are open, so both devices are valid.
        let asked = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, own.cu_device(), theirs.cu_device()) };
        asked.result().map_err(problem)?;
        if can == 0 {
            return Err(Error::unsupported(
                format!("{gpu} cannot reach the memory of {other}: the two have no NVLink, and PCIe does not let them"),
                "use NCCL's collectives (`rank.all_reduce`), which go through the host's memory there",
            ));
        }
        // SAFETY: both contexts are open, and the own one is this thread's.
        match unsafe { sys::cuCtxEnablePeerAccess(theirs.cu_ctx(), 0) } {
            sys::CUresult::CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED => {}
            other => other.result().map_err(problem)?,
        }
        // Buffers lie in the pool, which has access rights of its own: those of its users.
        // SAFETY: the device is valid.
        let pool = unsafe { result::device::get_default_mem_pool(own.cu_device()) }.map_err(problem)?;
        let access = sys::CUmemAccessDesc {
            location: sys::CUmemLocation {
                type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
                id: theirs.ordinal() as i32,
            },
            flags: sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
        };
        // SAFETY: the pool is the device's own, and one description is given.
        unsafe { sys::cuMemPoolSetAccess(pool, &raw const access, 1) }.result().map_err(problem)?;
    }
    Ok(())
}

impl GpuRank {
    /// Opens the memory of all ranks' GPUs to each other. All ranks call it, with the same settings.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where two GPUs cannot reach each other, for more than 8 ranks, and where ranks are processes;
    /// [`Error::Invalid`] for settings that do not fit or that differ, and where a rank does not come; [`Error::OutOfMemory`]; those
    /// of the driver.
    pub fn peer_memory(&self, settings: PeerSettings) -> Result<PeerMemory> {
        let (rank, ranks) = (self.rank(), self.size());
        if ranks > MOST_RANKS {
            return Err(Error::unsupported(
                format!("peer memory of {ranks} ranks: the kernels have addresses for {MOST_RANKS}"),
                "use NCCL's collectives (`rank.all_reduce`), or split the ranks into groups (`rank.split`)",
            ));
        }
        let threads = settings.threads;
        if !threads.is_power_of_two()
            || !(32..=1024).contains(&threads)
            || settings.blocks == 0
            || settings.vectors == 0
        {
            return Err(Error::invalid(
                format!("peer memory with {settings:?}"),
                "give 32 to 1024 threads, a power of two, and at least one block and one vector",
            ));
        }
        // Nobody's kernels may wait for a rank while access is changed.
        self.synchronize()?;
        let everybody = self.exchanged((settings, self.gpu().clone()))?;
        if let Some(other) = everybody.iter().position(|(theirs, _)| *theirs != settings) {
            let what = format!("rank {other} opens its memory with other settings than rank {rank}");
            return Err(Error::invalid(what, "give all ranks the same `PeerSettings`"));
        }
        let gpus: Vec<Gpu> = everybody.into_iter().map(|(_, gpu)| gpu).collect();
        reach(self.gpu(), &gpus)?;
        let own = Arc::new(self.gpu().zeros::<u8>(settings.workspace_bytes(ranks))?);
        let mut at = [0; MOST_RANKS];
        at[rank] = address(&own)?;
        self.synchronize()?;
        // Nobody launches before all have access and a workspace of zeros.
        let (workspaces, addresses): (Vec<_>, Vec<_>) = self.exchanged((own, at[rank]))?.into_iter().unzip();
        at[..ranks].copy_from_slice(&addresses);
        let (f32, bf16) = (OnceCell::new(), OnceCell::new());
        Ok(PeerMemory { gpu: self.gpu().clone(), rank, settings, workspaces, at, f32, bf16 })
    }
}

impl PeerMemory {
    /// Adds the numbers of all ranks, and leaves the sums in the buffer of each: by [`PeerAlgorithm::OneShotPush`] or [`PeerAlgorithm::OneShotPull`], as its size asks. Only
    /// queued, as a launch is.
    ///
    /// # Errors
    /// [`Error::Invalid`] for more bytes than [`PeerSettings::most_bytes`]; those of the compiler and the driver.
    pub fn all_reduce<T: PeerElement>(&self, data: &mut Buffer<T>) -> Result<()> {
        let way = if data.bytes() <= self.settings.push_bytes {
            PeerAlgorithm::OneShotPush
        } else {
            PeerAlgorithm::OneShotPull
        };
        self.all_reduce_by(way, data)
    }

    /// [`PeerMemory::all_reduce`] by that way.
    ///
    /// # Errors
    /// As that; [`Error::Invalid`] for more bytes than [`PeerSettings::push_bytes`] to push, and for [`PeerAlgorithm::TwoShot`].
    pub fn all_reduce_by<T: PeerElement>(&self, way: PeerAlgorithm, data: &mut Buffer<T>) -> Result<()> {
        let most = match way {
            PeerAlgorithm::OneShotPush => self.settings.slot_bytes() / 2,
            PeerAlgorithm::OneShotPull => self.settings.slot_bytes(),
            PeerAlgorithm::TwoShot => {
                let what = "two shots work on memory that all ranks reach";
                return Err(Error::invalid(what, "give the buffer to `peers.share`, and call `all_reduce_shared`"));
            }
        };
        if data.bytes() > most {
            return Err(Error::invalid(
                format!("an all-reduce of {} bytes over peer memory: {most} bytes are set aside", data.bytes()),
                "give `PeerSettings` more bytes, share the buffer (`peers.share`), or use NCCL's (`rank.all_reduce`)",
            ));
        }
        if data.is_empty() || self.workspaces.len() == 1 {
            return Ok(());
        }
        let kernels = self.kernels::<T>()?;
        let kernel = if way == PeerAlgorithm::OneShotPush { &kernels.push } else { &kernels.pull };
        let (config, n) = (self.settings.launch(way, self.workspaces.len(), data.bytes()), data.len() as i64);
        kernel.launch(config, (self.at, self.rank as i32, data, n))
    }

    /// Makes a buffer known to all ranks. All ranks call it, with buffers of the same length.
    ///
    /// # Errors
    /// [`Error::DeviceMismatch`] for a buffer of another GPU, [`Error::LengthMismatch`] where lengths differ; where a rank does not come.
    pub fn share<T: PeerElement>(&self, rank: &GpuRank, buffer: Buffer<T>) -> Result<PeerBuffer<T>> {
        if !buffer.gpu().same_as(&self.gpu) {
            return Err(Error::DeviceMismatch { expected: self.gpu.to_string(), found: buffer.gpu().to_string() });
        }
        let address = address(&buffer)?;
        let mut at = [0; MOST_RANKS];
        for (other, (length, address)) in rank.exchanged((buffer.len(), address))?.into_iter().enumerate() {
            let what = format!("sharing a buffer: rank {other}'s, beside rank {}'s", self.rank);
            same_length(what, buffer.len(), length)?;
            at[other] = address;
        }
        Ok(PeerBuffer { own: buffer, at })
    }

    /// Adds the numbers of all ranks in place, of any size, by [`PeerAlgorithm::TwoShot`].
    ///
    /// # Errors
    /// Those of the compiler and the driver.
    pub fn all_reduce_shared<T: PeerElement>(&self, data: &mut PeerBuffer<T>) -> Result<()> {
        if data.own.is_empty() || self.workspaces.len() == 1 {
            return Ok(());
        }
        let kernels = self.kernels::<T>()?;
        let config = self.settings.launch(PeerAlgorithm::TwoShot, self.workspaces.len(), data.own.bytes());
        let n = data.own.len() as i64;
        kernels.two_shots.launch(config, (self.at, data.at, self.rank as i32, &mut data.own, n))
    }

    /// Waits for this rank's kernels, and tells whether all ranks came to each call.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the rank that did not come. All later calls then do nothing, and say so here.
    pub fn check(&self) -> Result<()> {
        self.gpu.synchronize()?;
        let mut control = [0_u32; 4];
        let bound = self.gpu.cuda_context()?.bind_to_thread();
        // SAFETY: so many bytes lie at the beginning of the workspace.
        let read = bound.and_then(|()| unsafe { result::memcpy_dtoh_sync(&mut control, self.at[self.rank]) });
        read.map_err(|error| driver_error("reading what became of an all-reduce", error))?;
        let [_, _, missing, call] = control;
        match missing {
            0 => Ok(()),
            missing => Err(Error::invalid(
                format!(
                    "rank {} has waited {:.1} s for rank {} in call {call} over peer memory",
                    self.rank,
                    self.settings.wait.as_secs_f64(),
                    missing - 1
                ),
                "see the error of that rank; let every rank make the same calls in the same order, then open the peer memory again",
            )),
        }
    }

    fn kernels<T: PeerElement>(&self) -> Result<&Kernels> {
        let kept = if T::BF16 { &self.bf16 } else { &self.f32 };
        if let Some(kernels) = kept.get() {
            return Ok(kernels);
        }
        let module = self.gpu.compile(self.settings.source(self.workspaces.len(), T::BF16))?;
        let kernel = |name| module.kernel(name);
        let kernels = Kernels {
            push: kernel("all_reduce_push")?,
            pull: kernel("all_reduce_pull")?,
            two_shots: kernel("all_reduce_two_shots")?,
        };
        Ok(kept.get_or_init(|| kernels))
    }
}

impl Drop for PeerMemory {
    fn drop(&mut self) {
        // Its kernels write to the others' memory, which is freed when the last rank has let go of it. They end: no wait is for ever.
        // An error of the driver's is told by whoever calls it next.
        let _ = self.gpu.synchronize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab::launch::LaunchAttributes;

    /// All ranks in one launch, whose blocks the simulator runs interleaved: the kernels' own code, flags and sums, over one memory.
    const ALL_RANKS: &str = r#"
extern "C" __global__ void all_ranks(unsigned char *a, unsigned char *b, unsigned char *c, Number *x, Number *y, Number *z, long long n, int way) {
    Peers all = {{a, b, c}}, data = {{(unsigned char *)x, (unsigned char *)y, (unsigned char *)z}};
    int rank = blockIdx.y;
    unsigned *own = (unsigned *)of(data, rank);
    if (way == 0) {
        push(all, rank, own, n);
    } else if (way == 1) {
        pull(all, rank, own, n);
    } else {
        two_shots(all, data, rank, n);
    }
}
"#;

    fn simulated(settings: PeerSettings, bf16: bool) -> Result<(Gpu, Kernel)> {
        let gpu = Gpu::simulated()?;
        let mut source = settings.source(3, bf16);
        source.text += ALL_RANKS;
        let kernel = gpu.compile(source)?.kernel("all_ranks")?;
        Ok((gpu, kernel))
    }

    const SMALL: PeerSettings = PeerSettings {
        threads: 32,
        blocks: 2,
        vectors: 2,
        push_bytes: 2048,
        most_bytes: 4096,
        wait: Duration::from_millis(10),
    };
    const TOGETHER: LaunchAttributes = LaunchAttributes { cooperative: true, ..LaunchAttributes::NONE };

    /// Calls of all ways one after the other over the same slots, with other numbers each time.
    fn calls_are_right<T: PeerElement>(bf16: bool, to: fn(f32) -> T, from: fn(T) -> f32) {
        let Ok((gpu, kernel)) = simulated(SMALL, bf16).inspect_err(|error| println!("SKIPPED: {error}")) else {
            return;
        };
        let mut work: Vec<Buffer<u8>> = (0..3).map(|_| gpu.zeros(SMALL.workspace_bytes(3)).unwrap()).collect();
        let [a, b, c] = &mut work[..] else { unreachable!() };
        for (call, length) in [1, 7, 130, 255].into_iter().cycle().take(12).enumerate() {
            let number = |rank: usize, at: usize| ((at * 7 + rank * 13 + call * 5) % 29) as f32 - 14.0;
            let mut data: Vec<Buffer<T>> = (0..3)
                .map(|rank| gpu.to_device(&(0..length).map(|at| to(number(rank, at))).collect::<Vec<T>>()).unwrap())
                .collect();
            let [x, y, z] = &mut data[..] else { unreachable!() };
            let way = [PeerAlgorithm::OneShotPush, PeerAlgorithm::OneShotPull, PeerAlgorithm::TwoShot][call / 4];
            let mut config = SMALL.launch(way, 3, length * size_of::<T>());
            config.grid.1 = 3;
            let done = kernel.launch_with(
                config,
                TOGETHER,
                (&mut *a, &mut *b, &mut *c, &mut *x, &mut *y, &mut *z, length as i64, (call / 4) as i32),
            );
            done.unwrap_or_else(|error| panic!("call {call}, {way:?} of {length}: {error}"));
            for (rank, buffer) in data.iter().enumerate() {
                let sums: Vec<f32> = buffer.to_host().unwrap().into_iter().map(from).collect();
                let right: Vec<f32> = (0..length).map(|at| number(0, at) + number(1, at) + number(2, at)).collect();
                assert_eq!(sums, right, "call {call}, {way:?} of {length} on rank {rank}");
            }
        }
    }

    #[test]
    fn three_ranks_in_the_simulator_have_the_sums_of_all() {
        calls_are_right::<f32>(false, |x| x, |x| x);
        calls_are_right::<u16>(true, |x| (x.to_bits() >> 16) as u16, |x| f32::from_bits(u32::from(x) << 16));
    }

    #[test]
    fn a_rank_that_does_not_come_is_named_and_nobody_waits_for_ever() {
        let settings = PeerSettings { wait: Duration::from_micros(20), ..SMALL };
        let Ok((gpu, kernel)) = simulated(settings, false).inspect_err(|error| println!("SKIPPED: {error}")) else {
            return;
        };
        for way in 0..2 {
            let mut work: Vec<Buffer<u8>> = (0..3).map(|_| gpu.zeros(settings.workspace_bytes(3)).unwrap()).collect();
            let mut data: Vec<Buffer<f32>> = (0..3).map(|_| gpu.zeros(64).unwrap()).collect();
            let ([a, b, c], [x, y, z]) = (&mut work[..], &mut data[..]) else { unreachable!() };
            // Ranks 0 and 1 alone; then once more, which returns at once.
            let mut config = LaunchConfig::new(1, settings.threads);
            config.grid.1 = 2;
            for _ in 0..2 {
                let args = (&mut *a, &mut *b, &mut *c, &mut *x, &mut *y, &mut *z, 64_i64, way);
                kernel.launch_with(config, TOGETHER, args).unwrap();
            }
            for rank in [0, 1] {
                let bytes = work[rank].to_host().unwrap();
                let control: Vec<u32> = bytes.as_chunks().0[..4].iter().map(|word| u32::from_le_bytes(*word)).collect();
                assert_eq!(control[2..], [1 + 2, 1], "way {way}, rank {rank}: {control:?}");
            }
        }
    }

    #[test]
    fn settings_make_room_for_what_they_allow() {
        let settings = PeerSettings { push_bytes: 1 << 20, most_bytes: 1 << 20, ..PeerSettings::default() };
        assert_eq!(settings.slot_bytes(), 2 << 20, "pushed numbers take twice their bytes");
        assert!(settings.workspace_bytes(2) > 4 * settings.slot_bytes());
        // All ranks find the same grid, within what the flags have room for.
        assert_eq!(settings.launch(PeerAlgorithm::OneShotPush, 2, 1).grid.0, 1);
        let many = PeerSettings { blocks: 10_000, ..settings };
        assert_eq!(many.launch(PeerAlgorithm::TwoShot, 2, 1 << 30).grid.0, MOST_BLOCKS);
    }
}
