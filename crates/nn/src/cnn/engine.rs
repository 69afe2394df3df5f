//! The CNN's training step on the course's own kernels (`kernels/cnn/`): the images lie on the GPU as bytes, a step is
//! seven launches or one graph, and nothing comes back to the host before it is asked for.
//!
//! The same kernels run on an NVIDIA GPU from Ampere on and in the simulator.

use super::backend::{NotFinite, STEADY, TrainingBackend, too_large};
use super::{Checkpoint, Epoch, Parameters, Precision, TrainConfig, TrainingState, order};
use crate::data::Images;
use gpulab::error::{Error, Result, bytes, same_length};
use gpulab::gpu::{Buffer, Gpu, Graph, Kernel};
use gpulab::launch::LaunchConfig;
use gpulab_kernels::ladder::operator;

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
    workspace: Workspace,
    /// A graph for each batch that came up: the full one, and the last of an epoch.
    graphs: Vec<(usize, Graph)>,
    state: TrainingState,
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
            return Err(Error::invalid(
                format!("a batch of {} images, after {} of {}", settings.batch, checkpoint.state.seen, images.count),
                "give a batch of at least 1, and the images that the checkpoint was trained on",
            ));
        }
        // No step takes more images than there are, so memory for more is not taken.
        let settings = EngineSettings { batch: settings.batch.min(images.count), ..settings };
        check_memory(gpu, &settings, images.count)?;
        let workspace = Workspace::new(gpu, checkpoint, &settings, images.count)?;
        let mut engine = CnnEngine {
            gpu: gpu.clone(),
            kernels,
            images,
            workspace,
            graphs: Vec::new(),
            queued: 0,
            seen: checkpoint.state.seen as usize,
            state: checkpoint.state.clone(),
            settings,
        };
        engine.workspace.pack(&engine.kernels)?;
        engine.images.set_order(&order(engine.state.seed, engine.state.epoch, engine.images.count))?;
        Ok(engine)
    }

    /// Where the training stands, as of the last [`CnnEngine::collect`].
    pub fn state(&self) -> &TrainingState {
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
            return self.workspace.step(&self.kernels, &self.images, batch);
        }
        if !self.graphs.iter().any(|(of, _)| *of == batch) {
            let graph = self.gpu.capture(|| self.workspace.step(&self.kernels, &self.images, batch))?;
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
        self.workspace.rewind()?;
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
        self.workspace.test(&self.kernels, images, self.settings.batch)
    }

    /// Everything that a training run needs to go on, as of the last step that was queued.
    ///
    /// # Errors
    /// As [`CnnEngine::collect`].
    pub fn checkpoint(&mut self) -> Result<Checkpoint> {
        self.collect()?;
        let [parameters, m, v] = [&self.workspace.w, &self.workspace.m, &self.workspace.v].map(from_device);
        Ok(Checkpoint { parameters: parameters?, m: m?, v: v?, state: self.state.clone() })
    }

    /// The gradients of the last step: sums as the backward pass left them (with fp16 multiplied by the loss scale).
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn gradients(&self) -> Result<Parameters> {
        from_device(&self.workspace.gradient)
    }
}

