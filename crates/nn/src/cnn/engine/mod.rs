//! The CNN's training step on the course's own kernels (`kernels/cnn/`): the images lie on the GPU as bytes, a step is
//! seven launches or one graph, and nothing comes back to the host before it is asked for.
//!
//! The same kernels run on an NVIDIA GPU from Ampere on and in the simulator.

mod bytes;
mod collect;
mod images;
mod kernels;
mod launches;
mod on_gpu;
#[cfg(test)]
mod reference;
mod settings;
#[cfg(test)]
pub(super) mod tests;

pub(super) use on_gpu::OnGpu;
pub use settings::EngineSettings;

use super::{Checkpoint, Epoch, Parameters, State, order};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Buffer, Gpu, Graph};
use images::DeviceImages;
use kernels::Kernels;
use launches::Room;

/// Words of `state`, as `network.cuh` names them.
const SEEN: usize = 0;
const STEP: usize = 1;
const BAD: usize = 2;
const GOOD: usize = 3;
const SKIPPED: usize = 4;
const BATCHES: usize = 5;
const FIRST_BAD: usize = 6;
const WORDS: usize = 7;

/// A network that is trained on one GPU.
pub struct CnnEngine {
    gpu: Gpu,
    settings: EngineSettings,
    kernels: Kernels,
    images: DeviceImages,
    room: Room,
    /// A graph for each batch that came up: the full one, and the last of an epoch.
    graphs: Vec<(usize, Graph)>,
    state: State,
    /// Steps of this epoch that were queued since the history was last read.
    queued: usize,
    /// Images of this epoch that those and all before them take.
    seen: usize,
}

impl std::fmt::Debug for CnnEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CnnEngine({} images on {}, {:?})", self.images.count, self.gpu, self.settings)
    }
}

impl CnnEngine {
    /// Copies a network and the images that it is trained on to the GPU (784 pixels for each label), and compiles the
    /// kernels.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a batch of 0, one that is larger than the free memory (with the largest that fits), labels
    /// above 9, and a checkpoint that is past these images;
    /// [`Error::LengthMismatch`]; [`Error::OutOfMemory`]; [`Error::Unsupported`] on a GPU before Ampere or of another
    /// make; what [`Gpu::compile`] returns.
    pub fn new(
        gpu: &Gpu,
        checkpoint: &Checkpoint,
        pixels: &[u8],
        labels: &[u8],
        settings: EngineSettings,
    ) -> Result<CnnEngine> {
        check_generation(gpu.name(), gpu.compute_capability()?)?;
        CnnEngine::with(gpu, Kernels::compile(gpu, settings.precision)?, checkpoint, pixels, labels, settings)
    }

    fn with(
        gpu: &Gpu,
        kernels: Kernels,
        checkpoint: &Checkpoint,
        pixels: &[u8],
        labels: &[u8],
        settings: EngineSettings,
    ) -> Result<CnnEngine> {
        let images = DeviceImages::new(gpu, pixels, labels)?;
        if settings.batch == 0 || checkpoint.state.seen as usize > images.count {
            return Err(Error::Invalid {
                what: format!(
                    "a batch of {} images, after {} of {}",
                    settings.batch, checkpoint.state.seen, images.count
                ),
                fix: "give a batch of at least 1, and the images that the checkpoint was trained on".to_string(),
            });
        }
        // No step takes more images than there are, so no room is made for more.
        let settings = EngineSettings { batch: settings.batch.min(images.count), ..settings };
        bytes::check(gpu, &settings, images.count)?;
        let room = Room::new(gpu, checkpoint, &settings, images.count)?;
        let mut engine = CnnEngine {
            gpu: gpu.clone(),
            kernels,
            images,
            room,
            graphs: Vec::new(),
            queued: 0,
            seen: checkpoint.state.seen as usize,
            state: checkpoint.state.clone(),
            settings,
        };
        engine.room.pack(&engine.kernels)?;
        engine.images.set_order(&order(engine.state.seed, engine.state.epoch, engine.images.count))?;
        Ok(engine)
    }

    /// What it was made with.
    pub fn settings(&self) -> &EngineSettings {
        &self.settings
    }

