//! What the simulator saw, in the words of the source that the reader wrote: parameters by name, lines with their text.

use super::{Access, Inspection, Line};
use std::collections::BTreeMap;
use warpsim::{Counters, Finding, Kind, Launch, Report, SourceLine, WatchedWarp};

/// What `trap` means in a kernel in Rust.
const PANIC: &str = "a panic: an index out of bounds, a failed assertion, an `unwrap` of nothing, or, with debug \
                     assertions, an overflow; next: look at the values on this line in this thread";

/// What `gpulab_device` calls what a finding advises.
const IN_RUST: [(&str, &str); 3] =
    [("__syncthreads()", "sync_threads()"), ("__syncwarp()", "sync_warp(mask)"), ("__threadfence()", "fence_device()")];

/// A kernel as it was written: what the simulator's report of it is told with.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// The kernel's name.
    pub kernel: &'a str,
    /// The file's name, as the PTX gives it, and its text; nothing where the kernel came as PTX alone.
    pub source: Option<(&'a str, &'a str)>,
    /// The parameters' names, in order; PTX alone has none.
    pub parameters: &'a [String],
    /// Static shared memory of a block, in bytes.
    pub shared_bytes: u64,
    /// Whether it is a kernel in Rust, whose barriers and panics have other names.
    pub rust: bool,
}

impl<'a> Written<'a> {
    /// The report of a launch, to look into.
    pub fn inspection(&self, launch: Launch, watch: WatchedWarp, report: Report) -> Inspection {
        Inspection {
            kernel: self.kernel.to_string(),
            grid: launch.grid,
            block: launch.block,
            shared_bytes: self.shared_bytes + u64::from(launch.shared_bytes),
            counters: report.counters,
            longest_warp: report.longest_warp,
            lines: self.lines(&report),
            uneven_loops: report.uneven_loops,
            watched: (watch.block, watch.warp),
            accesses: report.accesses.iter().map(|access| self.access(access)).collect(),
            findings: report.findings.into_iter().map(|finding| self.finding(finding)).collect(),
            printed: report.printed,
        }
    }

    /// A finding with the parameter's own name in place of its number, and what a reader can do.
    pub fn finding(&self, mut finding: Finding) -> Finding {
        if let Some(number) = &finding.variable {
            let name = self.variable(number);
            if name != *number {
                finding.message = finding.message.replace(number.as_str(), &format!("`{name}`"));
                finding.variable = Some(name);
            }
        }
        if self.rust {
            finding.message = match finding.kind {
                Kind::Trap => PANIC.to_string(),
                _ => IN_RUST.iter().fold(finding.message, |text, (c, rust)| text.replace(c, rust)),
            };
        }
        if let Some((what, fix)) = finding.message.split_once("; next: ") {
            finding.message = format!("{what}; next: {}", advice(finding.kind, fix));
        }
        finding
    }

    /// The text of a source line.
    pub fn line(&self, at: &SourceLine) -> Option<&'a str> {
        let (_, text) = self.source.filter(|(file, _)| *file == at.file)?;
        text.lines().nth((at.line as usize).checked_sub(1)?)
    }

    /// What the reader calls a variable that the simulator names: `parameter 2` or a compiler's name for shared memory.
    fn variable(&self, known: &str) -> String {
        let parameter = known.strip_prefix("parameter ").and_then(|number| number.parse::<usize>().ok());
        match parameter {
            Some(number) => self.parameters.get(number).filter(|name| !name.is_empty()).map_or(known, String::as_str),
            None => local_name(known),
        }
        .to_string()
    }

    /// Every line of the source with its counts. Of a kernel that came without source, the lines that counted.
    fn lines(&self, report: &Report) -> Vec<Line> {
        let mut counted: BTreeMap<u32, Counters> = BTreeMap::new();
        for (at, counters) in &report.lines {
            let Some(at) = at else { continue };
            if self.source.is_none_or(|(file, _)| file == at.file) {
                *counted.entry(at.line).or_default() += *counters;
            }
        }
        let with = |(number, text): (u32, &str)| {
            let counters = counted.get(&number).copied().unwrap_or_default();
            Line { number, text: text.to_string(), counters }
        };
        match self.source {
            Some((_, text)) => (1..).zip(text.lines()).map(with).collect(),
            None => counted.keys().map(|&number| with((number, ""))).collect(),
        }
    }

    fn access(&self, access: &warpsim::WarpAccess) -> Access {
        let lanes = |lane: usize| access.mask >> lane & 1 != 0;
        let known = access.base.unwrap_or(0);
        // A lane that left the variable downwards: offsets count from address 0 then, as none may be negative.
        let below = (0..32).any(|lane| lanes(lane) && access.addresses[lane] < known);
        let base = if below { 0 } else { known };
        Access {
            line: access.source.as_ref().map(|source| source.line),
            text: access.source.as_ref().and_then(|source| self.line(source)).unwrap_or("").trim().to_string(),
            space: access.space,
            kind: access.kind,
            bytes: access.bytes,
            variable: access.variable.as_deref().map_or_else(String::new, |known| self.variable(known)),
            base,
            offsets: std::array::from_fn(|lane| lanes(lane).then(|| access.addresses[lane] - base)),
            sectors: access.sectors,
            wavefronts: access.wavefronts,
            conflicts: access.conflicts,
        }
    }
}

/// What to do about a kind of finding: `fix`, where those are not words for another program than the reader's.
pub fn advice(kind: Kind, fix: &str) -> &str {
    match kind {
        // Only the simulator's own command has a budget to raise.
        Kind::StepBudget => "look for a loop that never ends; if there is none, launch more blocks, or a smaller size",
        _ if fix.is_empty() => "look at that line with this block and thread in mind",
        _ => fix,
    }
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

#[cfg(test)]
mod tests {
    use super::local_name;

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
