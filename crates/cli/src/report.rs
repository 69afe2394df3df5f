//! `gpulab report`.

use crate::options::ReportOptions;
use gpulab::error::Result;
use gpulab::results;
use gpulab_lessons::report;

/// Prints the tables; the last line names the files that were written.
pub fn of_results(options: ReportOptions) -> Result<String> {
    let folder = options.out.unwrap_or_else(results::dir);
    let report = options.results.map_or_else(report::report, |file| report::of_file(&file))?;
    let files: Vec<String> = report.save(&folder)?.iter().map(|file| file.display().to_string()).collect();
    Ok(format!("{}\nwritten: {}", report.text(), files.join(", ")))
}
