//! Debugging case of lesson 31b: a flash attention kernel that is right, and at some lengths slower than it should be. Its source
//! stays hidden until the counters have been read.

use crate::check::Verdict;
use crate::check::on_paper::diagnosed;
use crate::check::verdict::{Check, told};
use gpulab::cpu::{self, AttentionMask, AttentionShape, Rounding};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Kernel, TensorMap};
use gpulab::launch::Source;
use gpulab::warpsim::Counters;
use gpulab_kernels::ladder::{self, Rung};
use std::fmt;

/// The course's kernel, and what is wrong in the copy that is looked at.
const RUNG: &str = "flash_attention/07_warp_specialised";
const RIGHT: &str = "int tiles = (keys + KEYS - 1) / KEYS;";
const FAULT: &str = "int tiles = keys / KEYS + 1;";
/// The TMA is in no counter: what stands before the kernel where its boxes are counted.
const NOTES: &str = r#"#include "wgmma.cuh"
__device__ void noted(void *to, const TensorMap *map, int column, int row, int matrix, u64 *barrier) {
    printf("box\n");
    tma_load(to, map, column, row, matrix, barrier);
}
#define tma_load noted"#;
/// Head dimension; queries of a block, and keys of a tile.
const WIDTH: usize = 128;
const TILE: usize = 128;
/// Rows of a box of q and of the result.
const Q_BOX: u32 = 64;
/// The simulator needs a second for so many.
const MOST: usize = 512;

/// What a flash attention kernel may do too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Traffic {
    /// The last tile hangs over the last key, and costs as much as a whole one.
    RaggedTile,
    /// A tile of which no query of the block sees a key is fetched and multiplied, with a mask and without.
    EmptyTile,
    /// Tiles that only the causal mask hides are fetched and multiplied.
    HiddenTiles,
    /// The queries are fetched again with each tile of keys.
    QueriesAgain,
    /// Lanes want different words of one bank of shared memory.
    BankConflicts,
    /// The lanes of a warp take different paths where they hide scores.
    Divergence,
    /// Scores or results do not stay in registers.
    LocalMemory,
}

/// What the simulator counted of one launch of the hidden kernel.
#[derive(Debug, Clone)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct TrafficReport {
    /// Tokens.
    pub tokens: usize,
    /// Whether a query sees no key behind it.
    pub causal: bool,
    /// Whether each number of the result is as near to the exact one as rounding allows.
    pub right: bool,
    /// Blocks of 128 queries.
    pub blocks: u64,
    /// Boxes that the TMA is asked for.
    pub boxes: usize,
    /// Instructions of warps on the lines that start products, and on those of the softmax. (In all others waiting warps poll.)
    pub products: u64,
    /// See `products`.
    pub softmax: u64,
    /// The counters.
    pub counters: Counters,
}

/// Launches the hidden kernel in the simulator: one head of 128 numbers, so many tokens.
///
/// # Errors
/// [`Error::Invalid`] for no or more than 512 tokens; those of [`Gpu::compile`] and of a launch.
pub fn traffic_report(tokens: usize, causal: bool) -> Result<TrafficReport> {
    if !(1..=MOST).contains(&tokens) {
        return Err(Error::invalid(
            format!("{tokens} tokens"),
            format!("ask for 1 to {MOST}; what longer texts need can be worked out"),
        ));
    }
    let gpu = Gpu::simulated()?;
    let rung = ladder::rung(RUNG)?;
    let source = hidden(&rung)?;
    let noted = Source { text: format!("{NOTES}\n{}", source.text), ..source.clone() };
    let [kernel, noted] = [source, noted].map(|source| gpu.compile(source)?.kernel(rung.kernel));
    let (kernel, noted) = (kernel?, noted?);
    let shape = AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length: tokens, width: WIDTH };
    let inputs =
        cpu::attention_inputs(shape, 1, 2.0).map(|x| x.into_iter().map(cpu::bf16_from_f32).collect::<Vec<_>>());
    let [q, k, v] = [&inputs[0], &inputs[1], &inputs[2]].map(|x| gpu.to_device(x));
    let (q, k, v, mut o) = (q?, k?, v?, gpu.poison::<u16>(tokens * WIDTH)?);
    let config = rung.launch(tokens * WIDTH, 1, 132);
    let (seen, boxes) = {
        let map = |buffer, rows| TensorMap::of_stack(buffer, (1, tokens, WIDTH), rows);
        let (q, k, v) = (map(&q, Q_BOX)?, map(&k, TILE as u32)?, map(&v, TILE as u32)?);
        let mut o = TensorMap::of_written_stack(&mut o, (1, tokens, WIDTH), Q_BOX)?;
        let scale = std::f32::consts::LOG2_E / (WIDTH as f32).sqrt();
        let mut run =
            |kernel: &Kernel| kernel.inspect(config, (&q, &k, &v, &mut o, tokens as i32, 1, scale, i32::from(causal)));
        let boxes = run(&noted)?.printed.lines().count();
        (run(&kernel)?, boxes)
    };
    let right = seen.findings.is_empty() && exact(&o.to_host()?, &inputs, shape, causal);
    let on = |calls: &[&str]| {
        let lines = seen.lines.iter().filter(|line| calls.iter().any(|call| line.text.contains(call)));
        lines.map(|line| line.counters.warp_instructions).sum()
    };
    Ok(TrafficReport {
        tokens,
        causal,
        right,
        blocks: config.blocks(),
        boxes,
        products: on(&["multiply(s,", "multiply(o_part,"]),
        softmax: on(&["softmax(s,"]),
        counters: seen.counters,
    })
}

