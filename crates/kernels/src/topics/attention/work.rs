//! What each step of attention must move and compute, derived from the shape alone, beside what it took.

use super::AttentionStep;
use gpulab::cpu::{AttentionMask, AttentionShape};
use gpulab::error::{Result, bytes};
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use gpulab::table::{Cell, Table};
use std::fmt;

/// What one step does at least: each array that it takes read once, each that it gives written once.
#[derive(Debug, Clone, PartialEq)]
pub struct StepWork {
    /// Which.
    pub step: AttentionStep,
    /// Bytes.
    pub read: u64,
    /// Bytes.
    pub written: u64,
    /// Additions, multiplications, comparisons and exponentials.
    pub operations: f64,
    /// Its time, in ms, where rows with its name were given.
    pub ms: Option<f64>,
}

/// The steps of one attention, with their bytes and operations. As the last expression of a cell it shows itself.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "work shows itself as the last expression of a cell, without a semicolon"]
pub struct AttentionWork {
    /// The shape in words.
    pub title: String,
    /// In order.
    pub steps: Vec<StepWork>,
    /// Where the times come from; empty without times.
    pub source: String,
}

/// Who computes it: what a mask costs differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Chain {
    /// The course's kernels write hidden scores in place.
    InPlace,
    /// A framework reads scores and mask, and writes all scores anew.
    OutOfPlace,
}

impl AttentionWork {
    /// The course's chain, a kernel a line of the formula, with numbers of so many bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) and [`Error::LengthMismatch`](gpulab::Error::LengthMismatch) for what is
    /// no shape, or no mask of it.
    pub fn chained(shape: AttentionShape, mask: &AttentionMask, number: usize) -> Result<AttentionWork> {
        AttentionWork::of(AttentionStep::CHAIN, shape, mask, number, Chain::InPlace)
    }

    /// The same with scale, mask and softmax in one kernel.
    ///
    /// # Errors
    /// As [`AttentionWork::chained`].
    pub fn fused(shape: AttentionShape, mask: &AttentionMask, number: usize) -> Result<AttentionWork> {
        AttentionWork::of(AttentionStep::FUSED, shape, mask, number, Chain::InPlace)
    }

    /// The chain of a framework whose operators write a new array each.
    ///
    /// # Errors
    /// As [`AttentionWork::chained`].
    pub fn out_of_place(shape: AttentionShape, mask: &AttentionMask, number: usize) -> Result<AttentionWork> {
        AttentionWork::of(AttentionStep::CHAIN, shape, mask, number, Chain::OutOfPlace)
    }

    fn of(
        steps: &[AttentionStep],
        shape: AttentionShape,
        mask: &AttentionMask,
        number: usize,
        chain: Chain,
    ) -> Result<AttentionWork> {
        shape.check()?;
        mask.check(shape)?;
        let AttentionShape { batch, q_heads, length, width, .. } = shape;
        let sequence = |at| (0..length).map(|query| mask.seen(at, query, length)).sum::<usize>();
        let seen = q_heads * (0..batch).map(sequence).sum::<usize>();
        let (scores, q, kv) = (shape.scores(), shape.q_numbers(), shape.kv_numbers());
        let masks = if mask.lengths.is_some() { batch } else { 1 };
        let product = 2.0 * scores as f64 * width as f64;
        let work = |&step: &AttentionStep| {
            // A comparison, a subtraction, exp, an addition and a division for each number of a softmax.
            let (read, written, operations) = match (step, chain) {
                (AttentionStep::SplitHeads, Chain::InPlace) => (q + 2 * kv, q + 2 * kv, 0.0),
                // Grouped heads are repeated: k and v become as large as q.
                (AttentionStep::SplitHeads, Chain::OutOfPlace) => (q + 2 * kv, 3 * q, 0.0),
                (AttentionStep::Scores, Chain::OutOfPlace) => (2 * q, scores, product),
                (AttentionStep::Scores, _) => (q + kv, scores, product),
                (AttentionStep::Scale, _) => (scores, scores, scores as f64),
                (AttentionStep::Mask, Chain::InPlace) => (0, scores - seen, 0.0),
                (AttentionStep::Mask, Chain::OutOfPlace) => (scores + masks * length * length, scores, scores as f64),
                (AttentionStep::Softmax, _) => (scores, scores, 5.0 * scores as f64),
                (AttentionStep::MaskedSoftmax, _) => (seen, scores, 6.0 * seen as f64),
                (AttentionStep::WeightedSum, Chain::OutOfPlace) => (scores + q, q, product),
                (AttentionStep::WeightedSum, _) => (scores + kv, q, product),
                (AttentionStep::MergeHeads, _) => (q, q, 0.0),
            };
            StepWork { step, read: (number * read) as u64, written: (number * written) as u64, operations, ms: None }
        };
        let title = format!("{shape}, {number} bytes a number");
        Ok(AttentionWork { title, steps: steps.iter().map(work).collect(), source: String::new() })
    }

