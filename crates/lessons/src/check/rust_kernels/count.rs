//! A kernel in Rust that counts, and is right nearly always. Its source stays hidden until its mistake is named.

use crate::check::Verdict;
use crate::check::verdict::{self, Check, told, wrong};
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::launch::{LaunchConfig, Source};
use gpulab::warpsim::Counters;
use std::fmt;

const THREADS: u32 = 256;
/// What the diagnosis is about.
const ASKED_BLOCKS: u32 = 4;
/// Thread 0 of block 0 meets its 256th equal element: 255 strides of the grid, and one more.
const FEWEST: f64 = 255.0 * (ASKED_BLOCKS * THREADS) as f64 + 1.0;
/// As much as a report takes: a moment in the simulator.
const MOST: usize = 1 << 19;
const KEY: u32 = 7;

const SOURCE: &str = r#"use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn count(x: *const u32, key: u32, counts: *mut u32, n: u32) {
    let (n, thread) = (n as usize, thread_x() as usize);
    // SAFETY: the launch has one dimension and passes n elements, and a count for each block.
    let (x, mut counts) = unsafe { (Slice::new(x, n), DisjointSlice::new(counts, blocks_x() as usize)) };
    let sums = shared!(SUMS: [u32; 256]);
    // A thread sees few elements: a byte will do, and leaves registers for others.
    let mut own = 0_u8;
    for i in grid_stride(n) {
        own += u8::from(x[i.get()] == key);
    }
    sums.set(thread, u32::from(own));
    sync_threads();
    let mut distance = 128;
    while distance > 0 {
        if thread < distance {
            sums.set(thread, sums.get(thread) + sums.get(thread + distance));
        }
        sync_threads();
        distance /= 2;
    }
    if let Some(count) = counts.own_of_block() {
        *count = sums.get(0);
    }
}"#;

/// What may be wrong with a kernel that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CountFault {
    /// Threads overwrite each other's count.
    LostUpdates,
    /// A thread reads past the end of an array.
    OutOfBounds,
    /// A thread reads a sum that is not there yet.
    MissingBarrier,
    /// A number outgrows its type.
    Overflow,
    /// Large counts are rounded.
    RoundedSums,
    /// The last elements are forgotten.
    SkippedTail,
}

/// What one launch of the hidden kernel gave.
#[derive(Debug, Clone)]
#[must_use = "a report shows itself as the last expression of a cell, without a semicolon"]
pub struct CountReport {
    /// Elements, and every how many of them is the key.
    pub n: usize,
    /// Every so many elements is the key.
    pub every: usize,
    /// Blocks of 256 threads.
    pub blocks: u32,
    /// How many there are.
    pub there: u64,
    /// How many were counted; `None` where the launch did not end.
    pub counted: Option<u64>,
    /// What the simulator found, or why the launch did not end.
    pub findings: Vec<String>,
    /// The counters; `None` where the launch did not end.
    pub counters: Option<Counters>,
}

/// Launches the hidden kernel in the simulator on `n` numbers, of which every `every`-th is the one to count, by so many blocks of 256
/// threads.
///
/// # Errors
/// [`Error::Invalid`] above 2^19 elements, and for an `every` or `blocks` of 0; those of [`Gpu::compile`].
pub fn count_report(n: usize, every: usize, blocks: u32) -> Result<CountReport> {
    report(Source::rust(SOURCE), n, every, blocks)
}

/// The same kernel, compiled with debug assertions.
///
/// # Errors
/// As [`count_report`].
pub fn count_report_checked(n: usize, every: usize, blocks: u32) -> Result<CountReport> {
    report(Source::rust(SOURCE).checked(), n, every, blocks)
}

