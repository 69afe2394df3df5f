//! The counters in plain words, each with the name that Nsight Compute gives it.

use super::Inspection;
use super::words::{grouped, ratio};

/// One row of the table: what was counted, how much, what it means, and Nsight Compute's metric.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub what: &'static str,
    pub value: String,
    /// A second figure, such as sectors a request.
    pub aside: String,
    pub metric: &'static str,
    /// The metric counts SASS, what ptxas makes of the PTX that is counted here.
    pub near: bool,
}

fn row(what: &'static str, value: u64, aside: String, metric: &'static str) -> Row {
    Row { what, value: grouped(value), aside, metric, near: false }
}

/// All rows that say something: no zeros, but for conflicts and divergence where there could have been some.
pub(super) fn rows(it: &Inspection) -> Vec<Row> {
    let c = &it.counters;
    let mut rows = Vec::new();
    let mut near =
        |what, value, aside: String, metric| rows.push(Row { near: true, ..row(what, value, aside, metric) });
    near("warp instructions", c.warp_instructions, String::new(), "smsp__inst_executed.sum");
    let lanes = format!("{:.1} lanes an instruction", c.active_lanes_per_instruction());
    near("thread instructions", c.thread_instructions, lanes, "smsp__thread_inst_executed.sum");
    if c.branches > 0 {
        near("branches", c.branches, String::new(), "smsp__sass_branch_targets.sum");
        let metric = "smsp__sass_branch_targets_threads_divergent.sum";
        near("divergent branches", c.divergent_branches, String::new(), metric);
    }
    let globals = [
        ("global load requests", "global load sectors", c.global_load_requests, c.global_load_sectors, "ld"),
        ("global store requests", "global store sectors", c.global_store_requests, c.global_store_sectors, "st"),
    ];
    for (requests, sectors, asked, moved, op) in globals.into_iter().filter(|row| row.2 > 0) {
        let names = match op {
            "ld" => {
                ["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"]
            }
            _ => ["l1tex__t_requests_pipe_lsu_mem_global_op_st.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"],
        };
        rows.push(row(requests, asked, String::new(), names[0]));
        rows.push(row(sectors, moved, format!("{} a request", ratio(moved, asked)), names[1]));
    }
    let shared = [
        (
            "shared load wavefronts",
            "shared load bank conflicts",
            c.shared_load_wavefronts,
            c.shared_load_bank_conflicts,
        ),
        (
            "shared store wavefronts",
            "shared store bank conflicts",
            c.shared_store_wavefronts,
            c.shared_store_bank_conflicts,
        ),
    ];
    for (n, (waves, conflicts, taken, more)) in shared.into_iter().enumerate().filter(|(_, row)| row.2 > 0) {
        let names = [
            [
                "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
            ],
            [
                "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
                "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
            ],
        ][n];
        rows.push(row(waves, taken, String::new(), names[0]));
        rows.push(row(conflicts, more, String::new(), names[1]));
    }
    let others = [
        ("global atomics", c.global_atomics, "smsp__inst_executed_op_global_atom.sum + …_op_global_red.sum"),
        ("shared atomics", c.shared_atomics, "smsp__inst_executed_op_shared_atom.sum"),
        ("barriers (a warp)", c.barriers, "smsp__inst_executed_pipe_adu.sum"),
    ];
    for (what, value, metric) in others.into_iter().filter(|row| row.1 > 0) {
        rows.push(Row { near: true, ..row(what, value, String::new(), metric) });
    }
    rows
}
