//! Nsight Compute: what the hardware counts of the course's kernels.

mod metrics;
mod roofline;
mod stalls;

pub use metrics::{Add, Metric, NCU_METRICS};
pub use stalls::Stalls;

use super::programs::{nothing, started, typed};
use gpulab::error::Result;
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use gpulab_kernels::topics::Size;
use metrics::all;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// What was counted of one rung. Times and counts are sums over its launches; percentages and ratios are those of its longest.
#[derive(Debug, Clone, PartialEq)]
pub struct Counted {
    /// The rung, such as `reduction/02_tree`.
    pub rung: String,
    /// Launches of one run of it.
    pub launches: usize,
    /// By Nsight Compute's names, in base units.
    pub metrics: BTreeMap<String, f64>,
    /// The machine, where it was recorded; else empty.
    pub recorded_on: String,
}

impl Counted {
    /// The figure of that name in Nsight Compute's list or of this crate's short ones ([`NCU_METRICS`]); NaN where it is none.
    pub fn get(&self, name: &str) -> f64 {
        let known = NCU_METRICS.iter().find(|metric| metric.short == name);
        let value = self.metrics.get(known.map_or(name, |metric| metric.name)).copied();
        value.map_or(f64::NAN, |value| value * known.map_or(1.0, |metric| metric.scale))
    }

    /// Sectors that one load request of a warp touches: 4 where neighbouring lanes read neighbouring floats.
    pub fn sectors_per_load(&self) -> f64 {
        self.get("load sectors") / self.get("load requests")
    }

    /// Why warps waited, longest first.
    pub fn stalls(&self) -> Stalls {
        stalls::of(self)
    }

    /// A row for each figure, to be stored; [`Counted::from_rows`] reads them.
    pub fn to_rows(counted: &[Counted], size: usize) -> Vec<Measurement> {
        let rows = counted.iter().flat_map(|one| {
            let launches = ("launches".to_string(), one.launches as f64);
            let all = one.metrics.clone().into_iter().chain([launches]);
            all.map(|(metric, value)| {
                Measurement::new(&one.rung, Backend::Cuda, size, &metric, "ncu base unit", Summary::of(&[value]))
            })
        });
        rows.collect()
    }

    /// What such rows hold, in their order; other rows are passed over.
    pub fn from_rows(rows: &[Measurement]) -> Vec<Counted> {
        let mut found: Vec<Counted> = Vec::new();
        for row in rows.iter().filter(|row| row.unit == "ncu base unit") {
            let at = found.iter().position(|one| one.rung == row.experiment).unwrap_or_else(|| {
                let recorded_on = if row.recorded { row.machine.clone() } else { String::new() };
                found.push(Counted {
                    rung: row.experiment.clone(),
                    launches: 0,
                    metrics: BTreeMap::new(),
                    recorded_on,
                });
                found.len() - 1
            });
            match row.metric.as_str() {
                "launches" => found[at].launches = row.summary.median as usize,
                name => drop(found[at].metrics.insert(name.to_string(), row.summary.median)),
            }
        }
        found
    }

    /// One figure of several rungs as rows for [`plot::bars`](gpulab::plot::bars); `name` as for [`Counted::get`].
    pub fn bars(counted: &[Counted], name: &str) -> Vec<Measurement> {
        let unit = NCU_METRICS.iter().find(|metric| metric.short == name).map_or("", |metric| metric.unit);
        let known = counted.iter().filter(|one| one.get(name).is_finite());
        known.map(|one| bar(&one.rung, name, unit, one.get(name), &one.recorded_on)).collect()
    }

    /// Figures of several rungs as a table; `names` as for [`Counted::get`].
    pub fn table(counted: &[Counted], names: &[&str]) -> String {
        let wide = counted.iter().map(|one| one.rung.len()).max().unwrap_or(0);
        let unit = |name: &str| NCU_METRICS.iter().find(|metric| metric.short == name).map_or("", |metric| metric.unit);
        let heads: Vec<String> = names.iter().map(|name| format!("{name} ({})", unit(name))).collect();
        let mut text = format!("{:wide$}  {}\n", "", heads.join("  "));
        for one in counted {
            let cells = names.iter().zip(&heads).map(|(name, head)| {
                let value = one.get(name);
                // Percentages and counts have no use for three figures.
                let value = if unit(name) == "%" { format!("{value:.1}") } else { figures(value) };
                format!("{value:>0$}", head.chars().count())
            });
            text += &format!("{:wide$}  {}\n", one.rung, cells.collect::<Vec<_>>().join("  "));
        }
        text
    }
}

/// A row for a plot, live or recorded.
fn bar(name: &str, metric: &str, unit: &str, value: f64, recorded_on: &str) -> Measurement {
    let row = Measurement::new(name, Backend::Cuda, 0, metric, unit, Summary::of(&[value])).dtype("");
    Measurement { machine: recorded_on.to_string(), recorded: !recorded_on.is_empty(), ..row }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let launches = if self.launches == 1 { String::new() } else { format!(" ({} launches)", self.launches) };
        writeln!(f, "{}{launches}", self.rung)?;
        for metric in NCU_METRICS.iter().filter(|metric| self.get(metric.short).is_finite()) {
            let value = figures(self.get(metric.short));
            writeln!(f, "  {:>24} {value:>12} {:9} {}", metric.short, metric.unit, metric.name)?;
        }
        writeln!(f, "  {:>24} {:>12}", "sectors a load request", figures(self.sectors_per_load()))
    }
}

