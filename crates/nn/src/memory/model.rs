//! A network with parameters on a device: its loss, and its gradients at once or in pieces.

use super::network::{Layer, Loss, Network};
use candle_core::backprop::GradStore;
use candle_core::{DType, Device, Tensor, Var};
use gpulab::cpu::random_f32;
use gpulab::error::{Error, Result};

/// A [`Network`] with parameters, on candle.
#[derive(Debug)]
pub struct Model {
    pub(super) network: Network,
    pub(super) parameters: Vec<Var>,
    device: Device,
    dtype: DType,
}

/// Examples on the device. What they show is random: memory depends on shapes alone.
#[derive(Debug, Clone)]
pub struct Batch {
    pub(super) x: Tensor,
    /// Classes, where the loss has them.
    pub(super) y: Option<Tensor>,
}

/// The gradient of the mean loss, one tensor for each parameter, and that loss.
#[derive(Debug)]
pub struct Gradients {
    /// The mean loss.
    pub loss: f64,
    pub(super) tensors: Vec<Tensor>,
}

impl Model {
    /// Parameters uniform in ±1/√(inputs of one output), the same for the same seed; a layer norm begins with 1 and 0.
    ///
    /// # Errors
    /// What candle reports, such as a full memory.
    pub fn new(network: &Network, dtype: DType, device: &Device, seed: u64) -> Result<Model> {
        let shapes = network.layers.iter().flat_map(|layer| layer.parameters().into_iter().zip(layer.first_values()));
        let values = shapes.enumerate().map(|(at, (shape, (middle, bound)))| {
            let uniform = random_f32(shape.iter().product(), seed + at as u64);
            let values: Vec<f32> = uniform.into_iter().map(|x| middle + bound * x).collect();
            Ok(Var::from_tensor(&Tensor::from_vec(values, shape, device)?.to_dtype(dtype)?)?)
        });
        let parameters = values.collect::<Result<Vec<Var>>>()?;
        Ok(Model { network: network.clone(), parameters, device: device.clone(), dtype })
    }

    /// The parameters, layer by layer in the order of [`Layer::parameters`](super::Layer::parameters).
    pub fn vars(&self) -> &[Var] {
        &self.parameters
    }

    /// That many examples with random numbers, and random classes where the loss has them.
    ///
    /// # Errors
    /// What candle reports, such as a full memory.
    pub fn batch(&self, examples: usize, seed: u64) -> Result<Batch> {
        let shape = self.network.shape(examples);
        let values = random_f32(shape.iter().product(), seed);
        let x = Tensor::from_vec(values, shape, &self.device)?.to_dtype(self.dtype)?;
        let (x, y) = match self.network.loss {
            // In a whole network an embedding comes before, which is trained: so this is tracked like a variable.
            Loss::MeanSquare => (Var::from_tensor(&x)?.into_inner(), None),
            Loss::CrossEntropy => {
                let classes = random_f32(examples, seed + 1).into_iter().map(|x| (x.abs() * 10.0) as u32 % 10);
                (x, Some(Tensor::from_vec(classes.collect::<Vec<u32>>(), examples, &self.device)?))
            }
        };
        Ok(Batch { x, y })
    }

    /// The mean loss of those examples, a scalar: [`candle_nn::loss::cross_entropy`], or the mean square of the outputs
    /// ([`Loss`]). As long as it lives, everything lives that the backward pass needs.
    ///
    /// # Errors
    /// What candle reports, such as a full memory.
    pub fn loss(&self, batch: &Batch) -> Result<Tensor> {
        self.reserve_ids(batch)?;
        let tracked: Vec<Tensor> = self.parameters.iter().map(|var| var.as_tensor().clone()).collect();
        let mut left = &tracked[..];
        let mut x = batch.x.clone();
        for layer in &self.network.layers {
            x = layer.run(&mut left, &x)?;
        }
        self.loss_of(&x, batch)
    }

    /// Parameters and examples may be another cell's ([`crate::reserve_tensor_ids`]).
    pub(super) fn reserve_ids(&self, batch: &Batch) -> Result<()> {
        let made = self.parameters.iter().map(Var::as_tensor).chain([&batch.x]).chain(&batch.y);
        crate::reserve_tensor_ids(made)
    }

