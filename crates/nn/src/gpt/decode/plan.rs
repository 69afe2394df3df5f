//! The ways to do a step: how many kernels, and how they are queued.

use super::super::Config;
use gpulab::error::{Error, Result};

/// How the work of a layer is cut into kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plan {
    /// One for each operator, as a framework has them: eleven a layer.
    Operators,
    /// One for each matrix, with what stands before and behind it, and one for attention: five a layer.
    Fused,
    /// One for each half of a layer, attention and MLP: two a layer.
    Halves,
    /// One for the token.
    Whole,
}

/// How kernels are queued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Queue {
    /// Launched by the CPU, one after the other.
    OneByOne,
    /// A CUDA graph: launched as one.
    Graph,
    /// A CUDA graph whose kernels start before the one in front has ended, and fetch their weights meanwhile. (Those of
    /// [`Plan::Operators`] do not, and [`Plan::Whole`] has one.)
    Overlapped,
}

/// Constants of the kernels that no result depends on. The defaults are the best of those tried on an H200.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tuning {
    /// Threads of a block of [`Plan::Halves`] and [`Plan::Whole`].
    pub threads: usize,
    /// Blocks of [`Plan::Halves`] that a multiprocessor is to hold: the registers of a thread are bounded for that.
    pub resident: usize,
    /// Hidden units that a block of the MLP owns.
    pub units: usize,
    /// Rows of the vocabulary that a warp has under way.
    pub lines: usize,
    /// Blocks of the logits' kernel for each multiprocessor.
    pub logits_blocks: usize,
    /// So many bytes of weights behind those in use come into the L2 cache; 0: none.
    pub run_ahead: usize,
    /// Whether all kernels ask for as much shared memory as there is: kernels that overlap must agree on that.
    pub max_shared_carveout: bool,
    /// Clusters of the one kernel of [`Plan::Whole`]; 0: as many as fit.
    pub clusters: usize,
    /// Whether that kernel's launch asks that all blocks run at the same time.
    pub cooperative: bool,
}

impl Tuning {
    /// The constants for a model of that shape.
    pub fn of(config: &Config) -> Tuning {
        Tuning {
            threads: Plan::threads(config, 256).unwrap_or(256),
            resident: 2,
            // 128 blocks: each has a multiprocessor of an H200 to itself.
            units: (4 * config.n_embd).div_ceil(128).max(8),
            lines: 4,
            logits_blocks: 1,
            run_ahead: 0,
            max_shared_carveout: true,
            clusters: 0,
            cooperative: true,
        }
    }
}

/// Most threads of a block.
const MOST_THREADS: usize = 1024;
/// Blocks of a cluster, which share a head.
pub(super) const SPLIT: usize = 8;

impl Plan {
    /// All of them, the first one first.
    pub const ALL: [Plan; 4] = [Plan::Operators, Plan::Fused, Plan::Halves, Plan::Whole];

    /// `operators`, `fused`, `halves`, `whole`.
    pub fn name(self) -> &'static str {
        match self {
            Plan::Operators => "operators",
            Plan::Fused => "fused",
            Plan::Halves => "halves",
            Plan::Whole => "whole",
        }
    }

    /// Whether the kernels find the matrices of all layers in one buffer.
    pub(super) fn is_packed(self) -> bool {
        matches!(self, Plan::Halves | Plan::Whole)
    }

    /// Kernels that a token takes: those of the layers, and those behind them.
    pub fn kernels(self, config: &Config) -> usize {
        let (layer, ends) = match self {
            Plan::Operators => (11, 4),
            Plan::Fused => (5, 1),
            Plan::Halves => (2, 1),
            Plan::Whole => (0, 1),
        };
        layer * config.n_layer + ends
    }

    /// Threads of the blocks of `kernels/decode/halves.cu`: whole rows of eights, whole heads, whole warps, and at least
    /// so many. `None` where there is no such number.
    fn threads(config: &Config, least: usize) -> Option<usize> {
        let multiple = [config.n_embd / 8, config.head(), 32].into_iter().reduce(common_multiple)?;
        let threads = least.div_ceil(multiple) * multiple;
        (threads <= MOST_THREADS).then_some(threads)
    }

    /// Whether the kernels take a model of that shape.
    ///
    /// # Errors
    /// [`Error::Unsupported`] says what does not fit.
    pub fn suits(self, config: &Config) -> Result<()> {
        let refuse = |what: String, fix: &str| Err(Error::Unsupported { what, fix: fix.to_string() });
        let (width, head) = (config.n_embd, config.head());
        if !head.is_power_of_two() || !(8..=256).contains(&head) {
            return refuse(
                format!("the decoding kernels share a head of {head} numbers among lanes by eights"),
                "use a model whose heads have 8, 16, 32, 64, 128 or 256 numbers, or decode it on candle",
            );
        }
        if self.is_packed() && Plan::threads(config, 256).is_none() {
            return refuse(
                format!("no block of {MOST_THREADS} threads at most has whole rows of a width of {width}"),
                "use `Plan::Fused`",
            );
        }
        Ok(())
    }
}

impl Queue {
    /// `one by one`, `graph`, `overlapped`.
    pub fn name(self) -> &'static str {
        match self {
            Queue::OneByOne => "one by one",
            Queue::Graph => "graph",
            Queue::Overlapped => "overlapped",
        }
    }
}

fn common_multiple(a: usize, b: usize) -> usize {
    let (mut larger, mut smaller) = (a.max(b), a.min(b));
    while smaller > 0 {
        (larger, smaller) = (smaller, larger % smaller);
    }
    a / larger * b
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(n_embd: usize, n_head: usize) -> Config {
        Config { n_layer: 1, n_head, n_embd, n_ctx: 64, vocab_size: 256 }
    }

    #[test]
    fn every_gpt2_has_a_block_for_its_width() {
        for (width, heads, threads) in
            [(768, 12, Some(384)), (1024, 16, Some(256)), (1280, 20, Some(320)), (128, 4, Some(256))]
        {
            assert_eq!(Plan::threads(&model(width, heads), 256), threads, "{width}");
            assert_eq!(Plan::Halves.suits(&model(width, heads)), Ok(()), "{width}");
        }
        assert_eq!([model(768, 12), model(64, 2)].map(|model| Tuning::of(&model).units), [24, 8]);
    }

    #[test]
    fn a_shape_that_does_not_fit_is_named() {
        let odd = Plan::Fused.suits(&model(96, 2)).unwrap_err().to_string();
        assert!(odd.contains("a head of 48 numbers") && odd.contains("\nnext: "), "{odd}");
        // GPT-2 XL: 25 heads of 64, and 200 eights a row.
        assert_eq!(Plan::Fused.suits(&model(1600, 25)), Ok(()));
        assert!(Plan::Halves.suits(&model(1600, 25)).unwrap_err().to_string().contains("use `Plan::Fused`"));
    }
}
