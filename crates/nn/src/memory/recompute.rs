//! Checkpointing: keep the input of a few stretches of the network, and compute the rest anew when the backward pass needs it.

use super::layer::Layer;
use super::model::{Batch, Gradients, Model, number, take};
use gpulab::error::{Error, Result};
use candle_core::{Tensor, Var};

/// Neighbouring layers, and which of the model's parameters are theirs.
struct Stretch<'a> {
    layers: &'a [Layer],
    parameters: std::ops::Range<usize>,
}

impl Stretch<'_> {
    fn run(&self, all: &[Tensor], x: &Tensor) -> Result<Tensor> {
        let mut left = &all[self.parameters.clone()];
        self.layers.iter().try_fold(x.clone(), |x, layer| layer.run(&mut left, &x))
    }
}

impl Model {
    /// The same gradients as [`Model::gradients`], with only the inputs of stretches of `every` layers kept. Each stretch
    /// runs once more on the way back, so it costs a second forward pass.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `every` is 0; what candle reports.
    pub fn gradients_checkpointed(&self, batch: &Batch, every: usize) -> Result<Gradients> {
        if every == 0 {
            return Err(Error::Invalid {
                what: "a stretch of 0 layers between two checkpoints".to_string(),
                fix: "give how many layers lie between two of them: 1 or more".to_string(),
            });
        }
        let stretches = self.stretches(every);
        let (last, before) = stretches.split_last().ok_or_else(|| Error::Invalid {
            what: "a network without layers".to_string(),
            fix: "give it a layer".to_string(),
        })?;

        self.number_past(batch)?;
        // Forward. Tensors that are cut off from the variables keep nothing but themselves.
        let fixed: Vec<Tensor> = self.parameters.iter().map(Var::as_detached_tensor).collect();
        let mut inputs = vec![batch.x.detach()];
        for stretch in before {
            inputs.push(stretch.run(&fixed, inputs.last().expect("one at least"))?);
        }

        // Backward: each stretch once more, now with everything kept, and dropped before the next one.
        let tracked: Vec<Tensor> = self.parameters.iter().map(|var| var.as_tensor().clone()).collect();
        let input = Var::from_tensor(&inputs.pop().expect("one for each"))?;
        let loss = self.goal(&last.run(&tracked, input.as_tensor())?, batch)?;
        let mut store = loss.backward()?;
        let value = number(&loss)?;
        drop(loss);
        let mut upstream = store.remove(input.as_tensor()).map(|gradient| gradient.detach());
        let mut gradients: Vec<Vec<Tensor>> = vec![take(&self.parameters[last.parameters.clone()], &mut store)?];
        drop((store, input));
        for stretch in before.iter().rev() {
            let input = Var::from_tensor(&inputs.pop().expect("one for each"))?;
            let out = stretch.run(&tracked, input.as_tensor())?;
            let from_above = upstream.take().expect("each stretch uses its input");
            // The gradient of Σ out · g by `out` is g: so the backward pass begins with what came from above.
            let mut store = (out * from_above)?.sum_all()?.backward()?;
            upstream = store.remove(input.as_tensor()).map(|gradient| gradient.detach());
            gradients.push(take(&self.parameters[stretch.parameters.clone()], &mut store)?);
        }
        let tensors = gradients.into_iter().rev().flatten().collect();
        Ok(Gradients { loss: value, tensors })
    }

    fn stretches(&self, every: usize) -> Vec<Stretch<'_>> {
        let mut first = 0;
        let stretch = |layers| {
            let count: usize = <[Layer]>::iter(layers).map(|layer| layer.parameters().len()).sum();
            let parameters = first..first + count;
            first += count;
            Stretch { layers, parameters }
        };
        self.network.layers.chunks(every).map(stretch).collect()
    }
}
