//! A report as text, as a page, and as a chart.

use super::{Pair, Report};
use gpulab::html::escape;
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use gpulab::plot::{self, Figure};
use gpulab::table::{Cell, Table, show};

impl Report {
    /// Both tables as text, with where the rows come from.
    pub fn text(&self) -> String {
        let tables: Vec<String> = self.tables().iter().map(Table::text).collect();
        format!("{}\n\n{}", self.source, tables.join("\n"))
    }

    /// The report as a page of its own.
    pub fn page(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>gpulab: CPU and GPU</title>\n\
             <style>body{{font-family:sans-serif;max-width:60em;margin:2em auto;padding:0 1em}}</style>\n\
             <h1>CPU and GPU, by experiment</h1>\n{}</html>\n",
            self.html()
        )
    }

    fn html(&self) -> String {
        let tables: Vec<String> = self.tables().iter().map(Table::html).collect();
        let figure = self.figure().map_or(String::new(), |figure| figure.html());
        format!("<p>{}</p>\n{}{figure}", escape(&self.source), tables.join("\n"))
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        show(&self.text(), &self.html());
    }

    fn tables(&self) -> [Table; 2] {
        let head = |heads: &[&str]| heads.iter().map(|head| head.to_string()).collect();
        let lessons = Table {
            title: "Rows by lesson, measured on CPU and GPU".to_string(),
            heads: head(&["lesson", "CPU", "GPU", "other", "newest"]),
            rows: self
                .lessons
                .iter()
                .map(|lesson| {
                    let texts = [lesson.cpu.to_string(), lesson.gpu.to_string(), lesson.other.to_string()];
                    let day = lesson.newest.get(..10).unwrap_or(&lesson.newest).to_string();
                    let name = if lesson.lesson.is_empty() { "no lesson".to_string() } else { lesson.lesson.clone() };
                    [name].into_iter().chain(texts).chain([day]).map(Cell::of).collect()
                })
                .collect(),
            ..Table::default()
        };
        let mut notes = vec![
            "At the largest size that both have. Of several values of a side the fastest counts; of several runs, the newest."
                .to_string(),
        ];
        if self.pairs.is_empty() {
            notes.insert(0, "Nothing was measured on a CPU and on a GPU under one name.".to_string());
        }
        for (side, names) in [("CPU", &self.cpus), ("GPU", &self.gpus)] {
            if !names.is_empty() {
                notes.push(format!("{side}: {}.", names.join("; ")));
            }
        }
        notes.push(format!("{} other figures of speed are of one side alone.", self.alone));
        let pairs = Table {
            title: "CPU and GPU, by experiment".to_string(),
            heads: head(&["experiment", "lesson", "what", "size", "CPU", "GPU", "GPU faster", "over all sizes"]),
            rows: self.pairs.iter().map(row).collect(),
            text_columns: 2,
            notes,
        };
        [lessons, pairs]
    }
}

fn row(pair: &Pair) -> Vec<Cell> {
    let last = pair.points.last().expect("a pair has a point");
    let speedups = || pair.points.iter().map(|point| point.speedup);
    let (least, most) = (speedups().fold(f64::INFINITY, f64::min), speedups().fold(0.0, f64::max));
    let over = match pair.points.len() {
        1 => "one size".to_string(),
        count => format!("{} to {} ({count})", times(least), times(most)),
    };
    let texts = [
        name(pair),
        pair.lesson.clone(),
        format!("{}, {}", pair.metric, pair.unit),
        last.size.to_string(),
        figures(last.cpu),
        figures(last.gpu),
        times(last.speedup),
        over,
    ];
    let mut cells: Vec<Cell> = texts.into_iter().map(Cell::of).collect();
    // A GPU that is slower than the CPU is the thing to look at.
    cells[6].flagged = last.speedup < 1.0;
    cells
}

fn name(pair: &Pair) -> String {
    match pair.dtype.as_str() {
        "" | "f32" => pair.experiment.clone(),
        dtype => format!("{}, {dtype}", pair.experiment),
    }
}

fn times(speedup: f64) -> String {
    format!("{}×", figures(speedup))
}

pub(super) fn figure(report: &Report) -> Figure {
    let bar = |pair: &Pair| {
        let last = pair.points.last()?;
        let label = format!("{} {}, size {}", pair.lesson.get(..2).unwrap_or(&pair.lesson), name(pair), last.size);
        let once = Summary::of(&[last.speedup]);
        let row = Measurement::new(&label, Backend::Cuda, 1, "speed", "times the CPU's", once);
        Some(Measurement { machine: report.gpus.join("; "), ..row })
    };
    let rows: Vec<Measurement> = report.pairs.iter().filter_map(bar).collect();
    plot::bars(&rows)
        .title("How many times as fast the GPU is, at the largest size")
        .log()
        .prediction("as fast as the CPU", 1.0)
        .draw()
}