/// The kernels need what came with Ampere: copies past registers, and tensor cores that take TF32 and bf16.
pub(super) fn check_generation(name: &str, capability: (u32, u32)) -> Result<()> {
    let needs = operator("cnn/features")?.needs;
    if capability >= needs {
        return Ok(());
    }
    Err(Error::unsupported(
        format!(
            "the course's kernels for this network need compute capability {}.{} (Ampere, 2020), and {name} has {}.{}",
            needs.0, needs.1, capability.0, capability.1
        ),
        "use candle's layers (--kernels candle): `make setup` builds candle for the GPU where it finds CUDA's nvcc; \
              or use the CPU",
    ))
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

// ----------------------------------------------------------------------
// How a training run computes: batch, precision, AdamW's numbers.

/// What an engine is made with.
#[derive(Debug, Clone, PartialEq)]
pub struct EngineSettings {
    /// Images of a step; the last step of an epoch takes those that are left.
    pub batch: usize,
    /// What the tensor cores are given. Parameters, moments, sums and everything between kernels are f32 in each.
    pub precision: Precision,
    /// Whether a step's kernels are launched as one CUDA graph; on a simulated GPU they never are.
    pub graph: bool,
    /// AdamW's learning rate.
    pub rate: f32,
    /// AdamW's β₁ and β₂.
    pub betas: (f64, f64),
    /// AdamW's ε.
    pub epsilon: f32,
    /// AdamW's weight decay.
    pub decay: f32,
    /// fp16: steps without an overflow after which the loss scale doubles.
    pub growth: u32,
}

impl Default for EngineSettings {
    fn default() -> EngineSettings {
        EngineSettings {
            batch: 128,
            precision: Precision::Tf32,
            graph: true,
            rate: 1e-3,
            betas: (0.9, 0.999),
            epsilon: 1e-8,
            decay: 0.01,
            growth: 2000,
        }
    }
}

impl EngineSettings {
    /// As `update.cu` reads them.
    fn on_device(&self) -> [f32; 9] {
        let (beta1, beta2) = self.betas;
        // 1 − β from f64: the difference of two f32 near 1 would be off in the fifth digit.
        let of_beta = |beta: f64| [beta.ln(), beta, 1.0 - beta].map(|x| x as f32);
        let [[log1, beta1, rest1], [log2, beta2, rest2]] = [of_beta(beta1), of_beta(beta2)];
        [self.rate, log1, log2, beta1, rest1, beta2, rest2, self.epsilon, self.decay]
    }
}

// ----------------------------------------------------------------------
// What came of the steps that were queued.

impl CnnEngine {
    /// Waits for the steps that were queued, and reads their losses and hits: into [`CnnEngine::state`], and as the share
    /// of each batch that was right.
    ///
    /// # Errors
    /// [`Error::Invalid`] when a loss or gradient was no finite number, with the step: from there on nothing was updated,
    /// so the parameters are the last good ones. [`Error::Driver`].
    pub fn collect(&mut self) -> Result<()> {
        match self.read()? {
            None => Ok(()),
            Some(wrong) => Err(Error::invalid(
                format!("{wrong}: training stopped there"),
                "the parameters are those of the step before: go on from them with a smaller learning rate, or in \
                      another precision",
            )),
        }
    }

    /// As [`CnnEngine::collect`], and gives the step that went wrong.
    fn read(&mut self) -> Result<Option<NotFinite>> {
        let words = self.workspace.state.to_host()?;
        let (losses, hits) = (self.workspace.losses.to_host()?, self.workspace.hits.to_host()?);
        let end = words[BATCHES] as usize;
        let first = end.saturating_sub(std::mem::take(&mut self.queued));
        // In fp16 a gradient that does not fit is no mistake, and a loss that does not is.
        let f16 = self.settings.precision == Precision::F16;
        let stopped = (!f16 && words[FIRST_BAD] != 0).then(|| words[FIRST_BAD] as usize - 1);
        let no_number = (first..end).find(|&at| !losses[at].is_finite());
        let wrong = no_number.into_iter().chain(stopped).min();
        // Of a run that went wrong, what came before counts.
        let good = wrong.map_or(end, |at| at.clamp(first, end));
        let mut images = self.state.seen as usize;
        for at in first..good {
            let batch = self.settings.batch.min(self.images.count - images);
            images += batch;
            self.state.losses.push(losses[at]);
            self.state.right.push(hits[at] as f32 / batch as f32);
        }
        self.state.seen = images as u64;
        // The GPU counts a step when its backward pass begins.
        self.state.step = u64::from(words[STEP] - words[BAD]);
        (self.state.loss_scale, self.state.steady) = self.next_scale(&words, self.workspace.scale.to_host()?[0]);
        Ok(wrong.map(|at| NotFinite { step: self.state.taken() + 1, loss: losses[at] }))
    }

    /// Loss scale and good steps as the next step will find them: it begins with counting the last one.
    fn next_scale(&self, words: &[u32], scale: f32) -> (f32, u64) {
        let good = words[GOOD].wrapping_add(1);
        match self.settings.precision {
            Precision::F16 if words[BAD] != 0 => (scale * 0.5, 0),
            Precision::F16 if good >= self.settings.growth => (scale * 2.0, 0),
            Precision::F16 => (scale, good.into()),
            _ => (scale, 0),
        }
    }

    /// Steps that were passed over because a gradient did not fit into fp16.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn skipped(&self) -> Result<u32> {
        let words = self.workspace.state.to_host()?;
        Ok(words[SKIPPED] + if self.settings.precision == Precision::F16 { words[BAD] } else { 0 })
    }
}

