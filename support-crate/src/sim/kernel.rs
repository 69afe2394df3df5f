//! PTX to kernels, their launches, and what a launch did: mistakes in the words of the source, and counters by line.

use super::{SimGpu, refused};
use crate::error::{Error, Mistake, Result};
use crate::inspect::{Inspection, Written, advice};
use crate::launch::{LaunchAttributes, LaunchConfig, Signature, Source};
use std::io::Write;
use std::sync::Arc;
use warpsim::{Arg, Attributes, Finding, Launch, Report, WatchedWarp};

/// A loaded module, with the source that it was compiled from where that is known.
#[derive(Debug, Clone)]
pub(crate) struct SimLibrary {
    module: warpsim::PtxModule,
    source: Option<Arc<Source>>,
}

/// A loaded kernel.
#[derive(Debug, Clone)]
pub(crate) struct SimKernel {
    pub(super) module: warpsim::PtxModule,
    pub(super) name: String,
    pub(super) source: Option<Arc<Source>>,
    /// As the reader wrote them; PTX alone gives names of its own.
    pub(super) parameters: Vec<String>,
    /// Static shared memory of a block.
    pub(super) shared_bytes: u64,
}

impl SimLibrary {
    pub(crate) fn load(ptx: &str, source: Option<Source>) -> Result<SimLibrary> {
        let module = warpsim::PtxModule::load(ptx).map_err(|error| refused(&error))?;
        Ok(SimLibrary { module, source: source.map(Arc::new) })
    }

    pub(crate) fn kernel(&self, name: &str, signature: Option<&Signature>) -> SimKernel {
        let info = self.module.kernels().into_iter().find(|kernel| kernel.name == name);
        let parameters =
            signature.map_or_else(Vec::new, |s| s.parameters.iter().map(|p| p.name().to_string()).collect());
        SimKernel {
            module: self.module.clone(),
            name: name.to_string(),
            source: self.source.clone(),
            parameters,
            shared_bytes: info.map_or(0, |info| info.shared_bytes),
        }
    }
}

impl SimKernel {
    fn written(&self) -> Written<'_> {
        Written {
            kernel: &self.name,
            source: self.source.as_ref().map(|source| (source.name.as_str(), source.text.as_str())),
            parameters: &self.parameters,
            shared_bytes: self.shared_bytes,
            rust: self.source.as_ref().is_some_and(|source| source.is_rust()),
        }
    }

    /// How many blocks of that launch one multiprocessor of compute capability 9.0 holds, registers aside: they are given out
    /// by the driver's compiler.
    pub(crate) fn blocks_per_multiprocessor(&self, config: LaunchConfig) -> u32 {
        const THREADS: u64 = 2048;
        const BLOCKS: u64 = 32;
        const SHARED: u64 = 228 << 10;
        // The driver keeps 1 KiB of each block.
        let shared = self.shared_bytes + u64::from(config.shared_bytes) + (1 << 10);
        let by_threads = THREADS / config.threads_per_block().next_multiple_of(32).max(32);
        BLOCKS.min(by_threads).min(SHARED / shared) as u32
    }

    /// Runs the kernel to its end; its mistakes are an error.
    pub(crate) fn launch(
        &self,
        gpu: &SimGpu,
        config: LaunchConfig,
        attributes: LaunchAttributes,
        args: &[Arg],
    ) -> Result<()> {
        let report = self.run(gpu, config, attributes, args, None)?;
        show(&report.printed);
        refuse_mistakes(self, &report.findings)
    }

    /// Runs the kernel to its end, and keeps what one warp accessed.
    pub(crate) fn inspect(
        &self,
        gpu: &SimGpu,
        config: LaunchConfig,
        args: &[Arg],
        watch: WatchedWarp,
    ) -> Result<Inspection> {
        let report = self.run(gpu, config, LaunchAttributes::NONE, args, Some(watch))?;
        Ok(self.written().inspection(shape(config), watch, report))
    }

    fn run(
        &self,
        gpu: &SimGpu,
        config: LaunchConfig,
        attributes: LaunchAttributes,
        args: &[Arg],
        watch: Option<WatchedWarp>,
    ) -> Result<Report> {
        let mut device = gpu.device();
        device.set_watch(watch);
        // Nobody sees the counts of a plain launch, and they take time.
        device.set_counters(watch.is_some());
        let attributes = Attributes {
            // A kernel may be compiled for clusters of its own.
            cluster: (attributes.cluster > 1).then_some([attributes.cluster, 1, 1]),
            cooperative: attributes.cooperative,
        };
        let launched = device.launch_with(&self.module, &self.name, shape(config), attributes, args);
        launched.map_err(|error| refused(&error))
    }
}