    fn loss_of(&self, out: &Tensor, batch: &Batch) -> Result<Tensor> {
        Ok(match &batch.y {
            Some(classes) => candle_nn::loss::cross_entropy(out, classes)?,
            None => out.sqr()?.mean_all()?,
        })
    }

    /// The gradients of the mean loss: forward and backward, everything kept in between.
    ///
    /// # Errors
    /// What candle reports, such as a full memory.
    pub fn gradients(&self, batch: &Batch) -> Result<Gradients> {
        let loss = self.loss(batch)?;
        let mut store = loss.backward()?;
        self.collect(number(&loss)?, &mut store)
    }

    /// Takes the parameters' gradients out of candle's store, which holds those of constants too.
    pub(super) fn collect(&self, loss: f64, store: &mut GradStore) -> Result<Gradients> {
        Ok(Gradients { loss, tensors: take(&self.parameters, store)? })
    }

    /// Gradients of nothing: zeros, to add to.
    ///
    /// # Errors
    /// What candle reports, such as a full memory.
    pub fn zero_gradients(&self) -> Result<Gradients> {
        let zeros = self.parameters.iter().map(|var| Ok(var.zeros_like()?));
        Ok(Gradients { loss: 0.0, tensors: zeros.collect::<Result<_>>()? })
    }
}

impl Batch {
    /// The examples, `[examples, …]` as [`Network::shape`] gives it, and their classes, `[examples]` in u32, where the loss
    /// has them.
    pub fn tensors(&self) -> (&Tensor, Option<&Tensor>) {
        (&self.x, self.y.as_ref())
    }

    /// How many examples.
    pub fn examples(&self) -> usize {
        self.x.dims()[0]
    }

    /// The same examples in that many pieces of equal size; the pieces share this batch's memory.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when the examples cannot be shared equally: a mean of means would then not be the mean.
    pub fn micro_batches(&self, pieces: usize) -> Result<Vec<Batch>> {
        let examples = self.examples();
        if pieces == 0 || !examples.is_multiple_of(pieces) {
            return Err(Error::invalid(
                format!("{examples} examples cannot be cut into {pieces} pieces of equal size"),
                "take a number of pieces that divides the batch",
            ));
        }
        let each = examples / pieces;
        let piece = |at: usize| {
            let cut = |whole: &Tensor| whole.narrow(0, at * each, each);
            Ok(Batch { x: cut(&self.x)?, y: self.y.as_ref().map(cut).transpose()? })
        };
        (0..pieces).map(piece).collect()
    }
}

impl Gradients {
    /// One for each of [`Model::vars`], in its shape.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// Adds `weight` times the other ones, loss included.
    ///
    /// # Errors
    /// What candle reports, as for gradients of another network.
    pub fn add(&mut self, other: &Gradients, weight: f64) -> Result<()> {
        for (sum, more) in self.tensors.iter_mut().zip(&other.tensors) {
            *sum = (&*sum + (more * weight)?)?;
        }
        self.loss += weight * other.loss;
        Ok(())
    }

    /// The largest difference of any two numbers, as a part of the largest number.
    ///
    /// # Errors
    /// What candle reports, as for gradients of another network.
    pub fn difference(&self, other: &Gradients) -> Result<f64> {
        let (mut apart, mut largest) = (0f64, 0f64);
        for (a, b) in self.tensors.iter().zip(&other.tensors) {
            apart = apart.max(number(&(a - b)?.abs()?.max_all()?)?);
            largest = largest.max(number(&a.abs()?.max_all()?)?);
        }
        Ok(apart / largest)
    }

    /// Bytes that they hold.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| (tensor.elem_count() * tensor.dtype().size_in_bytes()) as u64).sum()
    }

    /// As candle's optimisers want them.
    pub(super) fn store(&self, model: &Model) -> GradStore {
        let mut store = GradStore::default();
        for (var, tensor) in model.parameters.iter().zip(&self.tensors) {
            store.insert(var.as_tensor(), tensor.clone());
        }
        store
    }
}

