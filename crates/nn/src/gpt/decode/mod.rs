//! One token after the other from a GPT-2, with a batch of one, on the course's own kernels: `kernels/decode/`.
//!
//! A step reads every weight once, so the time of those bytes is the least that it can take. What it takes beyond that is
//! waiting: kernels for each other, the GPU for the CPU. [`Plan`] and [`Queue`] are the ways to wait less, one by one.

mod kernels;
mod layers;
mod layout;
mod plan;
mod step;

pub use plan::{Plan, Queue, Tuning};

use super::{Config, Weights};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, Graph};
use kernels::{Kernels, Scratch};
use layout::Model;

/// How the next token is chosen. Other ways (top-p) take [`Decoder::logits`].
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// 0 takes the most likely token; 1 draws as the model says; more makes unlikely tokens likelier.
    pub temperature: f32,
    /// The same seed draws the same text.
    pub seed: u32,
}

impl Draw {
    /// The most likely token each time.
    pub const GREEDY: Draw = Draw { temperature: 0.0, seed: 0 };
}

/// A GPT-2 in bf16 on a GPU, with the keys and values of one text. Sums are f32.
#[derive(Debug)]
pub struct Decoder {
    gpu: Gpu,
    config: Config,
    plan: Plan,
    queue: Queue,
    model: Model,
    kernels: Kernels,
    scratch: Scratch,
    graph: Option<Graph>,
    /// The position that the next step reads, known without asking the GPU.
    position: usize,
    prompt: usize,
}

impl Decoder {
    /// Puts a model on a GPU, in the quickest way that the GPU and the model allow.
    ///
    /// # Errors
    /// As [`Decoder::with`].
    pub fn new(gpu: &Gpu, weights: &Weights) -> Result<Decoder> {
        let plan = if Plan::Halves.suits(&weights.config()).is_ok() { Plan::Halves } else { Plan::Fused };
        let queue = if matches!(gpu, Gpu::Cuda(_)) { Queue::Overlapped } else { Queue::OneByOne };
        Decoder::with(gpu, weights, plan, queue)
    }

    /// Puts a model on a GPU, to be run in that way.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a GPU older than Hopper, an Apple GPU, graphs on a simulated GPU, or a model whose shape
    /// the kernels do not take; [`Error::OutOfMemory`]; the errors of [`Gpu::compile`].
    pub fn with(gpu: &Gpu, weights: &Weights, plan: Plan, queue: Queue) -> Result<Decoder> {
        Decoder::tuned(gpu, weights, plan, queue, Tuning::of(&weights.config()))
    }

    /// As [`Decoder::with`], with other constants.
    ///
    /// # Errors
    /// As [`Decoder::with`]; [`Error::Compile`] for constants that do not fit the model.
    pub fn tuned(gpu: &Gpu, weights: &Weights, plan: Plan, queue: Queue, tuning: Tuning) -> Result<Decoder> {
        let config = weights.config();
        plan.suits(&config)?;
        let kernels = Kernels::compile(gpu, &config, plan, tuning)?;
        let model = Model::load(gpu, weights, plan)?;
        let scratch = Scratch::new(gpu, &config)?;
        let (gpu, graph) = (gpu.clone(), None);
        let mut decoder = Decoder { gpu, config, plan, queue, model, kernels, scratch, graph, position: 0, prompt: 0 };
        decoder.set_queue(queue)?;
        Ok(decoder)
    }

    /// Queues steps in another way from now on; the text stays.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for graphs on a simulated GPU; [`Error::Driver`].
    pub fn set_queue(&mut self, queue: Queue) -> Result<()> {
        self.queue = queue;
        self.graph = None;
        if queue != Queue::OneByOne {
            let Decoder { gpu, config, plan, model, kernels, scratch, .. } = self;
            let early = queue == Queue::Overlapped;
            self.graph = Some(gpu.capture(|| step::queue(kernels, config, *plan, early, model, scratch))?);
        }
        Ok(())
    }

    /// The shape of the model.
    pub fn config(&self) -> Config {
        self.config
    }

    /// Kernels that a token takes.
    pub fn kernels_a_token(&self) -> usize {
        self.plan.kernels(&self.config)
    }

    /// Bytes of weights that a token reads, and of keys and values when `positions` of them are read.
    pub fn bytes_a_token(&self, positions: usize) -> usize {
        let Config { n_layer, n_embd, .. } = self.config;
        self.model.bytes() + n_layer * 2 * positions * n_embd * size_of::<u16>()
    }

