//! A clock inside one real step of training: when each operator has ended, forward and backward.
//!
//! Forward, a stamp is a line between two calls. Backward, candle walks the graph by itself, so the stamps are operators in
//! that graph, backward hooks: a [`StepClock::hook`] on a parameter does nothing but copy it, and its backward pass, which candle calls right
//! after that of the layer which used the parameter, stamps the time. Parameters of convolutions and biases are small, so
//! that the copies cost next to nothing; a hook on an activation would be a pass over memory of its own.
//!
//! On a CPU a stamp is the host's time. On an NVIDIA GPU it is an event in candle's stream: the GPU notes the time when it
//! gets there, and nobody waits. A clock that waits at each stamp measures its own waiting, too ([`StepClock::waiting`]).

use super::{AdamW, Cnn};
use candle_core::backend::BackendStorage;
use candle_core::op::{Relu, UnaryOpT};
use candle_core::{CpuStorage, CudaStorage, CustomOp1, CustomOp2, Device, Layout, MetalStorage, Shape, Tensor};
use gpulab::error::Result;
use gpulab::gpu::{Event, Stream};
use gpulab::measurement::Span;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// When each operator of one step ended. Clones share their stamps.
#[derive(Debug, Clone)]
pub struct StepClock {
    begin: Arc<Begin>,
    stamps: Arc<Mutex<Vec<(String, Stamp)>>>,
}

#[derive(Debug)]
enum Begin {
    /// By the host's clock, once this device has nothing more to do.
    Host(Device, Instant),
    /// By the GPU's clock, with this event before all others of the stream.
    Events(Stream, Event),
}

#[derive(Debug)]
enum Stamp {
    Ms(f64),
    Event(Event),
}

impl StepClock {
    /// A clock that starts now, once the device has nothing more to do. On an NVIDIA GPU its stamps are events.
    ///
    /// # Errors
    /// What the device reports of earlier work.
    pub fn start(device: &Device) -> Result<StepClock> {
        if !device.is_cuda() {
            return StepClock::waiting(device);
        }
        device.synchronize()?;
        let stream = crate::stream_of(device)?;
        let begin = stream.event()?;
        Ok(StepClock { begin: Arc::new(Begin::Events(stream, begin)), stamps: Arc::default() })
    }

    /// A clock by the host's time, which waits for the device at each stamp: what an operator costs when nothing is queued
    /// behind it.
    ///
    /// # Errors
    /// What the device reports of earlier work.
    pub fn waiting(device: &Device) -> Result<StepClock> {
        device.synchronize()?;
        Ok(StepClock { begin: Arc::new(Begin::Host(device.clone(), Instant::now())), stamps: Arc::default() })
    }

    /// Notes that `label` ended here.
    ///
    /// # Errors
    /// What the device reports.
    pub fn stamp(&self, label: &str) -> candle_core::Result<()> {
        let stamp = match &*self.begin {
            Begin::Host(device, start) => {
                device.synchronize()?;
                Stamp::Ms(1e3 * start.elapsed().as_secs_f64())
            }
            Begin::Events(stream, _) => Stamp::Event(stream.event().map_err(crate::buffers::in_candle)?),
        };
        self.stamps.lock().expect("no holder panics").push((label.to_string(), stamp));
        Ok(())
    }

    /// The same numbers; when the backward pass gets here, everything above has ended, and `label` is stamped.
    ///
    /// # Errors
    /// candle's error when the copy fails.
    pub fn hook(&self, label: &str, tensor: &Tensor) -> candle_core::Result<Tensor> {
        tensor.contiguous()?.apply_op1(Hook { clock: self.clone(), label: label.to_string() })
    }

    /// candle's ReLU with a border before and after its backward pass: `above` is stamped when its gradient arrives (`""`:
    /// nothing is), `label` when it has been handed on.
    ///
    /// # Errors
    /// candle's error.
    pub fn relu(&self, above: &str, label: &str, x: &Tensor) -> candle_core::Result<Tensor> {
        // Beside the activations goes one number, which is tracked as a parameter is: candle goes to its hook once ReLU's
        // own gradient has been added up.
        let one = candle_core::Var::zeros(1, x.dtype(), x.device())?;
        let beside = self.hook(label, &one)?;
        x.contiguous()?.apply_op2(&beside, TimedRelu { clock: self.clone(), above: above.to_string() })
    }

