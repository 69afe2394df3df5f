//! What a launch is asked for: its shape and its arguments.

use crate::decode::Kernel;
use crate::error::{Result, SimulatorError};
use crate::memory::Bytes;

/// Shared memory of a block at most, in bytes: what an H100 gives (227 KiB).
const MAX_SHARED: u64 = 232_448;
/// Local memory of a thread and parameters of a kernel at most, in bytes.
const MAX_LOCAL: u64 = 512 << 10;
const MAX_PARAMS: u64 = 32_764;
/// Blocks of a cluster at most (CUDA C programming guide, "Thread Block Clusters": the portable size).
const MAX_CLUSTER: u64 = 8;
/// Threads of a block at most, and blocks along each axis (CUDA C programming guide, compute capabilities).
const MAX_THREADS: u64 = 1024;
const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
const MAX_GRID: [u32; 3] = [i32::MAX as u32, 65_535, 65_535];

/// Multiprocessors of the simulated GPU: two, so that blocks which walk over an array take several turns on small arrays
/// too.
pub const MULTIPROCESSORS: u32 = 2;
/// What a multiprocessor of an H100 holds at a time: warps, blocks, and bytes of shared memory, of which each block takes
/// 1 KiB for itself (CUDA C programming guide, compute capability 9.0).
const RESIDENT_WARPS: u64 = 64;
const RESIDENT_BLOCKS: u64 = 32;
const RESIDENT_SHARED: u64 = 228 << 10;
const RESERVED_SHARED: u64 = 1 << 10;

/// The shape of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

impl Launch {
    /// A launch in one dimension without dynamic shared memory.
    pub fn linear(blocks: u32, threads: u32) -> Self {
        Self { grid: [blocks, 1, 1], block: [threads, 1, 1], shared_bytes: 0 }
    }
}

/// How the blocks of a launch belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Blocks of a cluster along x, y, z: they run at the same time, and reach each other's shared memory. `None`: what
    /// the kernel asks for itself (`__cluster_dims__`), else no clusters.
    pub cluster: Option<[u32; 3]>,
    /// All blocks run at the same time, and may wait for each other.
    pub cooperative: bool,
}

impl Attributes {
    /// Of an ordinary launch.
    pub const NONE: Self = Self { cluster: None, cooperative: false };
}

/// An argument of a kernel.
#[derive(Clone, Debug, PartialEq)]
pub enum Arg {
    /// Address of device memory.
    Pointer(u64),
    /// `int` and `unsigned int`, by bits.
    I32(i32),
    /// `long long`.
    I64(i64),
    /// `float`.
    F32(f32),
    /// `double`.
    F64(f64),
    /// Anything else: the bytes of the parameter.
    Bytes(Vec<u8>),
}

impl Arg {
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Pointer(x) => x.to_le_bytes().to_vec(),
            Self::I32(x) => x.to_le_bytes().to_vec(),
            Self::I64(x) => x.to_le_bytes().to_vec(),
            Self::F32(x) => x.to_le_bytes().to_vec(),
            Self::F64(x) => x.to_le_bytes().to_vec(),
            Self::Bytes(bytes) => bytes.clone(),
        }
    }
}

