//! What came of a run: rows for `metrics.csv`, plots, a table.

use super::{Kernels, Precision, Trainer, TrainingState};
use crate::DeviceKind;
use gpulab::measurement::{Backend, Measurement, Summary};
use gpulab::plot::{BarChart, SizeChart, bars, over_size};
use gpulab::table::{Cell, Table};

/// Points of a loss curve for each factor of ten in steps.
const POINTS: f64 = 12.0;

impl Trainer {
    /// What came of the run so far: a loss curve, accuracy and time of each epoch, and the time of a step. Who, when and
    /// where are for the lesson or the command that stores them.
    pub fn rows(&self) -> Vec<Measurement> {
        let config = self.config();
        let name = experiment(&self.state().data, self.kernels());
        rows(&name, self.state(), config.device.backend(), config.batch, config.precision.name())
    }

    /// The epochs as a table; it shows itself as the last line of a cell.
    pub fn report(&self) -> TrainingReport {
        let (state, config) = (self.state(), self.config());
        let title = format!(
            "CNN on {}: {}, {}, batch {}, layers: {}",
            state.data,
            config.device.name(),
            config.precision.name(),
            config.batch,
            self.kernels().name()
        );
        let mut table = table(title, state, self.images);
        // Of tensor cores one should know what they make of f32.
        let on_tensor_cores = config.device == DeviceKind::Cuda && self.kernels() == Kernels::Own;
        match config.precision {
            Precision::F32 if on_tensor_cores => {
                table.notes.push("f32: each product as three of TF32 parts".to_string())
            }
            Precision::Tf32 => table.notes.push("tf32: factors of products rounded to 11 bits".to_string()),
            _ => (),
        }
        TrainingReport(table)
    }
}

/// What rows of training on these images are called. Our own layers are the rule.
fn experiment(data: &str, kernels: Kernels) -> String {
    let whose = if kernels == Kernels::Candle { ", candle's layers" } else { "" };
    format!("train CNN on {data}{whose}")
}

/// A table of epochs.
#[derive(Debug, Clone)]
pub struct TrainingReport(Table);

impl std::fmt::Display for TrainingReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0.text().trim_end())
    }
}

impl TrainingReport {
    /// What the notebook calls to show it.
    pub fn evcxr_display(&self) {
        self.0.show();
    }
}

fn table(title: String, state: &TrainingState, images: usize) -> Table {
    let steps = state.losses.len() as f64 / (state.epochs.len().max(1)) as f64;
    let row = |(at, epoch): (usize, &super::Epoch)| {
        // The mean over the last tenth of the epoch: single batches jump.
        let end = ((at + 1) as f64 * steps).round() as usize;
        let last = &state.losses[end - (steps / 10.0).ceil().max(1.0).min(end as f64) as usize..end];
        let loss = last.iter().map(|loss| f64::from(*loss)).sum::<f64>() / last.len() as f64;
        [
            format!("{}", at + 1),
            format!("{loss:.4}"),
            format!("{:.4}", epoch.loss),
            format!("{:.2} %", 100.0 * epoch.accuracy),
            format!("{:.2} s", epoch.seconds),
            format!("{:.0}", images as f64 / f64::from(epoch.seconds)),
        ]
        .map(Cell::of)
        .to_vec()
    };
    let complete = state.losses.len() >= state.epochs.len();
    let heads = ["epoch", "training loss", "test loss", "test right", "training time", "images a second"];
    Table {
        title,
        heads: heads.map(str::to_string).to_vec(),
        rows: if complete { state.epochs.iter().enumerate().map(row).collect() } else { Vec::new() },
        text_columns: 0,
        notes: vec![
            "training loss: the mean over the last tenth of the epoch; the time is without the test".to_string(),
        ],
    }
}