/// The command that [`ncu`] runs, as it is typed; of the names of the figures only the first two stand there
/// ([`NCU_METRICS`] and the reasons to wait are all).
pub fn ncu_command(size: impl Into<Size>, rungs: &[&str]) -> String {
    let few: Vec<String> = all().take(2).collect();
    let shortened = command(size.into(), rungs).into_iter().map(|word| match word.starts_with(&few[0]) {
        true => few.join(",") + ",...",
        false => word,
    });
    typed(&shortened.collect::<Vec<_>>())
}

fn command(size: Size, rungs: &[&str]) -> Vec<String> {
    let (metrics, size) = (all().collect::<Vec<_>>().join(","), size.name());
    // Clocks as they are, and only what lies in the ranges that the program names.
    let fixed =
        ["ncu", "--clock-control", "none", "--nvtx", "--nvtx-include", "measured/", "--csv", "--print-units", "base"];
    let rest = ["--metrics", &metrics, "gpulab", "demo", "ladder", &size];
    fixed.into_iter().chain(rest).chain(rungs.iter().copied()).map(str::to_string).collect()
}

/// Runs the course's kernels at that size under Nsight Compute, in a process of its own, and gives what it counted of each.
///
/// # Errors
/// [`Error::Unsupported`](gpulab::Error::Unsupported) where the program is missing, may not read the counters, or counts nothing.
pub fn ncu(size: impl Into<Size>, rungs: &[&str]) -> Result<Vec<Counted>> {
    let command = command(size.into(), rungs);
    let output = started(&command, Duration::from_secs(300))?;
    parse_ncu(&output.out).ok_or_else(|| nothing(&command, &output))
}

/// Reads what `ncu --csv` and `gpulab demo ladder` printed together; `None` where launches and counts do not agree.
pub fn parse_ncu(text: &str) -> Option<Vec<Counted>> {
    let launches = counts(text);
    let mut rest = launches.into_iter();
    let peak = text.lines().find_map(|line| line.strip_prefix("gpulab: fp32 peak ")?.split(' ').next()?.parse().ok());
    let peak: Option<f64> = peak;
    // `gpulab: measured reduction/02_tree, 3 launches`
    let mut found = Vec::new();
    for line in text.lines() {
        let Some((rung, count)) = line.strip_prefix("gpulab: measured ").and_then(|line| line.rsplit_once(", ")) else {
            continue;
        };
        let count: usize = count.split(' ').next()?.parse().ok()?;
        let own: Vec<BTreeMap<String, f64>> = rest.by_ref().take(count).collect();
        if own.len() != count {
            return None;
        }
        let mut metrics = together(&own);
        metrics.extend(peak.map(|peak| (roofline::PEAK.to_string(), peak)));
        found.push(Counted { rung: rung.to_string(), launches: count, metrics, recorded_on: String::new() });
    }
    (rest.next().is_none() && !found.is_empty()).then_some(found)
}

/// The figures of each launch, in order.
fn counts(text: &str) -> Vec<BTreeMap<String, f64>> {
    let table: String = text.lines().filter(|line| line.starts_with('"')).flat_map(|line| [line, "\n"]).collect();
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(table.as_bytes());
    let Ok(header) = reader.headers().cloned() else { return Vec::new() };
    let column = |name: &str| header.iter().position(|known| known == name);
    let (Some(id), Some(name), Some(value)) = (column("ID"), column("Metric Name"), column("Metric Value")) else {
        return Vec::new();
    };
    let mut launches: BTreeMap<u64, BTreeMap<String, f64>> = BTreeMap::new();
    for row in reader.records().flatten() {
        let number = row.get(value).and_then(|text| text.replace(',', "").parse().ok());
        if let (Some(id), Some(name), Some(number)) =
            (row.get(id).and_then(|id| id.parse().ok()), row.get(name), number)
        {
            launches.entry(id).or_default().insert(name.to_string(), number);
        }
    }
    launches.into_values().collect()
}

/// Sums where that makes sense, else the figure of the longest launch.
fn together(launches: &[BTreeMap<String, f64>]) -> BTreeMap<String, f64> {
    let time = |launch: &BTreeMap<String, f64>| launch.get("gpu__time_duration.sum").copied().unwrap_or(0.0);
    let Some(longest) = launches.iter().max_by(|a, b| time(a).total_cmp(&time(b))) else { return BTreeMap::new() };
    let figure = |(name, value): (&String, &f64)| {
        let adds = NCU_METRICS.iter().any(|metric| metric.name == name.as_str() && metric.add == Add::Sum);
        let sum = || launches.iter().filter_map(|launch| launch.get(name)).sum();
        (name.clone(), if adds { sum() } else { *value })
    };
    longest.iter().map(figure).collect()
}

#[cfg(test)]
mod tests;