/// The rung with its fault.
fn hidden(rung: &Rung) -> Result<Source> {
    let mut source = rung.source()?;
    assert!(source.text.contains(RIGHT), "rung 07 has changed");
    source.text = source.text.replace(RIGHT, FAULT);
    Ok(source)
}

fn exact(o: &[u16], inputs: &[Vec<u16>; 3], shape: AttentionShape, causal: bool) -> bool {
    let number = |bits: &[u16], at: usize| f64::from(cpu::f32_from_bf16(bits[at]));
    let [q, k, v] = [0, 1, 2].map(|i| move |at: usize| number(&inputs[i], at));
    let mask = if causal { AttentionMask::causal() } else { AttentionMask::none() };
    let rows: Vec<usize> = (0..shape.rows()).collect();
    cpu::attention_wrong(&|at| number(o, at), (&q, &k, &v), shape, &mask, &rows, Rounding::Bf16).is_none()
}

/// Checks a diagnosis of the hidden kernel: what it does too much of, and how many percent more tiles of keys than needed
/// all its blocks fetch for one head of 2,048 tokens under a causal mask.
pub fn diagnose_traffic(diagnosis: Option<(Traffic, f64)>) -> Verdict {
    let blocks = 2048.0 / TILE as f64;
    let needed = blocks * (blocks + 1.0) / 2.0;
    let right = 100.0 * blocks / needed;
    let slips = [
        (100.0 / blocks, "without a mask it would be so: does each block need all tiles?"),
        (blocks, "that is how many tiles they are in all blocks together; of how many that are needed?"),
        (100.0 * blocks / (needed + blocks), "that is their share of what is fetched, not of what is needed"),
        (right / 100.0, "in percent, please"),
    ];
    let start = "how many tiles of 128 keys does the block need that answers the first 128 queries, and the next one? Add them up, \
                 and what the fault adds to each";
    let none = "ask for reports that differ in one thing. At which numbers of tokens do the counts make a step?";
    diagnosed("diagnose_traffic", diagnosis, none, against, right * 0.99..=right * 1.01, &slips, start)
}