    /// What ended when, as spans from border to border. Waits for the last one.
    ///
    /// # Errors
    /// What the device reports.
    pub fn spans(&self, lane: &str) -> Result<Vec<Span>> {
        let stamps = self.stamps.lock().expect("no holder panics");
        let mut start = 0.0;
        let mut spans = Vec::with_capacity(stamps.len());
        for (label, stamp) in stamps.iter() {
            let end = match (stamp, &*self.begin) {
                (Stamp::Ms(ms), _) => *ms,
                (Stamp::Event(event), Begin::Events(_, begin)) => event.ms_since(begin)?,
                (Stamp::Event(_), Begin::Host(..)) => unreachable!("a clock by the host's time makes no events"),
            };
            spans.push(Span::new(lane, label, start, end));
            start = end;
        }
        Ok(spans)
    }
}

struct Hook {
    clock: StepClock,
    label: String,
}

impl CustomOp1 for Hook {
    fn name(&self) -> &'static str {
        "backward hook"
    }

    fn cpu_fwd(&self, x: &CpuStorage, at: &Layout) -> candle_core::Result<(CpuStorage, Shape)> {
        same(x, at)
    }

    fn cuda_fwd(&self, x: &CudaStorage, at: &Layout) -> candle_core::Result<(CudaStorage, Shape)> {
        same(x, at)
    }

    fn metal_fwd(&self, x: &MetalStorage, at: &Layout) -> candle_core::Result<(MetalStorage, Shape)> {
        same(x, at)
    }

    fn bwd(&self, _: &Tensor, _: &Tensor, gradient: &Tensor) -> candle_core::Result<Option<Tensor>> {
        self.clock.stamp(&self.label)?;
        Ok(Some(gradient.clone()))
    }
}

/// A copy. `affine` takes only the numbers that the layout names, which may be part of a larger tensor.
fn same<S: BackendStorage>(x: &S, at: &Layout) -> candle_core::Result<(S, Shape)> {
    Ok((x.affine(at, 1.0, 0.0)?, at.shape().clone()))
}

struct TimedRelu {
    clock: StepClock,
    above: String,
}

impl CustomOp2 for TimedRelu {
    fn name(&self) -> &'static str {
        "ReLU"
    }

    fn cpu_fwd(
        &self,
        x: &CpuStorage,
        at: &Layout,
        _: &CpuStorage,
        _: &Layout,
    ) -> candle_core::Result<(CpuStorage, Shape)> {
        relu(x, at)
    }

    fn cuda_fwd(
        &self,
        x: &CudaStorage,
        at: &Layout,
        _: &CudaStorage,
        _: &Layout,
    ) -> candle_core::Result<(CudaStorage, Shape)> {
        relu(x, at)
    }

    fn metal_fwd(
        &self,
        x: &MetalStorage,
        at: &Layout,
        _: &MetalStorage,
        _: &Layout,
    ) -> candle_core::Result<(MetalStorage, Shape)> {
        relu(x, at)
    }

    /// As candle's own backward pass computes it (`backprop.rs`), so that the time is that of candle's.
    fn bwd(
        &self,
        x: &Tensor,
        beside: &Tensor,
        _: &Tensor,
        gradient: &Tensor,
    ) -> candle_core::Result<(Option<Tensor>, Option<Tensor>)> {
        if !self.above.is_empty() {
            self.clock.stamp(&self.above)?;
        }
        let above_zero = x.ge(&x.zeros_like()?)?.to_dtype(x.dtype())?;
        Ok((Some((gradient * above_zero)?), Some(beside.zeros_like()?)))
    }
}

fn relu<S: BackendStorage>(x: &S, at: &Layout) -> candle_core::Result<(S, Shape)> {
    Ok((x.unary_impl::<Relu>(at)?, at.shape().clone()))
}

