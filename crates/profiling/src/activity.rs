//! One thing that the GPU did, and a named stretch of the host's time.

/// What kind of work the GPU did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActivityKind {
    /// A kernel.
    Kernel,
    /// A copy from the host's memory to the GPU's.
    CopyToDevice,
    /// A copy from the GPU's memory to the host's.
    CopyToHost,
    /// A copy within the GPU's memory.
    CopyOnDevice,
    /// Memory filled with one value.
    Fill,
}

impl ActivityKind {
    /// `kernel`, `copy to device` …
    pub fn words(self) -> &'static str {
        match self {
            ActivityKind::Kernel => "kernel",
            ActivityKind::CopyToDevice => "copy to device",
            ActivityKind::CopyToHost => "copy to host",
            ActivityKind::CopyOnDevice => "copy on device",
            ActivityKind::Fill => "fill",
        }
    }
}

/// One kernel, copy or fill. Times are nanoseconds from the trace's start, by the GPU's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Activity {
    /// What kind of work.
    pub kind: ActivityKind,
    /// The kernel's name, else the kind in words.
    pub name: String,
    /// When it began, in ns.
    pub start_ns: u64,
    /// When it ended, in ns.
    pub end_ns: u64,
    /// The stream's number, as CUPTI counts them; 7 is the default stream.
    pub stream: u32,
    /// Bytes moved or filled; 0 for kernels, whose traffic no record tells.
    pub bytes: u64,
    /// Blocks along x, y, z; 0 for copies.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z; 0 for copies.
    pub block: [u32; 3],
    /// Registers per thread.
    pub registers: u32,
    /// Shared memory a block, in bytes, static and dynamic.
    pub shared_bytes: u32,
}

impl Activity {
    /// How long it took, in µs.
    pub fn us(&self) -> f64 {
        (self.end_ns - self.start_ns) as f64 / 1e3
    }
}

/// A named stretch of the host's time, in ns from the trace's start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRange {
    /// As it was given.
    pub name: String,
    /// When it began, in ns.
    pub start_ns: u64,
    /// When it ended, in ns.
    pub end_ns: u64,
}
