//! What the simulator counts of each rung of a ladder, side by side.

use gpulab::inspect::words::grouped;
use gpulab::inspect::{Counters, Inspection};
use gpulab::table::{Cell, Table};
use std::fmt;

/// The counters of a ladder's rungs at one size. As the last expression of a cell it shows itself as a table.
#[derive(Debug, Clone, Default)]
#[must_use = "counters show themselves as the last expression of a cell, without a semicolon"]
pub struct RungCounters {
    /// What was counted, such as `reduction at size 100000`.
    pub title: String,
    /// Additions and multiplications of a call at that size.
    pub operations: f64,
    /// The rungs that the simulator runs, in reading order.
    pub rungs: Vec<RungCount>,
    /// The others, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// What one call of one rung counted, over all its launches.
#[derive(Debug, Clone, Default)]
pub struct RungCount {
    /// The rung's name, such as `03_whole_warps`.
    pub name: String,
    /// Launches of one call.
    pub launches: usize,
    /// Their counts together.
    pub counters: Counters,
    /// Mistakes that the simulator found.
    pub findings: usize,
}

impl RungCount {
    pub(crate) fn of(name: &str, launches: &[Inspection]) -> RungCount {
        let mut sum = RungCount { name: name.to_string(), launches: launches.len(), ..RungCount::default() };
        for seen in launches {
            sum.counters += seen.counters;
            sum.findings += seen.findings.len();
        }
        sum
    }

    /// Bytes of the sectors that its warps ask for, of loads and stores in global memory.
    pub fn global_bytes(&self) -> u64 {
        32 * (self.counters.global_load_sectors + self.counters.global_store_sectors)
    }
}

/// One column: its head, its value (`None` where there is nothing to count), how it is written, whether less is better.
struct Column {
    head: &'static str,
    value: fn(&RungCount) -> Option<f64>,
    shown: fn(f64) -> String,
    less: bool,
}

const fn count(head: &'static str, value: fn(&RungCount) -> Option<f64>) -> Column {
    Column { head, value, shown: |value| grouped(value as u64), less: true }
}

/// Wide loads touch more sectors, and there are fewer of them: neither more nor less is the better one.
const fn per_request(head: &'static str, value: fn(&RungCount) -> Option<f64>) -> Column {
    Column { head, value, shown: |value| format!("{value:.1}"), less: false }
}

fn ratio(sectors: u64, requests: u64) -> Option<f64> {
    (requests > 0).then(|| sectors as f64 / requests as f64)
}

const COLUMNS: [Column; 11] = [
    Column { less: false, ..count("launches", |it| Some(it.launches as f64)) },
    count("warp instructions", |it| Some(it.counters.warp_instructions as f64)),
    per_request("sectors per load", |it| ratio(it.counters.global_load_sectors, it.counters.global_load_requests)),
    per_request("sectors per store", |it| ratio(it.counters.global_store_sectors, it.counters.global_store_requests)),
    Column {
        shown: |value| gpulab::error::bytes(value as u64),
        ..count("global memory", |it| Some(it.global_bytes() as f64))
    },
    count("shared wavefronts", |it| Some(wavefronts(&it.counters) as f64)),
    count("bank conflicts", |it| Some(conflicts(&it.counters) as f64)),
    count(LOCAL, |it| Some((it.counters.local_load_sectors + it.counters.local_store_sectors) as f64)),
    count("divergent branches", |it| Some(it.counters.divergent_branches as f64)),
    count("barriers", |it| Some(it.counters.barriers as f64)),
    count("atomics", |it| Some((it.counters.global_atomics + it.counters.shared_atomics) as f64)),
];

const LOCAL: &str = "local sectors";

fn wavefronts(it: &Counters) -> u64 {
    it.shared_load_wavefronts + it.shared_store_wavefronts + it.shared_atomic_wavefronts
}

fn conflicts(it: &Counters) -> u64 {
    it.shared_load_bank_conflicts + it.shared_store_bank_conflicts + it.shared_atomic_bank_conflicts
}

/// A change below this factor is none to point at.
const CHANGE: f64 = 1.25;

impl RungCounters {
    /// The counts of that rung; `None` where the table has none. Its number is enough: `03`.
    pub fn get(&self, rung: &str) -> Option<&RungCount> {
        let is = |name: &str| name == rung || name.split('_').next() == Some(rung);
        self.rungs.iter().find(|it| is(&it.name))
    }

    /// For each rung the column that changed most against the rung before, if one changed much.
    fn changed(&self, columns: &[&Column]) -> Vec<Option<usize>> {
        let change = |column: &Column, before: &RungCount, now: &RungCount| {
            let (Some(old), Some(new)) = ((column.value)(before), (column.value)(now)) else { return 1.0 };
            // What begins at 0 has no ratio. What ends there has one to a count that is small beside the instructions.
            let instructions = before.counters.warp_instructions.max(now.counters.warp_instructions);
            let little = if column.less { instructions as f64 / 1000.0 } else { 0.0 };
            let factor = (new + little) / (old + little);
            if old > 0.0 && factor > 0.0 { factor.max(1.0 / factor) } else { 1.0 }
        };
        let most = |pair: &[RungCount]| {
            let all = columns.iter().enumerate().map(|(at, column)| (at, change(column, &pair[0], &pair[1])));
            all.filter(|(_, change)| *change >= CHANGE).max_by(|a, b| a.1.total_cmp(&b.1)).map(|(at, _)| at)
        };
        std::iter::once(None).chain(self.rungs.windows(2).map(most)).collect()
    }

