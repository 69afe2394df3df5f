//! Ranges, steps and errors as a table.

use super::Quantised;
use super::errors::ValueError;
use std::fmt::Write;

impl Quantised {
    /// A line a value (range, step, the integer that stands for 0, the error as a share of the value), then a line a weight.
    pub fn table(&self, errors: &[ValueError]) -> String {
        let mut text = format!("{:<8} {:>9} {:>9} {:>9} {:>5} {:>8}\n", "value", "from", "to", "step", "zero", "error");
        let share = |name: &str| {
            let own = errors.iter().find(|error| error.name == name);
            own.map_or_else(String::new, |error| format!("{:.2} %", 100.0 * error.share()))
        };
        for ((name, range), (_, step)) in self.ranges.iter().zip(&self.steps) {
            let (low, high, scale, zero) = (range.low, range.high, step.scale, step.zero);
            let _ = writeln!(text, "{name:<8} {low:>9.4} {high:>9.4} {scale:>9.6} {zero:>5} {:>8}", share(name));
        }
        let _ = writeln!(text, "{:<8} {:>44}\n", "output", share("output"));
        let _ = writeln!(text, "{:<8} {:>9} {:>12} {:>12}", "weight", "steps", "finest", "widest");
        for (at, steps) in self.weights.iter().enumerate() {
            let scales = || steps.iter().map(|step| step.scale);
            let (finest, widest) = (scales().fold(f32::MAX, f32::min), scales().fold(0.0, f32::max));
            let _ = writeln!(text, "{:<8} {:>9} {finest:>12.6} {widest:>12.6}", self.layer(at), steps.len());
        }
        text
    }
}