/// Shared memory of a block in bytes, if the launch keeps the limits.
pub(crate) fn check_shape(kernel: &Kernel, launch: &Launch) -> Result<u64> {
    let threads: u64 = launch.block.iter().map(|&n| u64::from(n)).product();
    let inside = |shape: [u32; 3], most: [u32; 3]| shape.iter().zip(most).all(|(&n, most)| n >= 1 && n <= most);
    if !inside(launch.block, MAX_BLOCK) || threads > MAX_THREADS {
        let block = launch.block;
        return Err(SimulatorError::Call(format!(
            "a block of {block:?} threads\nnext: 1 to {MAX_THREADS} in all, at most {MAX_BLOCK:?} along x, y, z"
        )));
    }
    if !inside(launch.grid, MAX_GRID) {
        let grid = launch.grid;
        return Err(SimulatorError::Call(format!("a grid of {grid:?} blocks\nnext: 1 to {MAX_GRID:?} along x, y, z")));
    }
    let layout = &kernel.layout;
    if layout.local_bytes > MAX_LOCAL || layout.param_bytes > MAX_PARAMS {
        let (local, params) = (layout.local_bytes, layout.param_bytes);
        return Err(SimulatorError::Call(format!(
            "{local} bytes of local memory a thread, {params} of parameters\nnext: at most {MAX_LOCAL} and {MAX_PARAMS}"
        )));
    }
    let shared = layout.shared_bytes.saturating_add(launch.shared_bytes.into());
    if shared > MAX_SHARED {
        return Err(SimulatorError::Call(format!(
            "{shared} bytes of shared memory a block\nnext: use at most {MAX_SHARED}"
        )));
    }
    Ok(shared)
}

/// The cluster of a launch, if the grid has whole ones.
pub(crate) fn check_cluster(kernel: &Kernel, launch: &Launch, asked: Option<[u32; 3]>) -> Result<[u32; 3]> {
    if let (Some(asked), Some(own)) = (asked, kernel.cluster)
        && asked != own
    {
        return Err(SimulatorError::Call(format!(
            "clusters of {asked:?} blocks, and `{}` is compiled for {own:?}\nnext: leave the cluster out of the launch",
            kernel.name
        )));
    }
    let cluster = asked.or(kernel.cluster).unwrap_or([1; 3]);
    let blocks: u64 = cluster.iter().map(|&n| u64::from(n)).product();
    let grid = launch.grid;
    if !(1..=MAX_CLUSTER).contains(&blocks) {
        return Err(SimulatorError::Call(format!(
            "a cluster of {cluster:?} blocks\nnext: 1 to {MAX_CLUSTER} in all, which every GPU with clusters runs"
        )));
    }
    if (0..3).any(|axis| !grid[axis].is_multiple_of(cluster[axis])) {
        return Err(SimulatorError::Call(format!(
            "a grid of {grid:?} blocks has no whole clusters of {cluster:?}\nnext: make each side a multiple"
        )));
    }
    Ok(cluster)
}

/// Blocks that run at a time, of a shape that keeps the limits and has so much shared memory a block.
pub(crate) fn resident(launch: &Launch, shared: u64) -> u32 {
    let threads: u64 = launch.block.iter().map(|&n| u64::from(n)).product();
    let by_warps = RESIDENT_WARPS / threads.div_ceil(32);
    let by_shared = RESIDENT_SHARED / (shared + RESERVED_SHARED);
    MULTIPROCESSORS * by_warps.min(by_shared).min(RESIDENT_BLOCKS) as u32
}

/// The arguments as the kernel's parameter space.
pub(crate) fn pack(kernel: &Kernel, args: &[Arg]) -> Result<Bytes> {
    let layout = &kernel.layout;
    let (name, wanted) = (&kernel.name, layout.params.len());
    if args.len() != wanted {
        let given = args.len();
        return Err(SimulatorError::Call(format!(
            "`{name}` has {wanted} parameters, {given} were given\nnext: give one for each"
        )));
    }
    let size = usize::try_from(layout.param_bytes).ok().and_then(Bytes::zeros);
    let mut out = size.ok_or_else(|| {
        SimulatorError::Call(format!("the parameters of `{name}` are too large\nnext: pass a pointer"))
    })?;
    for (number, (&symbol, arg)) in layout.params.iter().zip(args).enumerate() {
        let symbol = &layout.symbols[symbol as usize];
        let bytes = arg.bytes();
        if bytes.len() as u64 != symbol.bytes {
            let (wanted, given) = (symbol.bytes, bytes.len());
            return Err(SimulatorError::Call(format!(
                "parameter {number} of `{name}` has {wanted} bytes, the argument {given}\nnext: pass a value of its type; pointers have 8 bytes"
            )));
        }
        let at = symbol.at as usize;
        out.as_mut()[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    Ok(out)
}