    /// Begins a text.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an empty prompt, one that fills the context, a token that the vocabulary does not have, or a
    /// temperature that is none; [`Error::Driver`].
    pub fn begin(&mut self, prompt: &[u32], draw: Draw) -> Result<()> {
        let Config { n_ctx, vocab_size, .. } = self.config;
        let refuse = |what: String, fix: String| Err(Error::Invalid { what, fix });
        if prompt.is_empty() {
            return refuse("the prompt is empty".to_string(), "give at least one token to begin with".to_string());
        }
        if prompt.len() >= n_ctx {
            let what = format!("the prompt has {} tokens, and the model's context is {n_ctx}", prompt.len());
            return refuse(what, format!("shorten it to {} tokens at most: its end counts the most", n_ctx - 1));
        }
        if let Some(token) = prompt.iter().find(|&&token| token as usize >= vocab_size) {
            let what = format!("the prompt has the token {token}, and the vocabulary ends at {}", vocab_size - 1);
            return refuse(what, "use the tokenizer that belongs to the model".to_string());
        }
        if !draw.temperature.is_finite() || draw.temperature < 0.0 {
            let what = format!("a temperature of {}", draw.temperature);
            return refuse(what, "give 0 for the most likely token each time, or a number up to about 2".to_string());
        }
        let mut tokens = vec![0_i32; n_ctx];
        tokens.iter_mut().zip(prompt).for_each(|(to, &token)| *to = token as i32);
        self.scratch.tokens.copy_from(&tokens)?;
        self.prompt = prompt.len();
        self.start([0, prompt.len() as i32, draw.seed as i32, draw.temperature.to_bits() as i32])
    }

    /// Embeds the token at the state's position; each step then leaves the next one's embedding behind.
    fn start(&mut self, state: [i32; 4]) -> Result<()> {
        self.scratch.state.copy_from(&state)?;
        self.position = state[0] as usize;
        step::embed(&self.kernels, &self.model, &mut self.scratch)
    }

    /// Queues one step, and returns at once: the token at the position is read, and the next one chosen.
    ///
    /// # Errors
    /// [`Error::Invalid`] before [`Decoder::begin`], and when the context is full; [`Error::Driver`].
    pub fn step(&mut self) -> Result<()> {
        if self.prompt == 0 || self.position >= self.config.n_ctx {
            return Err(Error::Invalid {
                what: format!("there is nothing to read at position {}", self.position),
                fix: format!("call `begin` with a prompt; the context has {} positions", self.config.n_ctx),
            });
        }
        match &mut self.graph {
            Some(graph) => graph.launch()?,
            None => {
                let Decoder { config, plan, model, kernels, scratch, .. } = self;
                step::queue(kernels, config, *plan, false, model, scratch)?;
            }
        }
        self.position += 1;
        Ok(())
    }

    /// The tokens so far: the prompt, and what was chosen. Waits for the steps that are queued.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn tokens(&self) -> Result<Vec<u32>> {
        let there = (self.position + 1).max(self.prompt).min(self.config.n_ctx);
        Ok(self.scratch.tokens.to_host()?[..there].iter().map(|&token| token as u32).collect())
    }

    /// The logits of the last step, one for each token of the vocabulary. Waits for it.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn logits(&self) -> Result<Vec<f32>> {
        self.scratch.logits.to_host()
    }

    /// Continues the prompt by up to `count` tokens, as far as the context goes; `each` sees them as they come.
    ///
    /// # Errors
    /// As [`Decoder::begin`] and [`Decoder::step`].
    pub fn generate(
        &mut self,
        prompt: &[u32],
        count: usize,
        draw: Draw,
        mut each: impl FnMut(u32),
    ) -> Result<Vec<u32>> {
        self.begin(prompt, draw)?;
        for _ in 1..prompt.len() {
            self.step()?;
        }
        let mut new = Vec::new();
        while new.len() < count && self.position + 1 < self.config.n_ctx {
            self.step()?;
            let token = self.tokens()?[self.position];
            each(token);
            new.push(token);
        }
        Ok(new)
    }

    /// Sets the position, with keys and values as given for those before it (bf16; layer after layer, the keys of all
    /// heads, then their values): to measure a step far into a text without reading one.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Driver`].
    pub fn begin_at(&mut self, token: u32, position: usize, caches: Option<&[u16]>) -> Result<()> {
        let mut tokens = vec![token; position + 1];
        tokens.truncate(self.config.n_ctx - 1);
        self.begin(&tokens, Draw::GREEDY)?;
        caches.map_or(Ok(()), |bits| self.scratch.caches.copy_from(bits))?;
        self.start([position as i32, position as i32 + 1, 0, 0])
    }
}

#[cfg(test)]
mod reference;
#[cfg(test)]
mod tests;