/// The evidence that speaks for an innocent suspect.
fn against(named: Traffic) -> Check {
    let at = traffic_report;
    let conflicts = |c: &Counters| c.shared_load_bank_conflicts + c.shared_store_bank_conflicts;
    let what = match named {
        Traffic::EmptyTile => return Ok(()),
        Traffic::RaggedTile => format!(
            "with 127 tokens {} boxes are fetched, and with 128 {}: the ragged length is the cheaper one",
            at(127, false)?.boxes,
            at(128, false)?.boxes
        ),
        Traffic::HiddenTiles => {
            let [one, two] = [at(127, false)?, at(128, false)?].map(|report| report.products);
            format!("without any mask, products take {one} instructions with 127 tokens and {two} with 128")
        }
        Traffic::QueriesAgain => {
            let [one, two] = [at(127, false)?, at(128, false)?].map(|report| report.boxes);
            format!(
                "from 127 to 128 tokens {} boxes are added: two panels of K and two of V. Those of Q would come on top",
                two - one
            )
        }
        Traffic::BankConflicts => format!(
            "there are {} conflicts with 127 tokens, and {} with 128",
            conflicts(&at(127, false)?.counters),
            conflicts(&at(128, false)?.counters)
        ),
        Traffic::Divergence => {
            let report = at(128, true)?;
            format!(
                "{} branches are divergent in the causal launch of 128 tokens, in which warps execute {} instructions for the softmax alone",
                report.counters.divergent_branches, report.softmax
            )
        }
        Traffic::LocalMemory => {
            let c = at(128, false)?.counters;
            format!("{} requests go to local memory", c.local_load_requests + c.local_store_requests)
        }
    };
    told(
        what,
        "look for two numbers of tokens, one apart, between which the counts make a step",
        "how many tiles do 127, 128 and 129 keys need? And for how many are boxes asked for, beside those of Q?",
    )
}

/// The hidden line beside the course's, once the diagnosis is right.
pub fn revealed_traffic(diagnosis: Option<(Traffic, f64)>) -> String {
    let source = format!("flash_attention/07_warp_specialised.cu, where\n-   {RIGHT}\n+   {FAULT}");
    diagnose_traffic(diagnosis).reveals(&source).to_string()
}

gpulab::show_as_text!(TrafficReport);

impl fmt::Display for TrafficReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let c = &self.counters;
        let (right, mask) =
            (if self.right { "right" } else { "wrong" }, if self.causal { "causal" } else { "without a mask" });
        writeln!(f, "{} tokens, {mask}, blocks: {}; the result is {right}", self.tokens, self.blocks)?;
        for (what, count) in [
            ("boxes asked for, 128 bytes wide", self.boxes as u64),
            ("instructions of warps for products", self.products),
            ("instructions of warps for the softmax", self.softmax),
            ("divergent branches", c.divergent_branches),
            ("bank conflicts", c.shared_load_bank_conflicts + c.shared_store_bank_conflicts),
            ("requests to local memory", c.local_load_requests + c.local_store_requests),
            ("arrivals of warps at barriers of the block", c.barriers),
        ] {
            writeln!(f, "{count:>8}  {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_counters_convict() {
        let [ragged, whole] = [127, 128].map(|tokens| traffic_report(tokens, false).unwrap());
        assert!(ragged.right && whole.right && ragged.blocks == 1 && whole.blocks == 1, "{ragged}{whole}");
        assert!(whole.boxes == ragged.boxes + 4 && whole.products == 2 * ragged.products, "{ragged}{whole}");
        assert!(traffic_report(0, false).is_err() && traffic_report(513, true).is_err());
        let right = Some((Traffic::EmptyTile, 11.76));
        assert!(diagnose_traffic(right).passed(), "{}", diagnose_traffic(right).text());
        assert!(revealed_traffic(right).contains(FAULT));
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((Traffic::RaggedTile, 11.76)), "the ragged length is the cheaper one"),
            (Some((Traffic::HiddenTiles, 11.76)), "without any mask, products take"),
            (Some((Traffic::QueriesAgain, 11.76)), "4 boxes are added"),
            (Some((Traffic::BankConflicts, 11.76)), "conflicts with 127"),
            (Some((Traffic::Divergence, 11.76)), "branches are divergent in the causal"),
            (Some((Traffic::LocalMemory, 11.76)), "0 requests go to local memory"),
            (Some((Traffic::EmptyTile, 6.25)), "without a mask"),
            (Some((Traffic::EmptyTile, 16.0)), "in all blocks together"),
            (Some((Traffic::EmptyTile, 10.53)), "of what is needed"),
            (Some((Traffic::EmptyTile, 0.1176)), "in percent"),
            (Some((Traffic::EmptyTile, 50.0)), "how many tiles of 128 keys"),
            (Some((Traffic::EmptyTile, f64::NAN)), "is no answer"),
            (Some((Traffic::EmptyTile, f64::INFINITY)), "is no answer"),
        ] {
            let text = diagnose_traffic(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(!text.contains("KEYS"), "{text}");
        }
        for wrong in [None, Some((Traffic::EmptyTile, 6.25))] {
            assert!(revealed_traffic(wrong).starts_with("The source shows itself"));
        }
    }
}
