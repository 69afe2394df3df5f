//! Reports for people.

use std::io::{Result, Write};

use crate::{Report, Survey};

/// Kernels, and why some cannot run.
pub fn survey(survey: &Survey, out: &mut dyn Write) -> Result<()> {
    for kernel in &survey.kernels {
        let order = if kernel.ordered { ", blocks in order" } else { "" };
        writeln!(
            out,
            "{}: {} parameters, {} instructions, {} bytes shared, {} bytes local{order}",
            kernel.name,
            kernel.parameters.len(),
            kernel.instructions,
            kernel.shared_bytes,
            kernel.local_bytes
        )?;
    }
    for (name, errors) in &survey.refused {
        writeln!(out, "{name}: cannot run")?;
        for error in errors {
            writeln!(out, "  {}", error.to_string().replace('\n', "\n  "))?;
        }
    }
    Ok(())
}

/// Counters and findings.
pub fn report(report: &Report, out: &mut dyn Write) -> Result<()> {
    out.write_all(report.printed.as_bytes())?;
    for (name, value) in report.counters.rows() {
        writeln!(out, "{name:28} {value:>14}")?;
    }
    writeln!(out, "{:28} {:>14.2}", "active_lanes_per_instruction", report.counters.active_lanes_per_instruction())?;
    for finding in &report.findings {
        writeln!(out, "\n{finding}")?;
    }
    Ok(())
}