/// The gradients of those parameters, cut off from what they were made of: candle's own hold the activations that they
/// were computed from, long after the loss is dropped.
pub(super) fn take(parameters: &[Var], store: &mut GradStore) -> Result<Vec<Tensor>> {
    let take = |var: &Var| match store.remove(var.as_tensor()) {
        Some(gradient) => Ok(gradient.detach()),
        None => Ok(var.zeros_like()?),
    };
    parameters.iter().map(take).collect()
}

pub(super) fn number(tensor: &Tensor) -> Result<f64> {
    Ok(tensor.to_dtype(DType::F32)?.to_scalar::<f32>()?.into())
}

// ----------------------------------------------------------------------
// Checkpointing: keep the input of a few segments of the network, and compute the rest anew when the backward pass needs it.

/// Neighbouring layers, and which of the model's parameters are theirs.
struct Segment<'a> {
    layers: &'a [Layer],
    parameters: std::ops::Range<usize>,
}

impl Segment<'_> {
    fn run(&self, all: &[Tensor], x: &Tensor) -> Result<Tensor> {
        let mut left = &all[self.parameters.clone()];
        self.layers.iter().try_fold(x.clone(), |x, layer| layer.run(&mut left, &x))
    }
}

impl Model {
    /// The same gradients as [`Model::gradients`], with only the inputs of segments of `every` layers kept. Each segment
    /// runs once more in the backward pass, so it costs a second forward pass.
    ///
    /// # Errors
    /// [`gpulab::Error::Invalid`] when `every` is 0; what candle reports.
    pub fn gradients_checkpointed(&self, batch: &Batch, every: usize) -> Result<Gradients> {
        if every == 0 {
            return Err(Error::invalid(
                "a segment of 0 layers between two checkpoints",
                "give how many layers lie between two of them: 1 or more",
            ));
        }
        let segments = self.segments(every);
        let (last, before) =
            segments.split_last().ok_or_else(|| Error::invalid("a network without layers", "give it a layer"))?;

        self.reserve_ids(batch)?;
        // Forward. Tensors that are cut off from the variables keep nothing but themselves.
        let fixed: Vec<Tensor> = self.parameters.iter().map(Var::as_detached_tensor).collect();
        let mut inputs = vec![batch.x.detach()];
        for segment in before {
            inputs.push(segment.run(&fixed, inputs.last().expect("one at least"))?);
        }

        // Backward: each segment once more, now with everything kept, and dropped before the next one.
        let tracked: Vec<Tensor> = self.parameters.iter().map(|var| var.as_tensor().clone()).collect();
        let input = Var::from_tensor(&inputs.pop().expect("one for each"))?;
        let loss = self.loss_of(&last.run(&tracked, input.as_tensor())?, batch)?;
        let mut store = loss.backward()?;
        let value = number(&loss)?;
        drop(loss);
        let mut upstream = store.remove(input.as_tensor()).map(|gradient| gradient.detach());
        let mut gradients: Vec<Vec<Tensor>> = vec![take(&self.parameters[last.parameters.clone()], &mut store)?];
        drop((store, input));
        for segment in before.iter().rev() {
            let input = Var::from_tensor(&inputs.pop().expect("one for each"))?;
            let out = segment.run(&tracked, input.as_tensor())?;
            let from_above = upstream.take().expect("each segment uses its input");
            // The gradient of Σ out · g by `out` is g: so the backward pass begins with what came from above.
            let mut store = (out * from_above)?.sum_all()?.backward()?;
            upstream = store.remove(input.as_tensor()).map(|gradient| gradient.detach());
            gradients.push(take(&self.parameters[segment.parameters.clone()], &mut store)?);
        }
        let tensors = gradients.into_iter().rev().flatten().collect();
        Ok(Gradients { loss: value, tensors })
    }

    fn segments(&self, every: usize) -> Vec<Segment<'_>> {
        let mut first = 0;
        let segment = |layers| {
            let count: usize = <[Layer]>::iter(layers).map(|layer| layer.parameters().len()).sum();
            let parameters = first..first + count;
            first += count;
            Segment { layers, parameters }
        };
        self.network.layers.chunks(every).map(segment).collect()
    }
}