    fn table(&self) -> Table {
        let all = |column: &Column| self.rungs.iter().filter_map(column.value).collect::<Vec<f64>>();
        let (columns, zeros): (Vec<&Column>, Vec<&Column>) =
            COLUMNS.iter().partition(|column| all(column).iter().any(|value| *value > 0.0));
        // One launch a call is what everybody expects.
        let columns: Vec<&Column> = columns
            .into_iter()
            .filter(|column| column.head != "launches" || all(column).iter().any(|n| *n > 1.0))
            .collect();
        let least = |column: &Column| {
            let values = all(column);
            let low = values.iter().copied().fold(f64::MAX, f64::min);
            // What most rungs share is no merit of any.
            let few = values.iter().filter(|value| **value == low).count() * 2 <= values.len();
            (column.less && few).then_some(low)
        };
        let least: Vec<Option<f64>> = columns.iter().map(|column| least(column)).collect();
        let changed = self.changed(&columns);
        let rows = self.rungs.iter().zip(&changed).map(|(it, changed)| {
            let cells = columns.iter().enumerate().map(|(at, column)| {
                let value = (column.value)(it);
                Cell {
                    text: value.map_or("–".to_string(), column.shown),
                    best: value.is_some() && value == least[at],
                    flagged: *changed == Some(at),
                }
            });
            std::iter::once(Cell::of(&it.name)).chain(cells).collect()
        });
        Table {
            title: format!("{}, counted by the simulator", self.title),
            heads: std::iter::once("rung")
                .chain(columns.iter().map(|column| column.head))
                .map(str::to_string)
                .collect(),
            rows: rows.collect(),
            notes: self.notes(&columns, &zeros),
            ..Table::default()
        }
    }

    fn notes(&self, columns: &[&Column], zeros: &[&Column]) -> Vec<String> {
        let mut notes = vec![
            "green (`*`): the least of its column, where most rungs have more; orange ground (`!`): what changed most against the rung before"
                .to_string(),
            "global memory: 32 bytes for each sector that a warp asks for; caches may serve it".to_string(),
        ];
        if columns.iter().any(|column| column.head == LOCAL) {
            notes.push(format!("{LOCAL}: of the PTX; the driver's compiler may still keep those numbers in registers"));
        }
        let counted = |column: &&&Column| self.rungs.iter().any(|it| (column.value)(it).is_some());
        let heads: Vec<&str> = zeros.iter().filter(counted).map(|column| column.head).collect();
        if !heads.is_empty() {
            notes.push(format!("0 on every rung: {}", heads.join(", ")));
        }
        for it in self.rungs.iter().filter(|it| it.findings > 0) {
            notes.push(format!("`{}` makes {} mistakes: `ladder.inspect` names them", it.name, it.findings));
        }
        notes.extend(self.left_out.iter().map(|(name, why)| format!("not run: `{name}`: {why}")));
        notes
    }

    /// The table as a piece of a page.
    pub fn html(&self) -> String {
        self.table().html()
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        self.table().show();
    }
}

impl fmt::Display for RungCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table().text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rung(name: &str, counters: Counters) -> RungCount {
        RungCount { name: name.to_string(), launches: 1, counters, findings: 0 }
    }

    #[test]
    fn the_table_marks_the_least_and_what_changed_most() {
        let naive = Counters {
            warp_instructions: 1000,
            global_load_requests: 10,
            global_load_sectors: 320,
            barriers: 5,
            ..Counters::default()
        };
        let better = Counters { warp_instructions: 900, global_load_sectors: 40, ..naive };
        let it = RungCounters {
            title: "reduction at size 10".to_string(),
            operations: 10.0,
            rungs: vec![rung("01_a", naive), rung("02_b", better)],
            left_out: vec![("05_wgmma".to_string(), "needs Hopper".to_string())],
        };
        let text = it.to_string();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        assert!(lines.contains(&vec!["01_a", "1,000", "32.0", "10.0", "KiB", "5"]), "{text}");
        assert!(lines.contains(&vec!["02_b", "900*", "4.0!", "1.25", "KiB*", "5"]), "{text}");
        for part in ["0 on every rung: shared wavefronts, bank", "not run: `05_wgmma`: needs", "reduction at size 10,"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("launches") && it.html().contains("warp<br>instructions"));
        assert_eq!(it.get("02").unwrap().global_bytes(), 1280);
        assert!(it.get("0").is_none() && RungCounters::default().to_string().contains("counted"));
    }
}
