//! One value's numbers in 8 bits.

/// Between which two numbers a value lies. 0 always is among them: pads and ReLUs need it exactly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// The smallest, at most 0.
    pub low: f32,
    /// The largest, at least 0.
    pub high: f32,
}

/// Which integers stand for activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activations {
    /// 0 to 255 with a zero point: all of them stand for numbers of the range. CPUs multiply these by signed weights.
    U8,
    /// −127 to 127, and 0 is 0: behind a ReLU half of them are of no use. TensorRT takes these alone.
    I8,
}

/// How many steps a weight has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PerWeight {
    /// One for each output channel.
    Channel,
    /// One for all of it.
    Tensor,
}

/// Integers for numbers: `number ≈ scale · (integer − zero)`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Step {
    /// From one integer to the next.
    pub scale: f32,
    /// The integer that stands for 0.
    pub zero: i32,
    /// The smallest integer.
    pub least: i32,
    /// The largest integer.
    pub most: i32,
}

impl Range {
    /// The range of these numbers, with 0; NaN is left out.
    pub fn of(numbers: &[f32]) -> Range {
        let range = Range { low: 0.0, high: 0.0 };
        numbers.iter().fold(range, |range, &x| Range { low: range.low.min(x), high: range.high.max(x) })
    }

    /// As [`Range::of`], but at each end a share of the numbers may lie outside: with 0.001 one of a thousand.
    pub fn without(numbers: &mut [f32], share: f64) -> Range {
        let out = (share.clamp(0.0, 0.5) * numbers.len() as f64) as usize;
        if out == 0 {
            return Range::of(numbers);
        }
        let last = numbers.len() - 1;
        let low = *numbers.select_nth_unstable_by(out, f32::total_cmp).1;
        let high = *numbers.select_nth_unstable_by(last - out, f32::total_cmp).1;
        Range { low: low.min(0.0), high: high.max(0.0) }
    }

    /// The smallest range that holds both.
    pub fn with(self, other: Range) -> Range {
        Range { low: self.low.min(other.low), high: self.high.max(other.high) }
    }
}

impl Step {
    /// For an activation of that range.
    pub fn of(range: Range, kind: Activations) -> Step {
        match kind {
            Activations::I8 => Step::symmetric(range),
            Activations::U8 => {
                let scale = usable((range.high - range.low) / 255.0);
                let zero = (-range.low / scale).round_ties_even() as i32;
                Step { scale, zero: zero.clamp(0, 255), least: 0, most: 255 }
            }
        }
    }

    /// For a weight, or a symmetric activation: 0 is 0, and the number farthest from it is ±127.
    pub fn symmetric(range: Range) -> Step {
        Step { scale: usable(range.high.max(-range.low) / 127.0), zero: 0, least: -128, most: 127 }
    }

    /// The integer nearest to a number; what lies outside becomes the last one.
    pub fn integer(&self, number: f32) -> i32 {
        // As ONNX rounds: halves to the even one.
        let near = (number / self.scale).round_ties_even();
        // Through f64: the sum must not overflow before it is clamped.
        (f64::from(near) + f64::from(self.zero)).clamp(f64::from(self.least), f64::from(self.most)) as i32
    }

    /// The number that an integer stands for.
    pub fn number(&self, integer: i32) -> f32 {
        self.scale * (integer - self.zero) as f32
    }

    /// What is left of a number.
    pub fn rounded(&self, number: f32) -> f32 {
        self.number(self.integer(number))
    }
}

/// A value that is 0 throughout has any step.
fn usable(scale: f32) -> f32 {
    if scale > 0.0 && scale.is_finite() { scale } else { 1.0 }
}