/// Names that candle needs to find the kernel of ReLU; here so that a rename shows when this is compiled.
const _: &str = <Relu as UnaryOpT>::NAME;

impl Cnn {
    /// One real step with a clock inside: forward, loss, backward, AdamW's update, from border to border. The update
    /// changes a copy of this network, and nothing that is kept.
    ///
    /// # Errors
    /// candle's error when `x` or the digits have another shape.
    pub fn step_by_operator(&self, x: &Tensor, digits: &Tensor, lane: &str) -> Result<Vec<Span>> {
        let cnn = Cnn::new(&self.parameters()?, self.device(), self.kernels(), self.precision())?;
        let mut adamw = AdamW::new(&cnn)?;
        cnn.reserve_tensor_ids([x, digits])?;
        let (x, digits) = (crate::with_new_id(x)?, crate::with_new_id(digits)?);
        let clock = StepClock::start(cnn.device())?;
        let mut parameters = Vec::new();
        for (at, var) in cnn.vars.iter().enumerate() {
            let label = cnn.ends_backward(at).map(|name| format!("{name}, backward"));
            parameters.push(match label {
                Some(label) => clock.hook(&label, var.as_tensor())?,
                None => var.as_tensor().clone(),
            });
        }
        let mut out = x;
        for (name, layer) in cnn.layers() {
            out = layer(&parameters, &out)?;
            clock.stamp(name)?;
        }
        let loss = candle_nn::loss::cross_entropy(&clock.hook("loss", &out)?, &digits)?;
        let gradients = loss.backward()?;
        adamw.step(&cnn, &gradients, 1.0)?;
        clock.stamp("AdamW")?;
        clock.spans(lane)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cnn::{Kernels, Parameters, Precision, batch};
    use crate::data::Images;
    use candle_core::Var;

    #[test]
    fn hooks_are_called_in_the_order_of_the_backward_pass() {
        let device = Device::Cpu;
        let (w, v) = (Var::new(&[[2f32]], &device).unwrap(), Var::new(&[[-3f32]], &device).unwrap());
        let x = Tensor::new(&[[1f32], [-1.0]], &device).unwrap();
        let clock = StepClock::start(&device).unwrap();
        let hidden = x.matmul(&clock.hook("w", &w).unwrap()).unwrap();
        let hidden = clock.relu("v", "ReLU", &hidden).unwrap();
        let out = hidden.matmul(&clock.hook("v's own", &v).unwrap()).unwrap().sum_all().unwrap();
        let gradients = out.backward().unwrap();
        let labels: Vec<String> = clock.spans("").unwrap().into_iter().map(|span| span.label).collect();
        assert_eq!(labels, ["v's own", "v", "ReLU", "w"]);
        // And they change no gradient: out = -3 · relu(2 x), which is 2 for x = 1 and 0 for x = -1.
        let of = |var: &Var| gradients.get(var).unwrap().flatten_all().unwrap().to_vec1::<f32>().unwrap();
        assert_eq!((of(&w), of(&v)), (vec![-3.0], vec![2.0]));
    }

    #[test]
    fn spans_follow_each_other_without_a_gap_and_nothing_is_changed() {
        let (x, digits) = batch(&Images::generated(1, 2, 1).train, &[0, 1], &Device::Cpu).unwrap();
        let cnn = Cnn::new(&Parameters::random(1), &Device::Cpu, Kernels::Own, Precision::F32).unwrap();
        let spans = cnn.step_by_operator(&x, &digits, "here").unwrap();
        let labels: Vec<&str> = spans.iter().map(|span| span.label.as_str()).collect();
        let expected = [
            "convolutions",
            "linear 1",
            "linear 2",
            "loss",
            "linear 2, backward",
            "linear 1, backward",
            "convolutions, backward",
            "AdamW",
        ];
        assert_eq!(labels, expected);
        assert!(spans.windows(2).all(|pair| pair[0].end_ms == pair[1].start_ms));
        assert_eq!(cnn.parameters().unwrap(), Parameters::random(1));
    }
}