    /// The bytes that attention must move, whoever computes it: q, k and v read, the result written.
    pub fn least(shape: AttentionShape, number: usize) -> u64 {
        (number * (2 * shape.q_numbers() + 2 * shape.kv_numbers())) as u64
    }

    /// Bytes of all steps.
    pub fn bytes(&self) -> u64 {
        self.steps.iter().map(StepWork::bytes).sum()
    }

    /// Operations of all steps.
    pub fn operations(&self) -> f64 {
        self.steps.iter().map(|step| step.operations).sum()
    }

    /// Milliseconds of all steps; `None` where one has no time.
    pub fn ms(&self) -> Option<f64> {
        self.steps.iter().map(|step| step.ms).sum()
    }

    /// The same with the times of rows that are named after steps. Give rows of one size and one kind of number.
    pub fn timed(mut self, rows: &[Measurement]) -> AttentionWork {
        for step in &mut self.steps {
            let row = rows.iter().find(|row| row.experiment == step.step.name() && row.metric == "time");
            step.ms = row.map(|row| row.summary.median);
            if let Some(row) = row {
                self.source = row.source();
            }
        }
        self
    }

    /// A row for each step with its share of the whole time in percent, for `plot::bars`; none without times.
    pub fn shares(&self, rows: &[Measurement]) -> Vec<Measurement> {
        let Some(all) = self.ms() else { return Vec::new() };
        let share = |step: &StepWork| {
            let row = rows.iter().find(|row| row.experiment == step.step.name())?;
            let percent = Summary::of(&[100.0 * step.ms? / all]);
            Some(Measurement { metric: "share".into(), unit: "%".into(), summary: percent, ..row.clone() })
        };
        self.steps.iter().filter_map(share).collect()
    }

    /// One row with the bytes of all steps, for a chart over the length.
    pub fn bytes_row(&self, name: &str, length: usize) -> Measurement {
        bytes_row(name, length, self.bytes())
    }

    fn table(&self) -> Table {
        let all = self.ms();
        let row = |step: &StepWork| {
            let mut cells = vec![
                Cell::of(step.step.name()),
                Cell::of(step.step.formula()),
                Cell::of(bytes(step.read)),
                Cell::of(bytes(step.written)),
                Cell::of(if step.operations == 0.0 { "–".into() } else { figures(step.operations / 1e9) }),
            ];
            if let Some(all) = all {
                let ms = step.ms.unwrap_or(f64::NAN);
                let rate = step.bytes() as f64 / ms / 1e6;
                cells.extend([figures(ms), format!("{:.1} %", 100.0 * ms / all), figures(rate)].map(Cell::of));
            }
            cells
        };
        let mut heads: Vec<&str> = vec!["step", "formula", "reads", "writes", "10⁹ operations"];
        heads.extend(all.map(|_| ["ms", "of the time", "GB/s"]).iter().flatten());
        let mut notes = vec![format!("{} in all", bytes(self.bytes()))];
        if let Some(all) = all {
            notes.push(format!("{} ms in all, {}", figures(all), self.source));
        }
        Table {
            title: self.title.clone(),
            heads: heads.into_iter().map(str::to_string).collect(),
            rows: self.steps.iter().map(row).collect(),
            text_columns: 1,
            notes,
        }
    }

