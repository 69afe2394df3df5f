//! A launch's report as an inspection: plain data, in the reader's names.

use super::SimKernel;
use super::mistakes::{line, named, variable};
use crate::inspect::{Access, AccessKind, Inspection, Line, Space};
use crate::launch::LaunchConfig;
use std::collections::BTreeMap;
use warpsim::{Counters, Report, Watch};

pub(super) fn inspection(kernel: &SimKernel, config: LaunchConfig, watch: Watch, report: Report) -> Inspection {
    Inspection {
        kernel: kernel.name.clone(),
        grid: config.grid.into(),
        block: config.block.into(),
        shared_bytes: kernel.shared_bytes + u64::from(config.shared_bytes),
        counters: report.counters,
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
