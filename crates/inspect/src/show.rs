//! An inspection as text and as a table of the page: the launch, its counters, its findings.

use super::words::{counted, grouped, place, ratio, sides, together, volume};
use super::{Finding, Inspection};
use gpulab_measure::html::{BAD, badge, escape, marked};
use std::fmt;
use warpsim::UnevenLoop;

/// What stands below the table.
const SOURCE: &str = "Counted by the simulator (warpsim). It measures no time: only a GPU can say how long this takes.";
/// Why an [`UnevenLoop`] counts otherwise on a GPU.
const NOTE: &str = "The iterations of the PTX are counted; ptxas may unroll them once more, or merge the last ones, so";
const NEAR: &str = "≈ counts PTX here and machine code (SASS) there; the others are counted as the hardware does.";

impl Inspection {
    /// `vector_add: 3,907 blocks of 256 threads (31,256 warps)`.
    fn heading(&self) -> String {
        let blocks = counted(volume(self.grid), "block");
        let warps = volume(self.grid) * volume(self.block).div_ceil(32);
        let shared = match self.shared_bytes {
            0 => String::new(),
            n => format!(", {} of shared memory a block", gpulab_measure::error::bytes(n)),
        };
        let grid = if self.grid[1..] == [1, 1] { blocks } else { format!("{} = {blocks}", sides(self.grid)) };
        let threads = match self.block {
            [_, 1, 1] => counted(volume(self.block), "thread"),
            block => format!("{} = {}", sides(block), counted(volume(block), "thread")),
        };
        format!("{}: {grid} of {threads}, {}{shared}", self.kernel, counted(warps, "warp"))
    }

    /// Which counts depend on what ptxas makes of a loop, a sentence for each of them.
    fn notes(&self) -> Vec<String> {
        let told = |one: &UnevenLoop| {
            let at = one
                .source
                .as_ref()
                .map_or("a loop".to_string(), |at| format!("the loop that ends on line {}", at.line));
            let lines: Vec<String> = one.accesses.iter().map(|at| at.line.to_string()).collect();
            let of = match lines.as_slice() {
                [] => "its accesses".to_string(),
                [line] => format!("line {line}"),
                [most @ .., last] => format!("lines {} and {last}", most.join(", ")),
            };
            format!(
                "Lanes of one warp leave {at} after different numbers of iterations. {NOTE} the counts of {of} may differ on a GPU."
            )
        };
        self.uneven_loops.iter().map(told).collect()
    }

    /// Where findings of one place were met, and the text of its line.
    fn whereabouts(&self, findings: &[&Finding]) -> (String, String) {
        let finding = findings[0];
        let times = findings.iter().map(|finding| finding.times).max().unwrap_or(1);
        let line = finding.source.as_ref().map(|source| source.line);
        let text = line.and_then(|line| self.lines.iter().find(|own| own.number == line));
        let at = line.map_or(format!("PTX line {}", finding.ptx_line), |line| format!("line {line}"));
        let (block, thread) = (place(finding.block, self.grid), place(finding.thread, self.block));
        let first = if finding.times > 1 { format!(", first of {} times", grouped(times)) } else { String::new() };
        let place = format!("{at}, block {block}, thread {thread}{first}");
        (place, text.map_or(String::new(), |line| line.text.trim().to_string()))
    }

    /// The table, the findings and what was printed, as a piece of a page.
    pub fn html(&self) -> String {
        const LEFT: &str = "text-align:left;white-space:nowrap;padding:.1em .8em .1em 0";
        const RIGHT: &str = "text-align:right;white-space:nowrap;padding:.1em .8em .1em 0";
        let mut html = format!(
            "<div class=\"gpulab-inspection\"><strong>{}</strong>\n{}",
            escape(&self.heading()),
            together(self.findings.iter()).iter().map(|findings| self.finding_box(findings)).collect::<String>()
        );
        html += &format!(
            "<table style=\"margin:.5em 0;font-size:inherit;table-layout:auto\"><thead><tr><th style=\"{LEFT}\">what</th><th style=\"{RIGHT}\">count</th>\
             <td></td><th style=\"{LEFT}\">in Nsight Compute</th></tr></thead><tbody>\n"
        );
        for Row { what, value, aside, metric, near } in rows(self) {
            let near = if near { "≈ " } else { "" };
            html += &format!(
                "<tr><td style=\"{LEFT}\">{what}</td><td style=\"{RIGHT}\">{value}</td><td style=\"{LEFT}\">{aside}</td>\
                 <td style=\"{LEFT}\">{near}<code style=\"font-size:80%\">{metric}</code></td></tr>\n"
            );
        }
        html += &format!("</tbody></table><small>{SOURCE} {NEAR}</small>");
        for note in self.notes() {
            html += &format!("<br><small>{note}</small>");
        }
        if !self.printed.is_empty() {
            html += &format!("<br>printed:<pre>{}</pre>", escape(&self.printed));
        }
        html + "</div>\n"
    }

    fn finding_box(&self, findings: &[&Finding]) -> String {
        let (place, text) = self.whereabouts(findings);
        let (said, next) = said(findings);
        let said: Vec<String> = said.into_iter().map(marked).collect();
        let code = if text.is_empty() { String::new() } else { format!("<br><code>{}</code>", escape(&text)) };
        let next = if next.is_empty() { String::new() } else { format!("<br><em>next: {}</em>", marked(next)) };
        format!(
            "<div style=\"border-left:4px solid {BAD};padding:.2em .8em;margin:.5em 0\">\
             {} {}{code}<br>{}{next}</div>\n",
            badge(findings[0].kind.words(), BAD),
            escape(&place),
            said.join("<br>")
        )
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        gpulab_measure::table::show(&self.to_string(), &self.html());
    }
}

impl fmt::Display for Inspection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.heading())?;
        for findings in together(self.findings.iter()) {
            let (place, text) = self.whereabouts(&findings);
            let (said, next) = said(&findings);
            writeln!(f, "\n{}: {place}", findings[0].kind.words())?;
            if !text.is_empty() {
                writeln!(f, "    {text}")?;
            }
            said.iter().try_for_each(|what| writeln!(f, "  {what}"))?;
            if !next.is_empty() {
                writeln!(f, "  next: {next}")?;
            }
        }
        writeln!(f)?;
        let rows = rows(self);
        let wide = |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or(0);
        let (what, value, aside) = (wide(|row| &row.what), wide(|row| &row.value), wide(|row| &row.aside));
        for row in &rows {
            let near = if row.near { "≈ " } else { "  " };
            writeln!(f, "{:what$}  {:>value$}  {:aside$}  {near}{}", row.what, row.value, row.aside, row.metric)?;
        }
        writeln!(f, "{SOURCE}\n{NEAR}")?;
        self.notes().iter().try_for_each(|note| writeln!(f, "{note}"))?;
        if !self.printed.is_empty() {
            writeln!(f, "\nprinted:\n{}", self.printed.trim_end())?;
        }
        Ok(())
    }
}

/// What happened, one line for each finding, and what to do about the first.
fn said<'a>(findings: &[&'a Finding]) -> (Vec<&'a str>, &'a str) {
    let parts: Vec<(&str, &str)> = findings.iter().map(|finding| split(&finding.message)).collect();
    (parts.iter().map(|part| part.0).collect(), parts[0].1)
}

/// What happened, and what to do.
fn split(message: &str) -> (&str, &str) {
    match message.split_once("next: ") {
        Some((what, next)) => (what.trim_end().trim_end_matches(';'), next.trim()),
        None => (message, ""),
    }
}

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
    let lanes = format!("{:.1} lanes per instruction", c.active_lanes_per_instruction());
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
