//! One step taken apart: how long each layer takes forward and backward, and the update.

use super::fast::ops::{Features, Linear};
use super::{AdamW, Cnn, Kernels};
use gpulab::error::Result;
use gpulab::measurement::Span;
use candle_core::{Tensor, Var};
use std::time::Instant;

type Layer = (&'static str, fn(&Cnn, &Tensor) -> candle_core::Result<Tensor>);

const CANDLE: [Layer; 8] = [
    ("conv1", |cnn, x| x.conv2d(&cnn.vars[0], 0, 1, 1, 1)?.broadcast_add(&cnn.vars[1].reshape((1, (), 1, 1))?)),
    ("ReLU 1", |_, x| x.relu()),
    ("conv2", |cnn, x| x.conv2d(&cnn.vars[2], 0, 1, 1, 1)?.broadcast_add(&cnn.vars[3].reshape((1, (), 1, 1))?)),
    ("ReLU 2", |_, x| x.relu()),
    ("max-pool", |_, x| {
        let (count, channels, high, wide) = x.dims4()?;
        x.reshape((count, channels, high / 2, 2, wide / 2, 2))?.max(5)?.max(3)?.flatten_from(1)
    }),
    ("linear 1", |cnn, x| x.matmul(&cnn.vars[4].t()?)?.broadcast_add(&cnn.vars[5])),
    ("ReLU 3", |_, x| x.relu()),
    ("linear 2", |cnn, x| x.matmul(&cnn.vars[6].t()?)?.broadcast_add(&cnn.vars[7])),
];

const OWN: [Layer; 3] = [
    ("convolutions", |cnn, x| {
        let pair = |at: usize| Tensor::cat(&[cnn.vars[at].flatten_all()?, cnn.vars[at + 1].as_tensor().clone()], 0);
        x.contiguous()?.apply_op3(&pair(0)?, &pair(2)?, Features::default())
    }),
    ("linear 1", |cnn, x| x.apply_op3(&cnn.vars[4], &cnn.vars[5], Linear { relu: true })),
    ("linear 2", |cnn, x| x.apply_op3(&cnn.vars[6], &cnn.vars[7], Linear { relu: false })),
];

impl Cnn {
    /// The layers of one step, one after the other: forward, backward in reverse, and AdamW's update, which changes
    /// nothing that is kept. Times are honest on the CPU, where a call returns when its work is done.
    ///
    /// Each layer's way back begins from the gradient of what it gave; handing that over costs a pass over it, which counts
    /// for the layer. The lane is `lane`.
    ///
    /// # Errors
    /// candle's error when `x` or the digits have another shape.
    pub fn step_by_layer(&self, x: &Tensor, digits: &Tensor, lane: &str) -> Result<Vec<Span>> {
        self.count_on_behind([x, digits])?;
        let digits = &crate::renumbered(digits)?;
        // Of its own: the update must not change this network.
        let cnn = Cnn::new(&self.parameters()?, self.device(), self.kernels(), self.precision())?;
        let mut adamw = AdamW::new(&cnn)?;
        let layers: &[Layer] = if cnn.kernels() == Kernels::Own { &OWN } else { &CANDLE };
        let (start, mut spans) = (Instant::now(), Vec::new());
        let now = || 1e3 * start.elapsed().as_secs_f64();
        let mut inputs = vec![Var::from_tensor(x)?];
        let mut outputs = Vec::new();
        for (name, layer) in layers {
            let begun = now();
            let output = layer(&cnn, inputs.last().expect("one more than layers so far"))?;
            spans.push(Span::new(lane, name, begun, now()));
            inputs.push(Var::from_tensor(&output)?);
            outputs.push(output);
        }
        let begun = now();
        let last = inputs.pop().expect("one for each layer, and one more");
        let loss = candle_nn::loss::cross_entropy(&last, digits)?;
        let mut gradients = loss.backward()?;
        spans.push(Span::new(lane, "loss", begun, now()));
        let mut gradient = gradients.remove(&last);
        let mut all = Vec::new();
        for (((name, _), input), output) in layers.iter().zip(&inputs).zip(&outputs).rev() {
            let begun = now();
            let handed = gradient.take().ok_or_else(|| candle_core::Error::Msg(format!("{name} got no gradient")))?;
            let mut found = (output * handed)?.sum_all()?.backward()?;
            spans.push(Span::new(lane, &format!("{name}, back"), begun, now()));
            gradient = found.remove(input);
            all.push(found);
        }
        // Where each layer's own graph has the gradients of its own parameters.
        let begun = now();
        for (at, var) in cnn.vars.iter().enumerate() {
            if let Some(found) = all.iter().find(|found| found.get(var).is_some()) {
                adamw.update(&cnn, at, found)?;
            }
        }
        spans.push(Span::new(lane, "AdamW", begun, now()));
        Ok(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Images;
    use crate::cnn::{Parameters, Precision, batch};
    use candle_core::Device;

    #[test]
    fn every_layer_shows_once_forward_and_once_backward() {
        let (x, digits) = batch(&Images::generated(1, 2, 1).train, &[0, 1], &Device::Cpu).unwrap();
        for (kernels, spans) in [(Kernels::Candle, 18), (Kernels::Own, 8)] {
            let cnn = Cnn::new(&Parameters::random(1), &Device::Cpu, kernels, Precision::F32).unwrap();
            let found = cnn.step_by_layer(&x, &digits, "here").unwrap();
            assert_eq!(found.len(), spans);
            assert!(found.windows(2).all(|pair| pair[0].end_ms <= pair[1].start_ms));
            assert!(found.iter().all(|span| span.lane == "here"));
            assert_eq!(
                (found[0].label.as_str(), found[spans - 1].label.as_str()),
                (CNN_FIRST[usize::from(spans == 8)], "AdamW")
            );
            assert_eq!(cnn.parameters().unwrap(), Parameters::random(1));
        }
    }

    const CNN_FIRST: [&str; 2] = ["conv1", "convolutions"];
}