fn rows(name: &str, state: &TrainingState, backend: Backend, batch: usize, dtype: &str) -> Vec<Measurement> {
    let row = |size: usize, metric: &str, unit: &str, summary: Summary| {
        Measurement::new(name, backend, size, metric, unit, summary).dtype(dtype)
    };
    let mut rows = Vec::new();
    let mut start = 0;
    while start < state.losses.len() {
        let end = (start as f64 * 10f64.powf(1.0 / POINTS)).ceil() as usize;
        let end = end.clamp(start + 1, state.losses.len());
        let losses: Vec<f64> = state.losses[start..end].iter().map(|loss| f64::from(*loss)).collect();
        rows.push(row(end, "loss", "nats", Summary::of(&losses)));
        start = end;
    }
    for (at, epoch) in state.epochs.iter().enumerate() {
        rows.push(row(at + 1, "accuracy", "%", Summary::of(&[100.0 * f64::from(epoch.accuracy)])));
    }
    if !state.epochs.is_empty() {
        let seconds: Vec<f64> = state.epochs.iter().map(|epoch| f64::from(epoch.seconds)).collect();
        rows.push(row(batch, "epoch time", "s", Summary::of(&seconds)));
    }
    rows
}

/// The loss over the steps of the runs in `rows`.
pub fn loss_chart(rows: &[Measurement]) -> SizeChart {
    let losses: Vec<Measurement> = rows.iter().filter(|row| row.metric == "loss").cloned().collect();
    over_size(&losses).title("Loss over the steps of training").x_label("step").y_label("cross-entropy")
}

/// The newest time of an epoch for each machine, dtype and layers, of the runs in `rows` on these images; the last
/// row is the newest. Each is named by layers, numbers and batch.
pub fn newest_times(rows: &[Measurement], data: &str) -> Vec<Measurement> {
    let mut newest: Vec<Measurement> = Vec::new();
    for kernels in [Kernels::Own, Kernels::Candle] {
        let experiment = experiment(data, kernels);
        let name = |row: &Measurement| format!("{}, {}, batch {}", kernels.name(), row.dtype, row.size);
        for row in rows.iter().filter(|row| row.experiment == experiment && row.metric == "epoch time") {
            let row = Measurement { experiment: name(row), ..row.clone() };
            newest.retain(|other| (&other.machine, &other.experiment) != (&row.machine, &row.experiment));
            newest.push(row);
        }
    }
    newest
}

/// Seconds of an epoch, a bar for each run in `rows`.
pub fn time_chart(rows: &[Measurement]) -> BarChart {
    let times: Vec<Measurement> = rows.iter().filter(|row| row.metric == "epoch time").cloned().collect();
    bars(&times).title("Time of an epoch")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cnn::Epoch;

    #[test]
    fn a_run_becomes_rows_charts_and_a_table() {
        let mut state = TrainingState::new(1, "MNIST");
        state.losses = (0..200).map(|step| 2.3 - 0.01 * step as f32).collect();
        state.epochs =
            vec![Epoch { accuracy: 0.9, loss: 0.4, seconds: 10.0 }, Epoch { accuracy: 0.98, loss: 0.1, seconds: 8.0 }];
        let name = experiment("MNIST", Kernels::Own);
        let rows = rows(&name, &state, Backend::Cpu, 128, "f32");
        let losses: Vec<_> = rows.iter().filter(|row| row.metric == "loss").collect();
        assert_eq!((losses[0].size, losses.last().unwrap().size), (1, 200));
        assert!((15..40).contains(&losses.len()), "{}", losses.len());
        assert!(rows.iter().any(|row| row.metric == "epoch time" && row.size == 128 && row.summary.median == 9.0));
        assert!(rows.iter().all(|row| row.experiment == "train CNN on MNIST"));
        assert_eq!(experiment("MNIST", Kernels::Candle), "train CNN on MNIST, candle's layers");
        assert!(loss_chart(&rows).draw().svg().contains("cross-entropy"));
        assert!(time_chart(&rows).draw().svg().contains("Time of an epoch"));
        let again = Measurement { summary: Summary::of(&[3.0]), ..rows.last().unwrap().clone() };
        let newest = newest_times(&[rows.clone(), vec![again]].concat(), "MNIST");
        assert_eq!(newest.len(), 1);
        assert_eq!((newest[0].experiment.as_str(), newest[0].summary.median), ("own, f32, batch 128", 3.0));
        let text = table("t".to_string(), &state, 1000).text();
        assert!(text.contains("90.00 %") && text.contains("98.00 %") && text.contains("125"), "{text}");
    }
}
