//! What a race gave: rows, a table, charts.

use super::race::{Entry, Race};
use gpulab::measurement::{Measurement, figures};
use gpulab::plot::{SizeChart, over_size};
use gpulab::table::{Cell, Table, show};

/// What a chart shows over the batch size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RaceChart {
    /// The time of the middle call.
    Latency,
    /// Examples a second.
    Throughput,
}

/// A race as text and as a piece of a page; it shows itself as the last line of a cell.
#[derive(Debug, Clone)]
pub struct Report {
    tables: [Table; 2],
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let texts: Vec<String> = self.tables.iter().map(|table| table.text().trim_end().to_string()).collect();
        f.write_str(&texts.join("\n\n"))
    }
}

impl Report {
    /// What the notebook calls to show it: both tables in one output, as a cell keeps the last one alone.
    pub fn evcxr_display(&self) {
        show(&format!("{self}\n"), &self.html());
    }

    /// Both tables as a piece of a page.
    pub fn html(&self) -> String {
        self.tables.iter().map(Table::html).collect()
    }
}

impl Race {
    /// The figures as rows with their machine: latency p50 and p99, throughput, and what opening took.
    pub fn rows(&self) -> Vec<Measurement> {
        let mut rows: Vec<Measurement> = self.latencies.iter().flat_map(|latency| latency.rows()).collect();
        for entry in &self.entries {
            for (metric, ms) in [("open", entry.open_ms), ("open again", entry.again_ms)] {
                let Some(ms) = ms else { continue };
                let summary = gpulab::measurement::Summary::of(&[ms]);
                let (name, backend) = (entry.contestant.name(), entry.contestant.backend());
                rows.push(Measurement::new(&name, backend, 1, metric, "ms", summary).dtype(&entry.contestant.dtype()));
            }
        }
        rows.iter_mut().for_each(|row| row.machine = self.machine(row.backend));
        rows
    }

    /// The tables: every contestant at every batch size, and how the sessions were opened.
    pub fn report(&self) -> Report {
        Report { tables: [self.latency_table(), self.session_table()] }
    }

    fn latency_table(&self) -> Table {
        let mut batches: Vec<usize> = self.latencies.iter().map(|latency| latency.batch).collect();
        batches.sort_unstable();
        batches.dedup();
        let mut rows = Vec::new();
        for batch in batches {
            let of: Vec<_> = self.latencies.iter().filter(|latency| latency.batch == batch).collect();
            let best = of.iter().map(|latency| latency.p50()).fold(f64::INFINITY, f64::min);
            for latency in of {
                let p50 = Cell { best: latency.p50() == best, ..Cell::of(figures(latency.p50())) };
                rows.push(vec![
                    Cell::of(latency.contestant.as_str()),
                    Cell::of(batch.to_string()),
                    p50,
                    Cell::of(figures(latency.p99())),
                    Cell::of(figures(latency.per_second())),
                    Cell::of(latency.us.len().to_string()),
                    Cell::of(format!("{:.0e}", latency.error)),
                ]);
            }
        }
        let heads = ["who", "batch", "p50 µs", "p99 µs", "examples a second", "calls", "differs by"];
        Table {
            title: self.title.clone(),
            heads: heads.map(str::to_string).to_vec(),
            rows,
            text_columns: 0,
            notes: vec![
                "A call is waited for; inputs and outputs lie where it computes. Differs by: the largest difference of an \
                 output from the first contestant's, over the largest output."
                    .to_string(),
            ],
        }
    }

    fn session_table(&self) -> Table {
        let ms = |value: Option<f64>| value.map_or(String::new(), figures);
        let row = |entry: &Entry| {
            [
                entry.contestant.name(),
                entry.nodes.clone().unwrap_or_default(),
                entry.engines.clone().unwrap_or_default(),
                ms(entry.open_ms),
                ms(entry.again_ms),
            ]
            .map(Cell::of)
            .to_vec()
        };
        let open = self.entries.iter().filter(|entry| entry.nodes.is_some());
        let mut table = Table {
            title: "Sessions, as ONNX Runtime tells of them".to_string(),
            heads: ["who", "nodes", "engines", "opened ms", "again ms"].map(str::to_string).to_vec(),
            rows: open.map(row).collect(),
            text_columns: 2,
            notes: self.missing(),
        };
        // Engines are TensorRT's alone.
        for column in [4, 2] {
            if table.rows.iter().all(|row| row[column].text.is_empty()) {
                table.heads.remove(column);
                table.rows.iter_mut().for_each(|row| drop(row.remove(column)));
                table.text_columns = if column == 2 { 1 } else { table.text_columns };
            }
        }
        table
    }

    /// A line for each that is absent, with its reason, and what adds it; the same reason is told once.
    fn missing(&self) -> Vec<String> {
        let mut told: Vec<&str> = Vec::new();
        let mut lines = Vec::new();
        let texts: Vec<(&String, String)> = self.absent.iter().map(|(name, error)| (name, error.to_string())).collect();
        for (name, text) in &texts {
            let why = text.strip_prefix(&format!("{name} is missing: ")).unwrap_or(text);
            if told.contains(&why) {
                lines.push(format!("{name} is missing for the same reason"));
            } else {
                lines.push(format!("{name} is missing: {why}"));
                told.push(why);
            }
        }
        lines
    }

    /// A chart over the batch size.
    pub fn chart(&self, what: RaceChart) -> SizeChart {
        race_chart(&self.rows(), what)
    }
}

/// The same chart of rows that were measured before.
pub fn race_chart(rows: &[Measurement], what: RaceChart) -> SizeChart {
    let (metric, title, label) = match what {
        RaceChart::Latency => ("latency p50", "The middle call", "time of a call"),
        RaceChart::Throughput => ("throughput", "Examples a second, calls one after another", "examples a second"),
    };
    let rows: Vec<Measurement> = rows.iter().filter(|row| row.metric == metric).cloned().collect();
    over_size(&rows).title(title).x_label("batch").y_label(label)
}