    /// Where the training stands, as of the last [`CnnEngine::collect`].
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Images of this epoch that are still to come.
    pub fn left(&self) -> usize {
        self.images.count - self.seen
    }

    /// Queues at most that many steps of this epoch, and returns how many. It does not wait.
    ///
    /// # Errors
    /// [`Error::Driver`], also for earlier steps.
    pub fn steps(&mut self, most: usize) -> Result<usize> {
        let mut made = 0;
        while made < most && self.left() > 0 {
            let batch = self.settings.batch.min(self.left());
            self.queue(batch)?;
            self.seen += batch;
            self.queued += 1;
            made += 1;
        }
        Ok(made)
    }

    fn queue(&mut self, batch: usize) -> Result<()> {
        if !self.settings.graph || matches!(self.gpu, Gpu::Simulated(_)) {
            return self.room.step(&self.kernels, &self.images, batch);
        }
        if !self.graphs.iter().any(|(of, _)| *of == batch) {
            let graph = self.gpu.capture(|| self.room.step(&self.kernels, &self.images, batch))?;
            self.graphs.push((batch, graph));
        }
        let found = self.graphs.iter_mut().find(|(of, _)| *of == batch);
        found.map_or(Ok(()), |(_, graph)| graph.launch())
    }

    /// Ends an epoch: what came of it is noted, and the next one's order goes to the GPU.
    ///
    /// # Errors
    /// As [`CnnEngine::collect`].
    pub fn next_epoch(&mut self, epoch: Epoch) -> Result<()> {
        self.collect()?;
        self.state.next_epoch(epoch);
        self.seen = 0;
        self.room.rewind()?;
        self.images.set_order(&order(self.state.seed, self.state.epoch, self.images.count))
    }

    /// Accuracy (0 to 1) and mean loss over other images.
    ///
    /// # Errors
    /// As [`CnnEngine::new`] for images, and [`Error::Driver`].
    pub fn test(&mut self, pixels: &[u8], labels: &[u8]) -> Result<(f32, f32)> {
        self.test_on(&DeviceImages::new(&self.gpu, pixels, labels)?)
    }

    fn test_on(&mut self, images: &DeviceImages) -> Result<(f32, f32)> {
        self.room.test(&self.kernels, images, self.settings.batch)
    }

    /// Everything that a training run needs to go on, as of the last step that was queued.
    ///
    /// # Errors
    /// As [`CnnEngine::collect`].
    pub fn checkpoint(&mut self) -> Result<Checkpoint> {
        self.collect()?;
        let [parameters, m, v] = [&self.room.w, &self.room.m, &self.room.v].map(from_device);
        Ok(Checkpoint { parameters: parameters?, m: m?, v: v?, state: self.state.clone() })
    }

    /// The gradients of the last step: sums as the backward pass left them (with fp16 multiplied by the loss scale).
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn gradients(&self) -> Result<Parameters> {
        from_device(&self.room.gradient)
    }
}

/// The kernels need what came with Ampere: copies past registers, and tensor cores that take TF32 and bf16.
pub(super) fn check_generation(name: &str, capability: (u32, u32)) -> Result<()> {
    let needs = gpulab_kernels::ladder::operator("cnn/features")?.needs;
    if capability >= needs {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: format!(
            "the course's kernels for this network need compute capability {}.{} (Ampere, 2020), and {name} has {}.{}",
            needs.0, needs.1, capability.0, capability.1
        ),
        fix: "use candle's layers (--kernels candle): `make setup` builds candle for the GPU where it finds CUDA's nvcc; \
              or use the CPU"
            .to_string(),
    })
}

/// All parameters one after the other, as the kernels have them.
fn flat(parameters: &Parameters) -> Vec<f32> {
    parameters.arrays.concat()
}

fn from_device(all: &Buffer<f32>) -> Result<Parameters> {
    let all = all.to_host()?;
    let mut rest = all.as_slice();
    Ok(Parameters {
        arrays: std::array::from_fn(|at| {
            let (own, others) = rest.split_at(Parameters::len_of(at));
            rest = others;
            own.to_vec()
        }),
    })
}