// ----------------------------------------------------------------------
// The step's kernels, and the launch of each.

/// The six operators of a step, and two that go with them.
#[derive(Debug, Clone)]
struct Kernels {
    pub features: Kernel,
    pub fc1: Kernel,
    pub head: Kernel,
    pub tally: Kernel,
    pub fc_backward: Kernel,
    pub conv_backward: Kernel,
    pub update: Kernel,
    pub pack: Kernel,
}

/// Numbers in an image's first convolution, as `features.cu` and `conv_backward.cu` lay them out, in words.
const A1_PITCHED: u32 = 26 * 28 * 36;
const A1_TURNED: u32 = 26 * 26 * 32;
const KEPT: u32 = 14 * 14 * 72;
const FILTER: u32 = 64 * 32 * 9;
const IMAGE: u32 = 28 * 28;

/// Parameters of the convolutions, and all others.
const OF_CONVOLUTIONS: usize = 18_816;
const OF_LINEAR: u32 = 1_181_066;

impl Kernels {
    pub fn compile(gpu: &Gpu, precision: Precision) -> Result<Kernels> {
        // As `tensor.cuh` numbers them.
        let number = precision as u32;
        let module = |path: &str| {
            let known = operator(path)?;
            let source = match known.defines {
                [] => known.source()?,
                _ => gpulab_kernels::ladder::file(&format!("{path}.cu"))?.define("PRECISION", number),
            };
            gpu.compile(source)
        };
        let (head, update) = (module("cnn/head")?, module("cnn/update")?);
        Ok(Kernels {
            features: module("cnn/features")?.kernel("features")?,
            fc1: module("cnn/fc1")?.kernel("fc1")?,
            head: head.kernel("head")?,
            tally: head.kernel("tally")?,
            fc_backward: module("cnn/fc_backward")?.kernel("fc_backward")?,
            conv_backward: module("cnn/conv_backward")?.kernel("conv_backward")?,
            update: update.kernel("update")?,
            pack: update.kernel("pack_all")?,
        })
    }
}

fn launch(grid: (u32, u32, u32), threads: u32, shared_words: u32) -> LaunchConfig {
    LaunchConfig { grid, block: (threads, 1, 1), shared_bytes: shared_words * 4 }
}

/// A block for each image, as many as run at a time: then they take several, one after the other.
fn image_blocks(gpu: &Gpu, batch: usize) -> u32 {
    (batch as u32).min(gpu.multiprocessors().max(1))
}

// ----------------------------------------------------------------------
// What a step needs on the GPU, and its launches.

/// Numbers of an image behind the pool, units behind the first linear layer, and parts in which its sums are made.
const FEATURES: usize = 9216;
const HIDDEN: usize = 128;
const SPLITS: usize = 36;

/// All buffers but the images; `bytes.rs` counts them. Nothing is allocated once it is there.
struct Workspace {
    gpu: Gpu,
    pub w: Buffer<f32>,
    pub m: Buffer<f32>,
    pub v: Buffer<f32>,
    pub gradient: Buffer<f32>,
    packed: Buffer<f32>,
    settings: Buffer<f32>,
    pub state: Buffer<u32>,
    /// The loss scale, and how many good steps make it grow: 0 where there is none.
    pub scale: Buffer<f32>,
    pooled: Buffer<f32>,
    which: Buffer<u8>,
    fc1: Buffer<f32>,
    hidden: Buffer<f32>,
    d_hidden: Buffer<f32>,
    d_logits: Buffer<f32>,
    d_pooled: Buffer<f32>,
    of_images: Buffer<f32>,
    loss: Buffer<f32>,
    hit: Buffer<u32>,
    /// One number for each step of an epoch.
    pub losses: Buffer<f32>,
    pub hits: Buffer<u32>,
}