fn report(source: Source, n: usize, every: usize, blocks: u32) -> Result<CountReport> {
    if n == 0 || n > MOST || every == 0 || blocks == 0 || blocks > 1024 {
        return Err(Error::invalid(
            format!("{n} elements, every {every}-th of them the key, {blocks} blocks"),
            format!("ask for 1 to {MOST} elements, every first or more of them, 1 to 1024 blocks"),
        ));
    }
    let gpu = Gpu::simulated()?;
    let kernel = gpu.compile(source)?.kernel("count")?;
    let x: Vec<u32> = (0..n).map(|i| if i % every == 0 { KEY } else { 0 }).collect();
    let (on_gpu, mut counts) = (gpu.to_device(&x)?, gpu.poison::<u32>(blocks as usize)?);
    let config = LaunchConfig::new(blocks, THREADS);
    let mut report = CountReport {
        n,
        every,
        blocks,
        there: n.div_ceil(every) as u64,
        counted: None,
        findings: vec![],
        counters: None,
    };
    match kernel.launch(config, (&on_gpu, KEY, &mut counts, n as u32)) {
        Ok(()) => {
            report.counted = Some(counts.to_host()?.iter().map(|&count| u64::from(count)).sum());
            report.counters = Some(kernel.inspect(config, (&on_gpu, KEY, &mut counts, n as u32))?.counters);
        }
        // Where, but not the line's text.
        Err(Error::Mistakes { shown, .. }) => {
            report.findings = shown.iter().map(|one| format!("{}: {}", one.kind, hidden_line(&one.place))).collect();
        }
        Err(error) => return Err(error),
    }
    Ok(report)
}

/// A finding's place without the file and its line.
fn hidden_line(place: &str) -> String {
    place.split(", ").filter(|part| !part.contains("kernel.rs")).collect::<Vec<_>>().join(", ")
}

/// Checks a diagnosis: what is wrong, and the fewest elements, all of them the key, that 4 blocks count wrongly.
pub fn diagnose_count(diagnosis: Option<(CountFault, f64)>) -> Verdict {
    verdict::verdict("diagnose_count", || {
        let Some((fault, fewest)) = diagnosis else {
            return wrong(
                "there is no diagnosis yet",
                "compare reports that differ in one thing: the number of elements, how many of them are the key, the blocks, \
                 the checks. Which of these change whether the count is right?",
            );
        };
        against(fault)?;
        if fewest == FEWEST {
            return Ok(());
        }
        let what = format!("the cause is right, but {fewest} is not the fewest");
        match fewest {
            _ if !fewest.is_finite() || fewest < 1.0 => wrong(what, "a whole number of elements, for instance 1000"),
            65_536.0 | 65_281.0 => {
                wrong(what, "that is one block's: with four of them each thread sees fewer elements")
            }
            262_144.0 | 262_145.0 => told(
                what,
                "there it is wrong, but is it the first?",
                "which thread is the first to count one too many?",
            ),
            256.0 | 255.0 => {
                wrong(what, "that is what one thread has counted then; how many elements has the grid seen?")
            }
            _ => told(
                what,
                "reports on both sides of it: the largest that is right, and the smallest that is wrong",
                "elements are dealt out one after the other to 4 × 256 threads: which of them meets its 256th element first?",
            ),
        }
    })
}

/// What speaks for an innocent suspect.
fn against(named: CountFault) -> Check {
    let what = match named {
        CountFault::Overflow => return Ok(()),
        CountFault::LostUpdates => {
            "the simulator finds no race and no lost update, and the count is the same in every run".to_string()
        }
        CountFault::OutOfBounds => {
            let checked = count_report_checked(1001, 1, ASKED_BLOCKS)?;
            let right = checked.counted == Some(checked.there) && checked.findings.is_empty();
            format!(
                "1001 elements, in no multiple of a block, compiled with bounds checks: right is {right}, and nothing is found"
            )
        }
        CountFault::MissingBarrier => {
            let report = count_report(1 << 16, 1, ASKED_BLOCKS)?;
            let barriers = report.counters.map_or(0, |c| c.barriers / u64::from(ASKED_BLOCKS * THREADS / 32));
            format!("each warp waits at {barriers} barriers, whatever the data, and the simulator finds no race")
        }
        CountFault::RoundedSums => {
            let report = count_report(1 << 19, 3, ASKED_BLOCKS)?;
            format!(
                "among {} elements {} were counted, exactly; an f32 is exact up to 2^24 = 16777216",
                report.n,
                report.counted.unwrap_or_default()
            )
        }
        CountFault::SkippedTail => {
            "1 element is counted, and 1001: lengths that fill no block and no warp are right".to_string()
        }
    };
    wrong(what, "by how much is a wrong count off, and at which lengths does that change?")
}

