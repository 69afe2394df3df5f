//! Nsight Compute: what the hardware counts of the course's kernels.

use super::programs::{nothing, started, typed};
use gpulab::error::Result;
use gpulab::gpu::Gpu;
use gpulab::lesson::Lesson;
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use gpulab::plot;
use gpulab::plot::{Reached, Roofline};
use gpulab_kernels::topics::Size;
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
    /// The machine that counted, for labels; empty where nobody said.
    pub machine: String,
    /// Whether that was in a recorded run.
    pub recorded: bool,
}

impl Counted {
    /// The figure of that name in Nsight Compute's list or of this crate's short ones ([`NCU_METRICS`], [`TABLE_METRICS`]);
    /// NaN where it is none.
    pub fn get(&self, name: &str) -> f64 {
        let known = known(name);
        let value = self.metrics.get(known.map_or(name, |metric| metric.name)).copied();
        value.map_or(f64::NAN, |value| value * known.map_or(1.0, |metric| metric.scale))
    }

    /// Sectors that one load request of a warp touches: 4 where neighbouring lanes read neighbouring floats.
    pub fn sectors_per_load(&self) -> f64 {
        self.get("load sectors") / self.get("load requests")
    }

    /// Why warps waited, longest first.
    pub fn stalls(&self) -> Stalls {
        let known = REASONS.iter().filter_map(|&(name, means)| {
            let cycles = self.metrics.get(&stall_metric(name)).copied()?;
            Some((name, means, cycles))
        });
        let mut reasons: Vec<_> = known.filter(|one| one.2 > 0.0).collect();
        reasons.sort_by(|a, b| b.2.total_cmp(&a.2));
        Stalls { rung: self.rung.clone(), reasons, machine: self.machine.clone(), recorded: self.recorded }
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
                found.push(Counted {
                    rung: row.experiment.clone(),
                    launches: 0,
                    metrics: BTreeMap::new(),
                    machine: row.machine.clone(),
                    recorded: row.recorded,
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
        let unit = known(name).map_or("", |metric| metric.unit);
        let known = counted.iter().filter(|one| one.get(name).is_finite());
        known.map(|one| bar(&one.rung, name, unit, one.get(name), &one.machine, one.recorded)).collect()
    }

    /// Figures of several rungs as a table; `names` as for [`Counted::get`].
    pub fn table(counted: &[Counted], names: &[&str]) -> String {
        let wide = counted.iter().map(|one| one.rung.len()).max().unwrap_or(0);
        let unit = |name: &str| known(name).map_or("", |metric| metric.unit);
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
fn bar(name: &str, metric: &str, unit: &str, value: f64, machine: &str, recorded: bool) -> Measurement {
    let row = Measurement::new(name, Backend::Cuda, 0, metric, unit, Summary::of(&[value])).dtype("");
    Measurement { machine: machine.to_string(), recorded, ..row }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let launches = if self.launches == 1 { String::new() } else { format!(" ({} launches)", self.launches) };
        writeln!(f, "{}{launches}", self.rung)?;
        for metric in NCU_METRICS.iter().filter(|metric| self.get(metric.short).is_finite()) {
            let value = figures(self.get(metric.short));
            writeln!(f, "  {:>24} {value:>12} {:9} {}", metric.short, metric.unit, metric.name)?;
        }
        writeln!(f, "  {:>24} {:>12}", "sectors per load request", figures(self.sectors_per_load()))
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

/// In a lesson: [`ncu`] where it is there and may read the counters, else what was recorded under that name.
///
/// # Errors
/// As [`Lesson::measure_if_allowed`].
pub fn measure_ncu(lesson: &Lesson, experiment: &str, size: usize, rungs: &[&str]) -> Result<Vec<Counted>> {
    let to_rows = |counted: &Vec<Counted>, _| Counted::to_rows(counted, size);
    let count = |gpu: &Gpu| -> Result<Vec<Counted>> {
        let counted = ncu(size, rungs)?.into_iter();
        Ok(counted.map(|one| Counted { machine: gpu.name().to_string(), ..one }).collect())
    };
    lesson.measure_as_if_allowed(experiment, count, to_rows, Counted::from_rows)
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
        metrics.extend(peak.map(|peak| (PEAK.to_string(), peak)));
        found.push(Counted {
            rung: rung.to_string(),
            launches: count,
            metrics,
            machine: String::new(),
            recorded: false,
        });
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

/// How figures of several launches are put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Add {
    /// Their sum.
    Sum,
    /// That of the longest launch.
    Longest,
}

/// One figure of Nsight Compute, with a short name for tables.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Metric {
    /// Nsight Compute's name.
    pub name: &'static str,
    /// The name in this crate's tables.
    pub short: &'static str,
    /// The unit of the short name's value.
    pub unit: &'static str,
    /// What makes that unit of ncu's base unit.
    pub scale: f64,
    /// How launches are put together.
    pub add: Add,
}

const fn sum(name: &'static str, short: &'static str, unit: &'static str, scale: f64) -> Metric {
    Metric { name, short, unit, scale, add: Add::Sum }
}

const fn percent(name: &'static str, short: &'static str) -> Metric {
    Metric { name, short, unit: "%", scale: 1.0, add: Add::Longest }
}

/// The figures that [`ncu`](super::ncu) asks for, besides the reasons to wait.
pub const NCU_METRICS: [Metric; 13] = [
    sum("gpu__time_duration.sum", "time", "µs", 1e-3),
    percent("dram__throughput.avg.pct_of_peak_sustained_elapsed", "device memory"),
    percent("lts__throughput.avg.pct_of_peak_sustained_elapsed", "L2"),
    percent("l1tex__throughput.avg.pct_of_peak_sustained_active", "L1 and shared memory"),
    percent("sm__inst_issued.avg.pct_of_peak_sustained_active", "instructions issued"),
    percent("sm__warps_active.avg.pct_of_peak_sustained_active", "occupancy"),
    Metric { unit: "a thread", ..percent("launch__registers_per_thread", "registers") },
    sum("dram__bytes_read.sum", "read", "MB", 1e-6),
    sum("dram__bytes_write.sum", "written", "MB", 1e-6),
    sum("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "load requests", "requests", 1.0),
    sum("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "load sectors", "sectors", 1.0),
    sum("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", "conflicts, loads", "wavefronts", 1.0),
    sum("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", "conflicts, stores", "wavefronts", 1.0),
];

/// Figures that [`ncu`](super::ncu) does not ask for, and that tables under `results/ncu` hold.
pub const TABLE_METRICS: [Metric; 7] = [
    percent("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed", "tensor cores"),
    percent("sm__inst_executed_pipe_fma.avg.pct_of_peak_sustained_active", "fp32 units"),
    percent("sm__inst_executed_pipe_alu.avg.pct_of_peak_sustained_active", "shifts and logic"),
    percent("l1tex__data_pipe_lsu_wavefronts.avg.pct_of_peak_sustained_elapsed", "shared data path"),
    sum("smsp__inst_executed.sum", "instructions", "millions", 1e-6),
    sum("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "conflicts", "thousands", 1e-3),
    Metric { unit: "GHz", scale: 1e-9, ..percent("SM Frequency", "clock") },
];

/// The figure of that short name.
fn known(short: &str) -> Option<&'static Metric> {
    NCU_METRICS.iter().chain(&TABLE_METRICS).find(|metric| metric.short == short)
}

/// Every name that is asked for.
pub(super) fn all() -> impl Iterator<Item = String> {
    let reasons = REASONS.iter().map(|(name, _)| stall_metric(name));
    NCU_METRICS.iter().map(|metric| metric.name.to_string()).chain(reasons)
}

/// TFLOP/s that the multiprocessors' f32 lanes reach at most, as `gpulab demo ladder` prints it.
pub(super) const PEAK: &str = "fp32 peak";

impl Counted {
    /// Each with the additions and multiplications of its call: operations for each byte that was read from or written to
    /// device memory, against operations a second. The memory's roof is what the hardware's own percentage makes of the
    /// busiest one's bytes and time.
    pub fn roofline(counted: &[(Counted, f64)]) -> Roofline {
        let bytes = |one: &Counted| (one.get("read") + one.get("written")) * 1e6;
        let seconds = |one: &Counted| one.get("time") * 1e-6;
        let point = |(one, operations): &(Counted, f64)| Reached {
            name: one.rung.rsplit('/').next().unwrap_or_default().to_string(),
            flop_per_byte: operations / bytes(one),
            tflop_per_s: operations / seconds(one) / 1e12,
            recorded: one.recorded,
        };
        let mut chart = plot::roofline(&counted.iter().map(point).collect::<Vec<_>>());
        let percent = |one: &Counted| one.get("device memory");
        let busiest = counted.iter().map(|one| &one.0).filter(|one| percent(one) > 0.0);
        if let Some(one) = busiest.max_by(|a, b| percent(a).total_cmp(&percent(b))) {
            let roof = bytes(one) / seconds(one) / 1e9 / (percent(one) / 100.0);
            chart = chart.memory_roof("device memory, by ncu's percentage", roof);
        }
        if let Some(peak) = counted.iter().find_map(|one| one.0.metrics.get(PEAK)) {
            chart = chart.compute_roof("f32: multiprocessors × lanes × 2 × clock", *peak);
        }
        let place = match counted.iter().find(|one| one.0.recorded) {
            Some((one, _)) => format!("Recorded on {}.", one.machine),
            None => "Measured on this machine.".to_string(),
        };
        chart.note("Bytes: those that crossed the pins of device memory, as Nsight Compute counted them.").note(&place)
    }
}

/// Nsight Compute's counter of a reason for which a warp does not issue its next instruction: the warps that wait for it,
/// added up over all cycles, by the instructions issued. So it is how many cycles a warp waits for it before each of its
/// instructions, on average.
fn stall_metric(reason: &str) -> String {
    format!("smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio")
}

/// The reasons of Hopper, with what they mean in short (after NVIDIA's Kernel Profiling Guide, "Warp Stall Reasons").
pub(super) const REASONS: [(&str, &str); 18] = [
    ("long_scoreboard", "a load from global or local memory has not come"),
    ("short_scoreboard", "a load from shared memory, or a special function, has not come"),
    ("barrier", "other warps of the block have not reached `__syncthreads()`"),
    ("lg_throttle", "the queue for global and local memory is full"),
    ("mio_throttle", "the queue for shared memory and special functions is full"),
    ("tex_throttle", "the queue of the texture unit is full"),
    ("math_pipe_throttle", "the arithmetic unit is busy"),
    ("wait", "the last instruction has a fixed latency"),
    ("not_selected", "ready, but another warp was taken"),
    ("selected", "it issues: no stall"),
    ("no_instruction", "its next instruction is not in the cache"),
    ("branch_resolving", "a jump is being worked out"),
    ("dispatch_stall", "the dispatcher holds it back"),
    ("drain", "it has ended, and its stores are not finished"),
    ("membar", "a memory fence has not come through"),
    ("imc_miss", "a constant is not in the cache"),
    ("gmma", "the tensor cores are busy"),
    ("sleeping", "it sleeps"),
];

/// One rung's reasons to wait, most first: stall cycles per issued instruction, on average.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a stall table shows itself as the last expression of a cell, without a semicolon"]
pub struct Stalls {
    /// The rung.
    pub rung: String,
    /// Reason in Nsight Compute's words, what it means, cycles.
    pub reasons: Vec<(&'static str, &'static str, f64)>,
    /// The machine that counted, for labels; empty where nobody said.
    pub machine: String,
    /// Whether that was in a recorded run.
    pub recorded: bool,
}

gpulab::show_as_text!(Stalls);

impl Stalls {
    /// The first reason that is a wait; empty where nothing was counted.
    pub fn first(&self) -> &'static str {
        self.reasons.iter().find(|one| one.0 != "selected").map_or("", |one| one.0)
    }

    /// The `count` longest waits in a line, such as `long_scoreboard 5.5, wait 1.2`.
    pub fn longest(&self, count: usize) -> String {
        let waits = self.reasons.iter().filter(|one| one.0 != "selected").take(count);
        waits.map(|one| format!("{} {:.1}", one.0, one.2)).collect::<Vec<_>>().join(", ")
    }

    /// The reasons as rows for [`plot::bars`](gpulab::plot::bars): the five that are most.
    pub fn rows(&self) -> Vec<Measurement> {
        let row = |one: &(&str, &str, f64)| {
            bar(one.0, "waiting", "cycles an instruction", one.2, &self.machine, self.recorded)
        };
        self.reasons.iter().take(5).map(row).collect()
    }
}

impl fmt::Display for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: f64 = self.reasons.iter().map(|one| one.2).sum();
        let recorded = if self.recorded { format!(" (recorded on {})", self.machine) } else { String::new() };
        writeln!(f, "{}: stall cycles per issued instruction{recorded}", self.rung)?;
        for (name, means, cycles) in self.reasons.iter().filter(|one| one.2 >= 0.01 * all) {
            writeln!(f, "{cycles:>8.2}  {:>3.0} %  {name:18}  {means}", 100.0 * cycles / all)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
