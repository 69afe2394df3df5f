//! One step taken apart: how long each layer takes forward and backward, and the update.

use super::{AdamW, Cnn};
use candle_core::{Tensor, Var};
use gpulab::error::Result;
use gpulab::measurement::Span;
use std::time::Instant;

impl Cnn {
    /// The layers of one step, one after the other: forward, backward in reverse, and AdamW's update, which changes
    /// nothing that is kept. Times are honest on the CPU, where a call returns when its work is done.
    ///
    /// Each layer's backward pass begins from the gradient of what it gave; handing that over costs a pass over it, which counts
    /// for the layer. The lane is `lane`.
    ///
    /// # Errors
    /// candle's error when `x` or the digits have another shape.
    pub fn step_by_layer(&self, x: &Tensor, digits: &Tensor, lane: &str) -> Result<Vec<Span>> {
        self.reserve_tensor_ids([x, digits])?;
        let digits = &crate::with_new_id(digits)?;
        // Of its own: the update must not change this network.
        let cnn = Cnn::new(&self.parameters()?, self.device(), self.kernels(), self.precision())?;
        let mut adamw = AdamW::new(&cnn)?;
        let (layers, parameters) =
            (cnn.layers(), cnn.vars.iter().map(|var| var.as_tensor().clone()).collect::<Vec<_>>());
        let (start, mut spans) = (Instant::now(), Vec::new());
        let now = || 1e3 * start.elapsed().as_secs_f64();
        let mut inputs = vec![Var::from_tensor(x)?];
        let mut outputs = Vec::new();
        for (name, layer) in layers {
            let begun = now();
            let output = layer(&parameters, inputs.last().expect("one more than layers so far"))?;
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
    use crate::cnn::{Kernels, Parameters, Precision, batch};
    use crate::data::Images;
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
