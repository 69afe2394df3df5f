//! The counters in plain words, each with the name that Nsight Compute gives it.

use super::Inspection;
use super::words::{grouped, ratio};

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// What was counted.
    pub what: String,
    pub value: String,
    /// A second figure, such as sectors a request.
    pub aside: String,
    /// Nsight Compute's name.
    pub metric: String,
    /// The metric counts SASS, what ptxas makes of the PTX that is counted here.
    pub near: bool,
}

fn row(what: &str, value: u64, aside: String, metric: &str) -> Row {
    Row { what: what.to_string(), value: grouped(value), aside, metric: metric.to_string(), near: false }
}

/// All rows that say something: no zeros, but for conflicts and divergence where there could have been some.
pub(super) fn rows(it: &Inspection) -> Vec<Row> {
    let c = &it.counters;
    let lanes = format!("{:.1} lanes an instruction", c.active_lanes_per_instruction());
    let mut rows = vec![
        row("warp instructions", c.warp_instructions, String::new(), "smsp__inst_executed.sum"),
        row("thread instructions", c.thread_instructions, lanes, "smsp__thread_inst_executed.sum"),
    ];
    if c.branches > 0 {
        let divergent = "smsp__sass_branch_targets_threads_divergent.sum";
        rows.push(row("branches", c.branches, String::new(), "smsp__sass_branch_targets.sum"));
        rows.push(row("divergent branches", c.divergent_branches, String::new(), divergent));
    }
    if c.barriers > 0 {
        rows.push(row("barriers (a warp)", c.barriers, String::new(), "smsp__inst_executed_pipe_adu.sum"));
    }
    rows.iter_mut().for_each(|row| row.near = true);
    let moved = [
        ("global load", "global_op_ld", c.global_load_requests, c.global_load_sectors),
        ("global store", "global_op_st", c.global_store_requests, c.global_store_sectors),
        ("local load", "local_op_ld", c.local_load_requests, c.local_load_sectors),
        ("local store", "local_op_st", c.local_store_requests, c.local_store_sectors),
    ];
    for (what, name, requests, sectors) in moved.into_iter().filter(|row| row.2 > 0) {
        let metric = |unit: &str| format!("l1tex__t_{unit}_pipe_lsu_mem_{name}.sum");
        let each = format!("{} a request", ratio(sectors, requests));
        rows.push(row(&format!("{what} requests"), requests, String::new(), &metric("requests")));
        rows.push(row(&format!("{what} sectors"), sectors, each, &metric("sectors")));
    }
    let banks = [
        ("shared load", "shared_op_ld", c.shared_load_wavefronts, c.shared_load_bank_conflicts),
        ("shared store", "shared_op_st", c.shared_store_wavefronts, c.shared_store_bank_conflicts),
        ("shared atomic", "shared_op_atom", c.shared_atomic_wavefronts, c.shared_atomic_bank_conflicts),
    ];
    for (what, name, wavefronts, conflicts) in banks.into_iter().filter(|row| row.2 > 0) {
        let metric = |unit: &str| format!("l1tex__data_{unit}_mem_{name}.sum");
        let (passes, waits) = (metric("pipe_lsu_wavefronts"), metric("bank_conflicts_pipe_lsu"));
        rows.push(row(&format!("{what} wavefronts"), wavefronts, String::new(), &passes));
        rows.push(row(&format!("{what} bank conflicts"), conflicts, String::new(), &waits));
    }
    let atomics = [
        ("global atomics", c.global_atomics, "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum + …_op_red.sum"),
        ("shared atomics", c.shared_atomics, "smsp__inst_executed_op_shared_atom.sum"),
    ];
    rows.extend(atomics.into_iter().filter(|row| row.1 > 0).map(|(what, n, name)| row(what, n, String::new(), name)));
    rows
}