fn shape(config: LaunchConfig) -> Launch {
    Launch { grid: config.grid.into(), block: config.block.into(), shared_bytes: config.shared_bytes }
}

/// Text of a kernel's `printf` that a launch shows, in bytes: a cell with megabytes makes the notebook slow to open.
const SHOWN: usize = 64 << 10;

/// `printf` of a kernel goes where the notebook's own printing goes.
fn show(printed: &str) {
    // A reader that went away (a closed pipe) leaves nobody to tell.
    let _ = std::io::stdout().write_all(shortened(printed).as_bytes());
}

/// The beginning, up to the end of a line, and how much is left out.
fn shortened(printed: &str) -> String {
    if printed.len() <= SHOWN {
        return printed.to_string();
    }
    let most = (0..=SHOWN).rev().find(|&at| printed.is_char_boundary(at)).unwrap_or(0);
    let end = printed[..most].rfind('\n').map_or(most, |at| at + 1);
    let lines = printed[end..].lines().count();
    format!("{}… and {lines} more lines: `kernel.inspect(…)?.printed` has them all\n", &printed[..end])
}

/// Mistakes that a message shows: later ones often follow from the first.
const MISTAKES_SHOWN: usize = 3;

/// An error when anything was found.
pub(super) fn refuse_mistakes(kernel: &SimKernel, findings: &[Finding]) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let mut shown: Vec<Mistake> = Vec::new();
    for mistake in findings.iter().map(|finding| mistake(kernel, finding)) {
        // `c[i] = a[i] + b[i]` without its guard is one mistake in three accesses.
        match shown.iter_mut().find(|other| other.kind == mistake.kind && other.place == mistake.place) {
            Some(same) => same.what.extend(mistake.what),
            None => shown.push(mistake),
        }
    }
    let more = shown.len().saturating_sub(MISTAKES_SHOWN);
    shown.truncate(MISTAKES_SHOWN);
    Err(Error::Mistakes { kernel: kernel.name.clone(), shown, more })
}

fn mistake(kernel: &SimKernel, finding: &Finding) -> Mistake {
    let finding = kernel.written().finding(finding.clone());
    let (what, fix) = finding.message.split_once("; next: ").unwrap_or((&finding.message, advice(finding.kind, "")));
    let times = if finding.times > 1 { format!(" ({} times in all)", finding.times) } else { String::new() };
    let place = match &finding.source {
        Some(source) => source.to_string(),
        None => format!("PTX line {}", finding.ptx_line),
    };
    let triple = |[x, y, z]: [u32; 3]| format!("({x}, {y}, {z})");
    Mistake {
        kind: finding.kind.words().to_string(),
        place: format!("{place}, block {}, thread {}", triple(finding.block), triple(finding.thread)),
        line: finding.source.as_ref().and_then(|source| {
            let text = kernel.written().line(source)?;
            Some((source.line, text.to_string()))
        }),
        what: vec![format!("{what}{times}")],
        fix: fix.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_beginning_of_a_long_print_is_shown() {
        assert_eq!(shortened("one\ntwo\n"), "one\ntwo\n");
        let long = "äöü from a thread\n".repeat(10_000);
        let shown = shortened(&long);
        assert!(shown.len() < SHOWN + 100 && shown.contains("thread\n… and 6"), "{}", &shown[SHOWN - 50..]);
        assert!(shortened(&"ä".repeat(SHOWN)).contains("more lines"));
    }
}