    /// The table as a piece of a page.
    pub fn html(&self) -> String {
        self.table().html()
    }

    /// What the notebook calls to show it.
    pub fn evcxr_display(&self) {
        self.table().show();
    }
}

impl StepWork {
    /// Read and written.
    pub fn bytes(&self) -> u64 {
        self.read + self.written
    }
}

impl fmt::Display for AttentionWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table().text())
    }
}

/// A row of bytes that were derived, in GB (10⁹ bytes), at that length.
pub fn bytes_row(name: &str, length: usize, bytes: u64) -> Measurement {
    let row = Measurement::new(name, Backend::Derived, length, "bytes", "GB", Summary::of(&[bytes as f64 / 1e9]));
    Measurement { machine: "derived".to_string(), ..row.dtype("") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_follow_from_the_shape() {
        let shape = AttentionShape { batch: 2, q_heads: 4, kv_heads: 2, length: 10, width: 8 };
        let of = |work: &AttentionWork, step| {
            let found = work.steps.iter().find(|own| own.step == step).unwrap();
            (found.read, found.written)
        };
        let causal = AttentionWork::chained(shape, &AttentionMask::causal(), 4).unwrap();
        assert_eq!(of(&causal, AttentionStep::Scores), (4 * (640 + 320), 4 * 800));
        // Above the diagonal lie 45 of 100 scores.
        assert_eq!(of(&causal, AttentionStep::Mask), (0, 4 * 8 * 45));
        assert_eq!(of(&causal, AttentionStep::WeightedSum), (4 * (800 + 320), 4 * 640));
        assert_eq!(causal.operations(), 4.0 * 800.0 * 8.0 + 6.0 * 800.0);
        let fused = AttentionWork::fused(shape, &AttentionMask::causal().padded(&[10, 0]), 2).unwrap();
        // Of the first sequence 55 scores of a head are seen, of the second none.
        assert_eq!(of(&fused, AttentionStep::MaskedSoftmax), (2 * 4 * 55, 2 * 800));
        assert_eq!(AttentionWork::least(shape, 2), 2 * 2 * (640 + 320));
        let plain = AttentionWork::out_of_place(shape, &AttentionMask::none(), 4).unwrap();
        assert_eq!(of(&plain, AttentionStep::Mask), (4 * (800 + 100), 4 * 800));
        let text = AttentionWork::chained(shape, &AttentionMask::none().padded(&[1]), 4).unwrap_err().to_string();
        assert!(text.contains("one a sequence"), "{text}");
    }

    #[test]
    fn times_give_shares_and_rates_and_their_source() {
        let shape = AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length: 1000, width: 64 };
        let work = AttentionWork::chained(shape, &AttentionMask::none(), 4).unwrap();
        assert_eq!((work.ms(), work.shares(&[]).len()), (None, 0));
        let rows: Vec<Measurement> = AttentionStep::CHAIN
            .iter()
            .map(|step| Measurement::time_ms(step.name(), Backend::Cuda, 1000, Summary::of(&[2.0])))
            .collect();
        let timed = work.timed(&rows);
        assert_eq!(timed.ms(), Some(14.0));
        assert_eq!(timed.shares(&rows).iter().map(|row| row.summary.median).sum::<f64>().round(), 100.0);
        let text = timed.to_string();
        // 8 MB in 2 ms.
        assert!(text.contains("14.3 %") && text.contains("4.00") && text.contains("measured on"), "{text}");
        assert!(text.contains("S = −∞ where hidden"), "{text}");
    }
}