/// The hidden source, once the diagnosis is right.
pub fn revealed_count(diagnosis: Option<(CountFault, f64)>) -> &'static str {
    diagnose_count(diagnosis).reveals(SOURCE)
}

gpulab::show_as_text!(CountReport);

impl fmt::Display for CountReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (n, every, there) = (self.n, self.every, self.there);
        write!(
            f,
            "{n:>7} elements, every {every}-th the key, {} × {THREADS} threads: {there} are there, ",
            self.blocks
        )?;
        match self.counted {
            Some(counted) if counted == there => writeln!(f, "and counted")?,
            Some(counted) => writeln!(f, "{counted} were counted, {} off", i128::from(counted) - i128::from(there))?,
            None => writeln!(f, "and the launch did not end")?,
        }
        if self.findings.is_empty() {
            writeln!(f, "        findings: none")?;
        }
        self.findings.iter().try_for_each(|finding| writeln!(f, "        finding: {finding}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_right_up_to_the_fewest() {
        let fewest = FEWEST as usize;
        assert_eq!(count_report(fewest - 1, 1, ASKED_BLOCKS).unwrap().counted, Some(fewest as u64 - 1));
        assert_eq!(count_report(fewest, 1, ASKED_BLOCKS).unwrap().counted, Some(fewest as u64 - 256));
        let checked = count_report_checked(fewest, 1, ASKED_BLOCKS).unwrap();
        assert!(checked.counted.is_none() && checked.to_string().contains("stopped itself"), "{checked}");
        // More blocks, or fewer of the key: right again.
        for right in [count_report(fewest, 1, 8), count_report(fewest, 3, ASKED_BLOCKS), count_report(1001, 1, 4)] {
            let right = right.unwrap();
            assert_eq!(right.counted, Some(right.there));
        }
    }

    #[test]
    fn a_report_hides_the_source() {
        let text = count_report_checked(FEWEST as usize, 1, ASKED_BLOCKS).unwrap().to_string();
        assert!(!text.contains("kernel.rs") && !text.contains("u8") && text.contains("block"), "{text}");
        assert!(
            count_report(0, 1, 1).is_err() && count_report(MOST + 1, 1, 1).is_err() && count_report(1, 0, 1).is_err()
        );
    }

    #[test]
    fn only_the_right_diagnosis_reveals() {
        let right = Some((CountFault::Overflow, 261_121.0));
        assert!(diagnose_count(right).passed(), "{}", diagnose_count(right).text());
        assert_eq!(revealed_count(right), SOURCE);
        for (wrong, said) in [
            (None, "no diagnosis yet"),
            (Some((CountFault::LostUpdates, FEWEST)), "finds no race"),
            (Some((CountFault::OutOfBounds, FEWEST)), "right is true"),
            (Some((CountFault::MissingBarrier, FEWEST)), "waits at 9 barriers"),
            (Some((CountFault::RoundedSums, FEWEST)), "174763 were counted, exactly"),
            (Some((CountFault::SkippedTail, FEWEST)), "1 element is counted"),
            (Some((CountFault::Overflow, 262_144.0)), "is it the first"),
            (Some((CountFault::Overflow, 65_536.0)), "one block's"),
            (Some((CountFault::Overflow, 256.0)), "has the grid seen"),
            (Some((CountFault::Overflow, 261_120.0)), "on both sides of it"),
            (Some((CountFault::Overflow, f64::NAN)), "a whole number"),
            (Some((CountFault::Overflow, f64::INFINITY)), "a whole number"),
            (Some((CountFault::Overflow, -1.0)), "a whole number"),
        ] {
            let text = diagnose_count(wrong).text();
            assert!(text.starts_with("NOT YET") && text.contains(said), "{wrong:?}: {text}");
            assert!(revealed_count(wrong).starts_with("The source shows itself") && !text.contains("u8"), "{text}");
        }
    }
}
