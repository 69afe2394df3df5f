//! PTX to kernels, their launches, and what a launch did: mistakes in the words of the source, and counters by line.

use super::{SimGpu, refused};
use crate::error::{Error, Mistake, Result};
use crate::inspect::{Access, AccessKind, Inspection, Line, Space};
use crate::launch::{LaunchAttributes, LaunchConfig, Signature, Source};
use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use warpsim::{Arg, Attributes, Counters, Finding, Kind, Launch, Report, Watch};

/// A loaded module, with the source that it was compiled from where that is known.
#[derive(Debug, Clone)]
pub(crate) struct SimLibrary {
    module: warpsim::Module,
    source: Option<Arc<Source>>,
}

/// A loaded kernel.
#[derive(Debug, Clone)]
pub(crate) struct SimKernel {
    pub(super) module: warpsim::Module,
    pub(super) name: String,
    pub(super) source: Option<Arc<Source>>,
    /// As the reader wrote them; PTX alone gives names of its own.
    pub(super) parameters: Vec<String>,
    /// Static shared memory of a block.
    pub(super) shared_bytes: u64,
}

impl SimLibrary {
    pub(crate) fn load(ptx: &str, source: Option<Source>) -> Result<SimLibrary> {
        let module = warpsim::Module::load(ptx).map_err(|error| refused(&error))?;
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
    pub(crate) fn inspect(&self, gpu: &SimGpu, config: LaunchConfig, args: &[Arg], watch: Watch) -> Result<Inspection> {
        let report = self.run(gpu, config, LaunchAttributes::NONE, args, Some(watch))?;
        Ok(inspection(self, config, watch, report))
    }

    fn run(
        &self,
        gpu: &SimGpu,
        config: LaunchConfig,
        attributes: LaunchAttributes,
        args: &[Arg],
        watch: Option<Watch>,
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

/// What `trap` means in a kernel in Rust.
const PANIC: &str = "a panic: an index out of bounds, a failed assertion, an `unwrap` of nothing, or, with debug \
                     assertions, an overflow; next: look at the values on this line in this thread";

/// What `gpulab_device` calls what a finding advises.
const IN_RUST: [(&str, &str); 3] =
    [("__syncthreads()", "sync_threads()"), ("__syncwarp()", "sync_warp(mask)"), ("__threadfence()", "fence_device()")];

/// A finding with the parameter's own name in place of its number, and what a reader of a notebook can do.
pub(super) fn named(kernel: &SimKernel, mut finding: Finding) -> Finding {
    if let Some(number) = &finding.variable {
        let name = variable(kernel, number);
        if name != *number {
            finding.message = finding.message.replace(number.as_str(), &format!("`{name}`"));
            finding.variable = Some(name);
        }
    }
    if kernel.source.as_ref().is_some_and(|source| source.is_rust()) {
        finding.message = match finding.kind {
            Kind::Trap => PANIC.to_string(),
            _ => IN_RUST.iter().fold(finding.message, |text, (c, rust)| text.replace(c, rust)),
        };
    }
    if let Some((what, fix)) = finding.message.split_once("; next: ") {
        finding.message = format!("{what}; next: {}", mend(finding.kind, fix));
    }
    finding
}

/// What the reader calls a variable that the simulator names: `parameter 2` or a compiler's name for shared memory.
pub(super) fn variable(kernel: &SimKernel, known: &str) -> String {
    let parameter = known.strip_prefix("parameter ").and_then(|number| number.parse::<usize>().ok());
    match parameter {
        Some(number) => kernel.parameters.get(number).filter(|name| !name.is_empty()).map_or(known, String::as_str),
        None => local_name(known),
    }
    .to_string()
}

/// `_ZZ4tileE6buffer` is C++'s name for `buffer` in the function `tile`: the last length and word of it.
fn local_name(known: &str) -> &str {
    if !known.starts_with("_ZZ") {
        return known;
    }
    let ends = known.char_indices().filter(|(_, c)| *c == 'E').map(|(at, _)| &known[at + 1..]);
    let mut found = ends.filter_map(|rest| {
        let name = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let length: usize = rest[..rest.len() - name.len()].parse().ok()?;
        (length == name.len()).then_some(name)
    });
    found.next().unwrap_or(known)
}

fn mistake(kernel: &SimKernel, finding: &Finding) -> Mistake {
    let finding = named(kernel, finding.clone());
    let (what, fix) = finding.message.split_once("; next: ").unwrap_or((&finding.message, mend(finding.kind, "")));
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
            let text = line(kernel, source)?;
            Some((source.line, text.to_string()))
        }),
        what: vec![format!("{what}{times}")],
        fix: fix.to_string(),
    }
}

