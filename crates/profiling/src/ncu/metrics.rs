//! Which figures are asked for.

use super::stalls::REASONS;

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
    Metric {
        name: "launch__registers_per_thread",
        short: "registers",
        unit: "a thread",
        scale: 1.0,
        add: Add::Longest,
    },
    sum("dram__bytes_read.sum", "read", "MB", 1e-6),
    sum("dram__bytes_write.sum", "written", "MB", 1e-6),
    sum("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "load requests", "requests", 1.0),
    sum("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "load sectors", "sectors", 1.0),
    sum("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum", "conflicts, loads", "wavefronts", 1.0),
    sum("l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum", "conflicts, stores", "wavefronts", 1.0),
];

/// Every name that is asked for.
pub(super) fn all() -> impl Iterator<Item = String> {
    let reasons = REASONS.iter().map(|reason| reason.metric());
    NCU_METRICS.iter().map(|metric| metric.name.to_string()).chain(reasons)
}