impl Workspace {
    pub fn new(gpu: &Gpu, checkpoint: &Checkpoint, settings: &EngineSettings, images: usize) -> Result<Workspace> {
        let (batch, steps) = (settings.batch, images.div_ceil(settings.batch));
        let floats = |len: usize| gpu.alloc::<f32>(len);
        let state = &checkpoint.state;
        let mut words = [0; WORDS];
        words[SEEN] = state.seen as u32;
        words[STEP] = state.step as u32;
        // A step begins with counting the one before it, and there was none.
        words[GOOD] = (state.steady as u32).wrapping_sub(1);
        let growth = if settings.precision == Precision::F16 { settings.growth } else { 0 };
        let scale = [settings.precision.loss_scale(state.loss_scale), growth as f32];
        Ok(Workspace {
            w: gpu.to_device(&flat(&checkpoint.parameters))?,
            m: gpu.to_device(&flat(&checkpoint.m))?,
            v: gpu.to_device(&flat(&checkpoint.v))?,
            gradient: floats(Parameters::count())?,
            packed: floats(2 * Parameters::len_of(2))?,
            settings: gpu.to_device(&settings.on_device())?,
            state: gpu.to_device(&words)?,
            scale: gpu.to_device(&scale)?,
            pooled: floats(batch * FEATURES)?,
            which: gpu.alloc(batch * FEATURES)?,
            fc1: floats(SPLITS * batch * HIDDEN)?,
            hidden: floats(batch * HIDDEN)?,
            d_hidden: floats(batch * HIDDEN)?,
            d_logits: floats(batch * 10)?,
            d_pooled: floats(batch * FEATURES)?,
            of_images: floats(image_blocks(gpu, batch) as usize * OF_CONVOLUTIONS)?,
            loss: floats(batch)?,
            hit: gpu.alloc(batch)?,
            losses: gpu.zeros(steps)?,
            hits: gpu.zeros(steps)?,
            gpu: gpu.clone(),
        })
    }

    /// Lays conv2's weight out for the tensor cores; from then on each update does it.
    pub fn pack(&mut self, kernels: &Kernels) -> Result<()> {
        kernels.pack.launch(launch((FILTER / 256, 1, 1), 256, 0), (&self.w, &mut self.packed))
    }

    /// Queues a step.
    pub fn step(&mut self, kernels: &Kernels, images: &DeviceImages, batch: usize) -> Result<()> {
        self.forward(kernels, images, batch, true)?;
        let (count, blocks) = (batch as i32, image_blocks(&self.gpu, batch) as i32);
        let DeviceImages { pixels, order, .. } = images;
        #[rustfmt::skip]
        let Workspace {
            gpu, w, m, v, gradient, packed, settings, state, scale,
            pooled, which, hidden, d_hidden, d_logits, d_pooled, of_images, ..
        } = self;
        let args =
            (&*d_hidden, &*d_logits, &*hidden, &*pooled, &*w, &mut *d_pooled, &mut *gradient, &mut *state, count);
        kernels.fc_backward.launch(launch((128, 1, 1), 512, 128 * (136 + 76 + 72)), args)?;
        let args = (pixels, order, &mut *state, &*w, &*packed, &*d_pooled, &*which, &mut *of_images, count);
        kernels
            .conv_backward
            .launch(launch((image_blocks(gpu, batch), 1, 1), 384, A1_TURNED + KEPT + FILTER + IMAGE), args)?;
        let args = (w, m, v, gradient, &*of_images, packed, &*settings, &*state, &*scale, blocks);
        kernels
            .update
            .launch(launch((OF_CONVOLUTIONS as u32 / 64 + OF_LINEAR.div_ceil(4 * 256), 1, 1), 256, 0), args)?;
        self.tally(kernels, batch)
    }

    fn forward(&mut self, kernels: &Kernels, images: &DeviceImages, batch: usize, training: bool) -> Result<()> {
        let count = batch as i32;
        let DeviceImages { pixels, labels, order, .. } = images;
        #[rustfmt::skip]
        let Workspace {
            gpu, w, packed, state, scale, pooled, which, fc1, hidden, d_hidden, d_logits, loss, hit, ..
        } = self;
        #[rustfmt::skip]
        let args = (
            pixels, order, &mut *state, &mut *scale, &*w, &*packed, &mut *pooled, which, count, i32::from(training),
        );
        kernels.features.launch(launch((image_blocks(gpu, batch), 1, 1), 384, FILTER + A1_PITCHED + IMAGE), args)?;
        kernels.fc1.launch(
            launch((2, (batch as u32).div_ceil(64), 36), 256, 2 * 64 * 264),
            (&*pooled, &*w, &mut *fc1, count),
        )?;
        let args = (&*fc1, labels, order, &*state, &*scale, &*w, hidden, d_hidden, d_logits, loss, hit, count);
        kernels.head.launch(launch((batch as u32, 1, 1), 128, 0), args)
    }