/// What to do, where the finding's own words are not for a notebook.
fn mend(kind: Kind, fix: &str) -> &str {
    match kind {
        // A notebook has no budget to raise.
        Kind::StepBudget => "look for a loop that never ends; if there is none, launch more blocks, or a smaller size",
        _ if fix.is_empty() => "look at that line with this block and thread in mind",
        _ => fix,
    }
}

/// The text of a source line.
pub(super) fn line<'a>(kernel: &'a SimKernel, at: &warpsim::SourceLine) -> Option<&'a str> {
    let source = kernel.source.as_ref().filter(|source| source.name == at.file)?;
    source.text.lines().nth((at.line as usize).checked_sub(1)?)
}

pub(super) fn inspection(kernel: &SimKernel, config: LaunchConfig, watch: Watch, report: Report) -> Inspection {
    Inspection {
        kernel: kernel.name.clone(),
        grid: config.grid.into(),
        block: config.block.into(),
        shared_bytes: kernel.shared_bytes + u64::from(config.shared_bytes),
        counters: report.counters,
        longest_warp: report.longest_warp,
        lines: lines(kernel, &report),
        watched: (watch.block, watch.warp),
        accesses: report.accesses.iter().map(|access| translated(kernel, access)).collect(),
        findings: report.findings.into_iter().map(|finding| named(kernel, finding)).collect(),
        printed: report.printed,
    }
}

/// Every line of the source with its counts. Of a kernel that came without source, the lines that counted.
fn lines(kernel: &SimKernel, report: &Report) -> Vec<Line> {
    let mut counted: BTreeMap<u32, Counters> = BTreeMap::new();
    for (at, counters) in &report.lines {
        let Some(at) = at else { continue };
        if kernel.source.as_ref().is_none_or(|source| source.name == at.file) {
            *counted.entry(at.line).or_default() += *counters;
        }
    }
    let with = |(number, text): (u32, &str)| {
        let counters = counted.get(&number).copied().unwrap_or_default();
        Line { number, text: text.to_string(), counters }
    };
    match &kernel.source {
        Some(source) => (1..).zip(source.text.lines()).map(with).collect(),
        None => counted.keys().map(|&number| with((number, ""))).collect(),
    }
}

fn translated(kernel: &SimKernel, access: &warpsim::Access) -> Access {
    let lanes = |lane: usize| access.mask >> lane & 1 != 0;
    let known = access.base.unwrap_or(0);
    // A lane that left the variable downwards: offsets count from address 0 then, as none may be negative.
    let below = (0..32).any(|lane| lanes(lane) && access.addresses[lane] < known);
    let base = if below { 0 } else { known };
    Access {
        line: access.source.as_ref().map(|source| source.line),
        text: access.source.as_ref().and_then(|source| line(kernel, source)).unwrap_or("").trim().to_string(),
        space: match access.space {
            warpsim::Space::Global => Space::Global,
            warpsim::Space::Shared => Space::Shared,
            warpsim::Space::Local => Space::Local,
        },
        kind: match access.kind {
            warpsim::AccessKind::Load => AccessKind::Load,
            warpsim::AccessKind::Store => AccessKind::Store,
            warpsim::AccessKind::Atomic => AccessKind::Atomic,
        },
        bytes: access.bytes,
        variable: access.variable.as_deref().map_or_else(String::new, |known| variable(kernel, known)),
        base,
        offsets: std::array::from_fn(|lane| lanes(lane).then(|| access.addresses[lane] - base)),
        sectors: access.sectors,
        wavefronts: access.wavefronts,
        conflicts: access.conflicts,
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

    #[test]
    fn names_of_shared_arrays_are_the_readers() {
        for (known, name) in [
            ("_ZZ9transposeILi0EEvPKfPfiiE4tile", "tile"),
            ("_ZZ6matmulE6a_tile", "a_tile"),
            ("_ZZ6matmulE6a_tile_0", "_ZZ6matmulE6a_tile_0"),
            ("buffer", "buffer"),
            ("_ZZ4E", "_ZZ4E"),
        ] {
            assert_eq!(local_name(known), name);
        }
    }
}
