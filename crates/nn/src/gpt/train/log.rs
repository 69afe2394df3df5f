//! How far a run is: as a line, as a row of its log, and as charts of the loss.

use crate::tensors::write_whole;
use gpulab::error::{Error, Result};
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use gpulab::plot::{SizeChart, over_size};
use gpulab::results;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GptProgress {
    /// Steps that were made, of `steps`.
    pub step: u64,
    /// Steps in all.
    pub steps: u64,
    /// Tokens that were read since the run began.
    pub tokens: u64,
    /// Mean over the steps since the last line, in nats a token.
    pub loss: f64,
    /// On words that were never trained on, where it was measured.
    pub held_out: Option<f64>,
    /// Of the last step.
    pub learning_rate: f64,
    /// Of the gradients before they were clipped, mean over the steps since the last line.
    pub norm: f64,
    /// Milliseconds of a step, mean since the last line, without what is measured and kept between steps.
    pub ms: f64,
    /// Tokens a second at that.
    pub rate: f64,
    /// Model FLOP utilisation: 6 · parameters · tokens a second as a share of the device's peak, where that is known.
    pub utilisation: Option<f64>,
    /// Seconds that are left at this rate.
    pub left: f64,
}

impl std::fmt::Display for GptProgress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let GptProgress { step, steps, loss, rate, left, .. } = self;
        let minutes = left / 60.0;
        write!(f, "step {step:>5} of {steps}   loss {loss:.3}   {rate:>7.0} tokens/s   {minutes:>5.1} min left")?;
        if let Some(share) = self.utilisation {
            write!(f, "   MFU {:.1} %", 100.0 * share)?;
        }
        match self.held_out {
            Some(held_out) => write!(f, "   held out {held_out:.3}"),
            None => Ok(()),
        }
    }
}

/// The log's first line.
pub(super) const HEAD: &str =
    "step,tokens,loss,held_out_loss,learning_rate,gradient_norm,ms_a_step,tokens_a_second,mfu_percent,engine,time";

impl GptProgress {
    /// A row of the log; empty where nothing was measured.
    pub(super) fn row(&self, engine: &str) -> String {
        let GptProgress { step, tokens, loss, held_out, learning_rate, norm, ms, rate, utilisation, .. } = self;
        let held_out = held_out.map_or(String::new(), |loss| format!("{loss:.5}"));
        let share = utilisation.map_or(String::new(), |share| format!("{:.2}", 100.0 * share));
        let time = results::now_utc();
        format!(
            "{step},{tokens},{loss:.5},{held_out},{learning_rate:.4e},{norm:.5},{ms:.3},{rate:.1},{share},{engine},{time}"
        )
    }
}

/// A file of lines that each begin with the step that they were written after.
#[derive(Debug)]
pub(super) struct Lines {
    path: PathBuf,
}

impl Lines {
    /// Goes on behind that step: lines of later ones are of a run that ended without keeping what it wrote of, and are dropped.
    pub(super) fn open(path: PathBuf, head: &str, step: u64) -> Result<Lines> {
        let before = if step > 0 { std::fs::read_to_string(&path).unwrap_or_default() } else { String::new() };
        let of = |line: &str| line.split(|x: char| !x.is_ascii_digit()).next().and_then(|number| number.parse().ok());
        // A line that was being written when the program was killed has no end.
        let whole = before.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        let kept: String = whole.filter(|line| of(line).is_some_and(|of: u64| of <= step)).collect();
        let head = if head.is_empty() { String::new() } else { format!("{head}\n") };
        write_whole(&path, (head + &kept).as_bytes())?;
        Ok(Lines { path })
    }

    pub(super) fn push(&self, line: &str) -> Result<()> {
        let written = OpenOptions::new().append(true).open(&self.path);
        let written = written.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(Error::io(&self.path, "write", "make room, or name a folder that can be written with --out"))
    }
}

/// The losses of a run's log over the tokens that were read, and over the compute that this took, 6 · parameters · tokens.
/// `landmarks`: losses to compare with, such as that of a model that counts. `whose`: what computed, and its name.
///
/// # Errors
/// [`Error::File`] when the log cannot be read, or is none.
pub fn loss_charts(
    log: &Path,
    parameters: usize,
    landmarks: &[(&str, f64)],
    whose: (Backend, &str),
) -> Result<[SizeChart; 2]> {
    let fix = "name the log.csv of a training run";
    let text = std::fs::read_to_string(log).map_err(Error::io(log, "read", fix))?;
    let (mut training, mut held_out) = (Vec::new(), Vec::new());
    for (at, line) in text.lines().enumerate().skip(1) {
        let cells: Vec<&str> = line.split(',').collect();
        let number = |at: usize| cells.get(at).and_then(|cell| cell.parse::<f64>().ok());
        let (Some(tokens), Some(loss)) = (number(1), number(2)) else {
            return Err(Error::file(log, "read", format!("line {} is no row of a log", at + 1), fix));
        };
        let row = |name: &str, loss: f64| Measurement {
            machine: whose.1.to_string(),
            ..Measurement::new(name, whose.0, tokens as usize, "loss", "nats a token", Summary::of(&[loss]))
        };
        training.push(row("training", loss));
        held_out.extend(number(3).map(|loss| row("held out", loss)));
    }
    let each = 6e-12 * parameters as f64;
    let all = training.last().map_or(0.0, |row| each * row.size as f64);
    let rows: Vec<Measurement> = training.into_iter().chain(held_out).collect();
    let title = format!("A GPT of {parameters} parameters learns: {} TFLOP in all", figures(all));
    let marked = |chart: SizeChart| {
        landmarks.iter().fold(chart.title(&title), |chart, (name, loss)| chart.prediction_value(name, *loss))
    };
    let compute = over_size(&rows).sizes_times(each).x_label("TFLOP: 6 · parameters · tokens read");
    Ok([marked(over_size(&rows).x_label("tokens read")), marked(compute)])
}