    fn tally(&mut self, kernels: &Kernels, batch: usize) -> Result<()> {
        let Workspace { loss, hit, state, losses, hits, .. } = self;
        let steps = losses.len() as i32;
        kernels.tally.launch(launch((1, 1, 1), 32, 0), (&*loss, &*hit, state, losses, hits, batch as i32, steps))
    }

    /// Back to the first image of an epoch.
    pub fn rewind(&mut self) -> Result<()> {
        let mut words = self.state.to_host()?;
        (words[SEEN], words[BATCHES]) = (0, 0);
        self.state.copy_from(&words)
    }

    /// Accuracy and mean loss.
    pub fn test(&mut self, kernels: &Kernels, images: &DeviceImages, batch: usize) -> Result<(f32, f32)> {
        let training = self.state.to_host()?;
        let steps = images.count.div_ceil(batch);
        let (mut losses, mut hits) = (self.gpu.zeros(steps)?, self.gpu.zeros(steps)?);
        let mut words = training.clone();
        (words[SEEN], words[BATCHES]) = (0, 0);
        self.state.copy_from(&words)?;
        std::mem::swap(&mut self.losses, &mut losses);
        std::mem::swap(&mut self.hits, &mut hits);
        let sizes: Vec<usize> = (0..steps).map(|step| batch.min(images.count - step * batch)).collect();
        let done = sizes.iter().try_for_each(|&batch| {
            self.forward(kernels, images, batch, false)?;
            self.tally(kernels, batch)
        });
        std::mem::swap(&mut self.losses, &mut losses);
        std::mem::swap(&mut self.hits, &mut hits);
        self.state.copy_from(&training)?;
        done?;
        let right: u32 = hits.to_host()?.iter().sum();
        let loss: f64 = losses.to_host()?.iter().zip(&sizes).map(|(&loss, &of)| f64::from(loss) * of as f64).sum();
        Ok((right as f32 / images.count as f32, (loss / images.count as f64) as f32))
    }
}

// ----------------------------------------------------------------------
// Images that lie on the GPU as bytes, and the order in which they are gone through.

/// A set of images on one GPU.
#[derive(Debug)]
struct DeviceImages {
    pub pixels: Buffer<u8>,
    pub labels: Buffer<u8>,
    pub order: Buffer<u32>,
    pub count: usize,
}

impl DeviceImages {
    /// Copies them: 784 bytes per image, a label from 0 to 9 each.
    pub fn new(gpu: &Gpu, pixels: &[u8], labels: &[u8]) -> Result<DeviceImages> {
        let count = labels.len();
        same_length("the images' pixels (784 for each label)", count.max(1) * 784, pixels.len())?;
        if let Some(at) = labels.iter().position(|&label| label > 9) {
            return Err(Error::invalid(format!("image {at} has the label {}", labels[at]), "give labels from 0 to 9"));
        }
        let order: Vec<u32> = (0..count as u32).collect();
        Ok(DeviceImages {
            pixels: gpu.to_device(pixels)?,
            labels: gpu.to_device(labels)?,
            order: gpu.to_device(&order)?,
            count,
        })
    }

    /// Sets the order. A kernel reads images by it unchecked, so it is checked here.
    pub fn set_order(&mut self, order: &[u32]) -> Result<()> {
        match order.iter().find(|&&image| image as usize >= self.count) {
            None => self.order.copy_from(order),
            Some(image) => Err(Error::invalid(format!("image {image} of {}", self.count), "count images from 0")),
        }
    }
}

// ----------------------------------------------------------------------
// How much of the GPU's memory a batch takes, before any of it is taken.

/// Left for what is not counted here: a step's graph, and the driver's pool, which allocates in blocks.
const SPARE: u64 = 64 << 20;

