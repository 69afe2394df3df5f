//! The compiled kernels of a plan, and what they write.

use super::super::Config;
use super::plan::{Plan, SPLIT, Tuning};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Args, Buffer, Gpu, Kernel};
use gpulab_kernels::ladder::operator;
use gpulab::launch::{LaunchAttributes, LaunchConfig, Source};
use std::collections::HashMap;

/// Threads of the kernels whose blocks have a warp for each row.
pub(super) const ROW_THREADS: usize = 256;
/// Threads of the one block that looks for the largest logit.
pub(super) const ONE_BLOCK: u32 = ROW_THREADS as u32;

/// The kernels of `kernels/decode/`, by name.
#[derive(Debug)]
pub(super) struct Kernels {
    pub named: HashMap<&'static str, Kernel>,
    pub tuning: Tuning,
    pub multiprocessors: usize,
    /// Blocks of a cluster: one in the simulator, which then does the work of all.
    pub cluster: u32,
    /// Clusters of the one kernel of [`Plan::Whole`].
    pub clusters: u32,
}

/// What steps write.
#[derive(Debug)]
pub(super) struct Scratch {
    /// The residual; by halves in three turns: one is read, one added to, one becomes zero.
    pub residual: Buffer<f32>,
    /// Normed, q with k and v, attended, hidden units, what is added to the residual.
    pub vectors: [Buffer<f32>; 5],
    /// For each layer the keys of all heads, then their values.
    pub caches: Buffer<u16>,
    pub logits: Buffer<f32>,
    /// The bias of the head: none.
    pub zeros: Buffer<f32>,
    pub best: Buffer<u64>,
    /// Blocks that have come to a meeting, and to their end.
    pub arrived: Buffer<u32>,
    pub tokens: Buffer<i32>,
    /// Position, length of the prompt, seed, bits of the temperature.
    pub state: Buffer<i32>,
}

impl Kernels {
    pub(super) fn compile(gpu: &Gpu, config: &Config, plan: Plan, tuning: Tuning) -> Result<Kernels> {
        let files: &[&str] = match plan {
            Plan::Operators => &["decode/ends", "decode/operators"],
            Plan::Fused => &["decode/ends", "decode/operators", "decode/fused"],
            Plan::Halves => &["decode/ends", "decode/halves"],
            Plan::Whole => &["decode/ends", "decode/whole"],
        };
        let mut named = HashMap::new();
        for path in files {
            let operator = operator(path)?;
            operator.runs_on(gpu.compute_capability()?)?;
            let value = |name: &str| match name {
                "WIDTH" => config.n_embd,
                "HIDDEN" => 4 * config.n_embd,
                "HEAD" => config.head(),
                "SPLIT" => SPLIT,
                "ROWS" => tuning.units,
                "RESIDENT" => tuning.resident,
                "LINES" => tuning.lines,
                "THREADS" if !matches!(*path, "decode/operators" | "decode/fused") => tuning.threads,
                "THREADS" => ROW_THREADS,
                other => unreachable!("{path} has a constant {other}"),
            };
            let own = Source { defines: Vec::new(), ..operator.source()? };
            let source = operator.defines.iter().fold(own, |source, (name, _)| source.define(name, value(name)));
            let module = gpu.compile(source)?;
            for name in operator.kernels {
                named.insert(*name, module.kernel(name)?);
            }
        }
        let multiprocessors = gpu.multiprocessors().max(1) as usize;
        let cluster = if matches!(gpu, Gpu::Simulated(_)) { 1 } else { SPLIT as u32 };
        let mut kernels = Kernels { named, tuning, multiprocessors, cluster, clusters: 0 };
        if let Some(whole) = kernels.named.get("whole") {
            let shape = LaunchConfig::new(cluster, kernels.threads()).shared(kernels.tiles(config));
            let fit = whole.clusters_at_a_time(shape, cluster)?;
            if fit == 0 {
                return Err(Error::Unsupported {
                    what: format!(
                        "a cluster of {cluster} blocks of {} threads has no room on this GPU",
                        tuning.threads
                    ),
                    fix: "use fewer threads, or `Plan::Halves`".to_string(),
                });
            }
            kernels.clusters = if tuning.clusters == 0 { fit } else { fit.min(tuning.clusters as u32) };
        }
        Ok(kernels)
    }

    /// Shared memory of a block for keys and values, in bytes.
    pub(super) fn tiles(&self, config: &Config) -> u32 {
        (2 * config.n_ctx.div_ceil(self.cluster as usize) * config.head() * size_of::<u16>()) as u32
    }

    pub(super) fn threads(&self) -> u32 {
        self.tuning.threads as u32
    }

    /// One launch; with `early` it may start before the one in front has ended.
    pub(super) fn launch<'a>(&self, name: &str, shape: LaunchConfig, early: bool, args: impl Args<'a>) -> Result<()> {
        self.launch_in(name, shape, early, 1, args)
    }

    /// As [`Kernels::launch`], in clusters.
    pub(super) fn launch_in<'a>(
        &self,
        name: &str,
        shape: LaunchConfig,
        early: bool,
        cluster: u32,
        args: impl Args<'a>,
    ) -> Result<()> {
        let max_shared_carveout = early && self.tuning.max_shared_carveout;
        let attributes = LaunchAttributes {
            programmatic_stream_serialization: early,
            cluster,
            max_shared_carveout,
            ..LaunchAttributes::NONE
        };
        self.named[name].launch_with(shape, attributes, args)
    }
}

impl Scratch {
    pub(super) fn new(gpu: &Gpu, config: &Config) -> Result<Scratch> {
        let Config { n_layer, n_embd: width, n_ctx, vocab_size, .. } = *config;
        let vector = |len: usize| gpu.zeros::<f32>(len);
        Ok(Scratch {
            residual: vector(3 * width)?,
            vectors: [vector(width)?, vector(3 * width)?, vector(width)?, vector(4 * width)?, vector(width)?],
            caches: gpu.zeros(n_layer * 2 * width * n_ctx)?,
            logits: vector(vocab_size)?,
            zeros: vector(vocab_size)?,
            best: gpu.zeros(1)?,
            arrived: gpu.zeros(2)?,
            tokens: gpu.zeros(n_ctx)?,
            state: gpu.zeros(4)?,
        })
    }
}

/// A warp for each row.
pub(super) fn by_rows(rows: usize) -> LaunchConfig {
    LaunchConfig::for_elements(32 * rows, ROW_THREADS as u32)
}
