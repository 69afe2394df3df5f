//! The kernels on arrays of the GPU, and their time by CUDA's events.

use crate::kernels::tiles;
use crate::settings::{Setting, Topic};
use cutile::cuda_core::Stream;
use cutile::half::bf16;
use cutile::prelude::*;

/// A sample lasts this long, or one call that is longer; the calls queued before it, which are not counted, that long.
const SAMPLE_MS: f64 = 1.0;
const WARM_UP_MS: f64 = 10.0;
/// bf16's NaN: what a kernel leaves out is wrong.
const POISON: bf16 = bf16::NAN;

/// One set of arrays: inputs, and the result, which each call gets and gives back.
pub struct Arrays {
    size: [usize; 3],
    inputs: Vec<Arc<Tensor<bf16>>>,
    result: Option<Tensor<bf16>>,
}

impl Arrays {
    pub fn new(topic: Topic, size: [usize; 3], inputs: Vec<Vec<bf16>>, stream: &Arc<Stream>) -> Result<Arrays, Error> {
        let [m, n, k] = size;
        let shapes = match topic {
            Topic::Softmax => vec![vec![m, n]; 2],
            Topic::Matmul => vec![vec![m, k], vec![k, n], vec![m, n]],
            Topic::Attention { .. } => vec![vec![m, n, k]; 4],
        };
        let inputs = inputs.into_iter().zip(&shapes).map(|(host, shape)| Ok(Arc::new(upload(host, shape, stream)?)));
        let inputs = inputs.collect::<Result<Vec<_>, Error>>()?;
        let result = poisoned(shapes.last().expect("a topic has arrays"), stream)?;
        Ok(Arrays { size, inputs, result: Some(result) })
    }

    /// Queues a call.
    pub fn launch(&mut self, setting: &Setting, stream: &Arc<Stream>) -> Result<(), Error> {
        let result = self.result.take().expect("each call gives it back");
        let shape: Vec<usize> = result.shape().iter().map(|&side| side as usize).collect();
        let called = self.called(setting, result, stream);
        // A call that is refused keeps what it got.
        let (result, outcome) = match called {
            Ok(result) => (result, Ok(())),
            Err(error) => (poisoned(&shape, stream)?, Err(error)),
        };
        self.result = Some(result);
        outcome
    }

    fn called(&self, setting: &Setting, result: Tensor<bf16>, stream: &Arc<Stream>) -> Result<Tensor<bf16>, Error> {
        let Arrays { size, inputs, .. } = self;
        let (generics, options) = (setting.generics(*size), setting.options());
        let [a, b, _] = setting.tile;
        let input = |at: usize| inputs[at].clone();
        // SAFETY: all calls go to one stream, in order, and whoever frees the arrays has waited for it.
        Ok(unsafe {
            match setting.topic {
                Topic::Softmax => {
                    let y = result.partition([a, size[1].next_power_of_two()]);
                    let call = tiles::softmax(y, input(0)).generics(generics).compile_options(options);
                    call.async_on(stream)?.0.unpartition()
                }
                Topic::Matmul => {
                    let count = (size[0].div_ceil(a) * size[1].div_ceil(b)) as u32;
                    let blocks = if setting.blocks == 0 { count } else { count.min(setting.blocks as u32) };
                    let c = result.partition([a, b]).map([8, 1], blocks);
                    let call = tiles::matmul(c, input(0), input(1)).generics(generics).compile_options(options);
                    call.async_on(stream)?.0.unpartition()
                }
                Topic::Attention { .. } => {
                    let blocks = (size[0] * size[1].div_ceil(a)) as u32;
                    let scale = std::f32::consts::LOG2_E / (size[2] as f32).sqrt();
                    let o = result.partition([1, a, size[2]]).map([1, 1, 1], blocks);
                    let call = tiles::attention(o, input(0), input(1), input(2), scale);
                    call.generics(generics).compile_options(options).async_on(stream)?.0.unpartition()
                }
            }
        })
    }

    /// The result of one call over an array of NaN.
    pub fn given(&mut self, setting: &Setting, stream: &Arc<Stream>) -> Result<Vec<bf16>, Error> {
        let shape: Vec<usize> = self.result.as_ref().expect("a result").shape().iter().map(|&x| x as usize).collect();
        self.result = Some(poisoned(&shape, stream)?);
        self.launch(setting, stream)?;
        stream.synchronize()?;
        Ok(self.result.as_ref().expect("a result").dup().to_host_vec().sync_on(stream)?)
    }
}

/// By a copy: `api::full` would be one more kernel to compile.
fn poisoned(shape: &[usize], stream: &Arc<Stream>) -> Result<Tensor<bf16>, Error> {
    upload(vec![POISON; shape.iter().product()], shape, stream)
}

fn upload(host: Vec<bf16>, shape: &[usize], stream: &Arc<Stream>) -> Result<Tensor<bf16>, Error> {
    Ok(api::copy_host_vec_to_device(&Arc::new(host)).reshape(shape).sync_on(stream)?)
}

/// One setting's calls on all sets of arrays, in turn.
pub struct Timed<'a> {
    stream: &'a Arc<Stream>,
    setting: Setting,
    turn: usize,
    repeats: usize,
    warm_ups: usize,
}

impl<'a> Timed<'a> {
    /// It begins with the first set of arrays, a call a sample.
    pub fn first(setting: Setting, stream: &'a Arc<Stream>) -> Timed<'a> {
        Timed { stream, setting, turn: 0, repeats: 1, warm_ups: 1 }
    }

    /// As many calls a sample as it wants.
    pub fn new(setting: Setting, sets: &mut [Arrays], stream: &'a Arc<Stream>) -> Result<Timed<'a>, Error> {
        let mut made = Timed::first(setting, stream);
        for _ in 0..3 {
            let ms = made.ms(sets, made.repeats)?;
            made.repeats = ((SAMPLE_MS / ms).round() as usize).max(1);
            made.warm_ups = ((WARM_UP_MS / ms).round() as usize).max(1);
        }
        Ok(made)
    }

    fn call(&mut self, sets: &mut [Arrays]) -> Result<(), Error> {
        let at = self.turn % sets.len();
        self.turn += 1;
        sets[at].launch(&self.setting, self.stream)
    }

    /// The ms of a call, the mean of so many.
    pub fn ms(&mut self, sets: &mut [Arrays], calls: usize) -> Result<f64, Error> {
        let context = self.stream.context();
        let (start, end) = (context.new_event()?, context.new_event()?);
        start.record(self.stream)?;
        for _ in 0..calls {
            self.call(sets)?;
        }
        end.record(self.stream)?;
        end.synchronize()?;
        Ok(f64::from(start.elapsed_time(&end)?) / calls as f64)
    }

    /// One sample. It begins behind queued calls, so that it holds no host time before the first kernel (`torch_peer.Job.sample`).
    pub fn sample(&mut self, sets: &mut [Arrays]) -> Result<f64, Error> {
        for _ in 0..self.warm_ups {
            self.call(sets)?;
        }
        self.ms(sets, self.repeats)
    }
}