/// Bytes for each image of a step: pooled map, its gradient and the places of its windows' largest; partial sums of the
/// first linear layer; two rows of hidden units; logits; loss and hit.
const EACH: usize = FEATURES * (4 + 4 + 1) + SPLITS * HIDDEN * 4 + 2 * HIDDEN * 4 + 10 * 4 + 4 + 4;

/// Parameters, both moments and gradients; the second convolution's weight as tensor cores read it; a few words.
fn fixed() -> usize {
    4 * (4 * Parameters::count() + 2 * Parameters::len_of(2) + WORDS + 9 + 2)
}

/// What a [`Workspace`] takes: for that many images at a time, of a set of `images`.
fn of_room(gpu: &Gpu, batch: usize, images: usize) -> u64 {
    let blocks = image_blocks(gpu, batch) as usize;
    (fixed() + batch * EACH + blocks * OF_CONVOLUTIONS * 4 + images.div_ceil(batch) * 8) as u64
}

/// Refuses a batch that the GPU's free memory cannot hold, and names the largest that it can.
fn check_memory(gpu: &Gpu, settings: &EngineSettings, images: usize) -> Result<()> {
    let memory = gpu.memory()?;
    // What the pool has and nobody holds is free, too.
    check_free(gpu, settings.batch, images, memory.free + memory.reserved.saturating_sub(memory.used))
}

fn check_free(gpu: &Gpu, batch: usize, images: usize, free: u64) -> Result<()> {
    let (needed, free) = (of_room(gpu, batch, images), free.saturating_sub(SPARE));
    if needed <= free {
        return Ok(());
    }
    // As if each of them had a block: the largest that surely fits.
    let rest = free.saturating_sub((fixed() + images * 8) as u64);
    let blocks = u64::from(image_blocks(gpu, batch)) * OF_CONVOLUTIONS as u64 * 4;
    let many = rest.saturating_sub(blocks) / EACH as u64;
    let few = (rest / (EACH + OF_CONVOLUTIONS * 4) as u64).min(image_blocks(gpu, batch).into());
    Err(too_large(batch as u64, many.max(few), &format!("it needs {}, and {} are free", bytes(needed), bytes(free))))
}

// ----------------------------------------------------------------------
// `CnnEngine` as what makes a trainer's steps.

/// The network of a run on an NVIDIA GPU, with the images that it is tested on.
#[derive(Debug)]
pub(super) struct EngineBackend {
    engine: CnnEngine,
    test: DeviceImages,
}

impl EngineBackend {
    /// As [`CnnEngine::new`].
    ///
    /// # Errors
    /// As [`CnnEngine::new`].
    pub fn new(gpu: &Gpu, images: &Images, config: &TrainConfig, start: &Checkpoint) -> Result<EngineBackend> {
        EngineBackend::with(gpu, Kernels::compile(gpu, config.precision)?, images, config, start)
    }

    fn with(
        gpu: &Gpu,
        kernels: Kernels,
        images: &Images,
        config: &TrainConfig,
        start: &Checkpoint,
    ) -> Result<EngineBackend> {
        let settings = EngineSettings {
            batch: config.batch,
            precision: config.precision,
            rate: config.learning_rate as f32,
            growth: STEADY as u32,
            ..EngineSettings::default()
        };
        let test = DeviceImages::new(gpu, &images.test.pixels, &images.test.labels)?;
        let engine = CnnEngine::with(gpu, kernels, start, &images.train.pixels, &images.train.labels, settings)?;
        Ok(EngineBackend { engine, test })
    }
}

impl TrainingBackend for EngineBackend {
    fn state(&self) -> &TrainingState {
        self.engine.state()
    }

    fn state_mut(&mut self) -> &mut TrainingState {
        &mut self.engine.state
    }

    fn left(&self) -> usize {
        self.engine.left()
    }

    fn steps(&mut self, most: usize) -> Result<()> {
        self.engine.steps(most).map(drop)
    }

    fn collect(&mut self) -> Result<Option<NotFinite>> {
        self.engine.read()
    }

    fn test(&mut self) -> Result<(f32, f32)> {
        self.engine.test_on(&self.test)
    }

    fn next_epoch(&mut self, epoch: Epoch) -> Result<()> {
        self.engine.next_epoch(epoch)
    }

    fn checkpoint(&mut self) -> Result<Checkpoint> {
        self.engine.checkpoint()
    }
}

#[cfg(test)]
pub(super) mod tests;
