//! The shape of a launch, and the limits that a device sets to it.

use crate::error::{Error, Result};

/// How many blocks (the grid) of how many threads, and the dynamic shared memory of each block.
///
/// Dimensions are (x, y, z); `x` is the one that neighbouring threads differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks in the grid: CUDA's `gridDim`.
    pub grid: (u32, u32, u32),
    /// Threads in a block: CUDA's `blockDim`.
    pub block: (u32, u32, u32),
    /// Dynamic shared memory of each block, in bytes.
    pub shared_bytes: u32,
}

impl LaunchConfig {
    /// This many blocks of this many threads, both in one dimension.
    pub fn new(blocks: u32, threads: u32) -> Self {
        LaunchConfig { grid: (blocks, 1, 1), block: (threads, 1, 1), shared_bytes: 0 }
    }

    /// At least one thread for each of `elements`: ⌈elements ÷ threads⌉ blocks.
    ///
    /// The last block usually has threads to spare, so the kernel needs its bounds guard.
    /// No element still launches one block: a grid of zero blocks is an error to CUDA.
    pub fn for_elements(elements: usize, threads: u32) -> Self {
        let blocks = elements.div_ceil(threads.max(1) as usize).max(1);
        LaunchConfig::new(u32::try_from(blocks).unwrap_or(u32::MAX), threads)
    }

    /// At least one thread for each cell of a `rows` × `columns` table; `x` runs along a row.
    pub fn for_table(rows: usize, columns: usize, threads: (u32, u32)) -> Self {
        let cover = |cells: usize, threads: u32| {
            u32::try_from(cells.div_ceil(threads.max(1) as usize).max(1)).unwrap_or(u32::MAX)
        };
        LaunchConfig {
            grid: (cover(columns, threads.0), cover(rows, threads.1), 1),
            block: (threads.0, threads.1, 1),
            shared_bytes: 0,
        }
    }

    /// The same launch with this much dynamic shared memory for each block.
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Blocks in the grid.
    pub fn blocks(&self) -> u64 {
        product(self.grid)
    }

    /// Threads in one block.
    pub fn threads_per_block(&self) -> u64 {
        product(self.block)
    }
}

/// Shapes that no device takes overflow 64 bits.
fn product((x, y, z): (u32, u32, u32)) -> u64 {
    (u64::from(x) * u64::from(y)).saturating_mul(z.into())
}

/// What a launch may ask for beside its shape (CUDA's `cudaLaunchAttribute`), on GPUs from Hopper on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchAttributes {
    /// Programmatic dependent launch: the kernel may start before the one in front has ended, as soon as each block of that
    /// one has executed `griddepcontrol.launch_dependents` or has ended. What depends on that kernel stands behind
    /// `griddepcontrol.wait`.
    pub programmatic_stream_serialization: bool,
    /// So many neighbouring blocks along x form a cluster: they run at the same time, and see each other's shared memory.
    pub cluster: u32,
    /// All blocks run at the same time, so that they may wait for each other; a grid that is too large for that is an error,
    /// which says how many blocks fit.
    pub cooperative: bool,
    /// As much of a multiprocessor's memory as possible is shared memory, and little is L1 cache. It is divided anew only
    /// when nothing runs there: kernels that are to overlap must agree.
    pub max_shared_carveout: bool,
}

impl LaunchAttributes {
    /// An ordinary launch.
    pub const NONE: LaunchAttributes = LaunchAttributes {
        programmatic_stream_serialization: false,
        cluster: 1,
        cooperative: false,
        max_shared_carveout: false,
    };
}

/// What a device accepts in one launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Threads in a block, all dimensions multiplied.
    pub threads_per_block: u32,
    /// Threads in a block along x, y, z.
    pub block: (u32, u32, u32),
    /// Blocks in a grid along x, y, z.
    pub grid: (u32, u32, u32),
    /// Shared memory of one block, in bytes, with the opt-in that the crate makes.
    pub shared_bytes_per_block: u32,
}

impl Limits {
    /// Says which limit a launch breaks, before the driver answers `CUDA_ERROR_INVALID_VALUE`.
    ///
    /// # Errors
    /// [`Error::LaunchLimit`] or, for a dimension of zero, [`Error::Invalid`].
    pub fn check(&self, config: &LaunchConfig) -> Result<()> {
        let dimensions = |d: (u32, u32, u32)| [("x", d.0), ("y", d.1), ("z", d.2)];
        for (what, shape) in [("grid", config.grid), ("block", config.block)] {
            if let Some((axis, _)) = dimensions(shape).into_iter().find(|(_, extent)| *extent == 0) {
                return Err(Error::Invalid {
                    what: format!("the {what} has no extent along {axis}: {shape:?}"),
                    fix: "every dimension of grid and block is at least 1".to_string(),
                });
            }
        }
        let threads = config.threads_per_block();
        if threads > u64::from(self.threads_per_block) {
            return Err(Error::LaunchLimit {
                what: format!("too many threads in a block {:?}", config.block),
                asked: threads,
                limit: self.threads_per_block.into(),
                fix: "use smaller blocks and more of them: 128 or 256 threads are a good start, \
                      and `LaunchConfig::for_elements(n, 256)` counts the blocks"
                    .to_string(),
            });
        }
        for (what, shape, limit) in [("block", config.block, self.block), ("grid", config.grid, self.grid)] {
            for ((axis, asked), (_, limit)) in dimensions(shape).into_iter().zip(dimensions(limit)) {
                if asked > limit {
                    return Err(Error::LaunchLimit {
                        what: format!("the {what} is too large along {axis}"),
                        asked: asked.into(),
                        limit: limit.into(),
                        fix: "let each thread do more than one element (a grid-stride loop), or use another axis"
                            .to_string(),
                    });
                }
            }
        }
        if config.shared_bytes > self.shared_bytes_per_block {
            return Err(Error::LaunchLimit {
                what: "too much shared memory for a block, in bytes".to_string(),
                asked: config.shared_bytes.into(),
                limit: self.shared_bytes_per_block.into(),
                fix: "use a smaller tile".to_string(),
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const H200: Limits = Limits {
        threads_per_block: 1024,
        block: (1024, 1024, 64),
        grid: (2_147_483_647, 65535, 65535),
        shared_bytes_per_block: 232_448,
    };

    #[test]
    fn every_element_gets_a_thread() {
        for (n, blocks) in [(0, 1), (1, 1), (256, 1), (257, 2), (1_000_003, 3907)] {
            assert_eq!(LaunchConfig::for_elements(n, 256).grid.0, blocks, "{n}");
        }
        assert_eq!(LaunchConfig::for_table(65, 127, (32, 8)).grid, (4, 9, 1));
    }

    #[test]
    fn limits_name_what_is_too_large() {
        assert_eq!(H200.check(&LaunchConfig::new(4, 1024)), Ok(()));
        let broken = [
            (LaunchConfig::new(1, 1025), "too many threads"),
            (LaunchConfig { grid: (1, 65536, 1), block: (1, 1, 1), shared_bytes: 0 }, "grid is too large along y"),
            (LaunchConfig { grid: (1, 1, 1), block: (1, 1, 65), shared_bytes: 0 }, "block is too large along z"),
            (LaunchConfig::new(1, 32).shared(232_449), "shared memory"),
            (LaunchConfig::new(0, 32), "no extent along x"),
            (LaunchConfig::new(1, 0), "no extent along x"),
        ];
        for (config, text) in broken {
            let message = H200.check(&config).unwrap_err().to_string();
            assert!(message.contains(text) && message.contains("next: "), "{message}");
        }
    }
}
