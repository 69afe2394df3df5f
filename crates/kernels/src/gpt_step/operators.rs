//! The kernels of a step one by one, on arrays of the caller's: for a step that something else puts together, such as the
//! operators of candle in `gpulab_nn`.

use super::*;

/// The files whose kernels these are. `lora_step/heads` rotates heads for a Llama's RoPE; with angles of 0 it only moves them.
const FILES: &[&str] = &[
    "gpt_step/columns",
    "gpt_step/embed_backward",
    "gpt_step/loss",
    "gpt_step/norm",
    "gpt_step/update",
    "lora_step/heads",
];

/// The kernels of a step beside products and attention, for models of one shape, on any GPU with bf16 (Ampere and newer), and in the
/// simulator. Activations are bf16 (`u16` to the host), in rows of a token each; scales, shifts, biases and their gradients are f32.
/// Results are new arrays; nothing waits.
///
/// ```
/// # fn main() -> gpulab::Result<()> {
/// use gpulab::prelude::*;
/// use gpulab_kernels::gpt_step::{GptOperators, GptShape};
/// # if gpulab::cuda::nvrtc_version().is_err() { return Ok(()) }
/// let (gpu, shape) = (Gpu::simulated()?, GptShape { layers: 1, heads: 1, vocabulary: 9, context: 5 });
/// let operators = GptOperators::new(&gpu, shape)?;
/// let x: Vec<u16> = cpu::random_f32(3 * shape.width(), 1).into_iter().map(cpu::bf16_from_f32).collect();
/// let factors = [vec![0.0; shape.width()], vec![0.5; shape.width()]].concat(); // scales of 0, shifts of a half
/// let (normed, _) = operators.norm(&gpu.to_device(&x)?, &gpu.to_device(&factors)?)?;
/// assert!(normed.to_host()?.into_iter().all(|x| cpu::f32_from_bf16(x) == 0.5));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GptOperators {
    gpu: Gpu,
    shape: GptShape,
    named: HashMap<&'static str, Kernel>,
    /// For each position the cosines and sines of angles of 0.
    rope: Buffer<f32>,
}

impl GptOperators {
    /// Compiles them, all files at the same time.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a shape that the kernels do not take; [`Error::Unsupported`] on a GPU before Ampere; those of
    /// [`Gpu::compile`].
    pub fn new(gpu: &Gpu, shape: GptShape) -> Result<GptOperators> {
        GptOperators::take(gpu, &shape, 1)?;
        let named = compile(gpu, FILES, |path, name| {
            // As many heads of keys as of queries.
            let value = constant(&shape, path, if name == "KV_HEADS" { "HEADS" } else { name });
            value.unwrap_or_else(|| unreachable!("{path} has a constant {name}"))
        })?;
        let rope: Vec<f32> = (0..HEAD).map(|at| if at < HEAD / 2 { 1.0 } else { 0.0 }).collect();
        Ok(GptOperators { gpu: gpu.clone(), shape, named, rope: gpu.to_device(&rope.repeat(shape.context))? })
    }

    /// Whether these kernels take a model of this shape with so many texts at once, and this GPU runs them: nothing is compiled for
    /// that.
    ///
    /// # Errors
    /// [`Error::Invalid`] for the shape, [`Error::Unsupported`] for the GPU.
    pub fn take(gpu: &Gpu, shape: &GptShape, batch: usize) -> Result<()> {
        shape.check(batch)?;
        let capability = gpu.compute_capability()?;
        FILES.iter().try_for_each(|path| operator(path)?.runs_on(capability))
    }

    /// The GPU that they were compiled for.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The shape of the models that they are for.
    pub fn shape(&self) -> &GptShape {
        &self.shape
    }

    /// Layer norm of rows as wide as the model, with GPT-2's epsilon; `factors` are the scales, then the shifts. Also gives mean and
    /// 1 ÷ deviation of each row, for [`GptOperators::norm_backward`].
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::OutOfMemory`], [`Error::Driver`].
    pub fn norm(&self, x: &Buffer<u16>, factors: &Buffer<f32>) -> Result<(Buffer<u16>, Buffer<f32>)> {
        let c = self.shape.width();
        let rows = rows_of("a norm's rows", x, c)?;
        same("a norm's scales and shifts", factors, 2 * c)?;
        let (mut normed, mut stats) = (self.gpu.alloc(x.len())?, self.gpu.alloc(2 * rows)?);
        let args = (x, factors, &mut normed, &mut stats, 0, rows as i32);
        self.named["norm_rows"].launch(row_blocks(rows, norm_threads(&self.shape)), args)?;
        Ok((normed, stats))
    }

    /// The gradients of `x` and of `factors`, from that of the result.
    ///
    /// # Errors
    /// As [`GptOperators::norm`].
    pub fn norm_backward(
        &self,
        d_normed: &Buffer<u16>,
        x: &Buffer<u16>,
        stats: &Buffer<f32>,
        factors: &Buffer<f32>,
    ) -> Result<(Buffer<u16>, Buffer<f32>)> {
        let c = self.shape.width();
        let rows = rows_of("a norm's rows", x, c)?;
        same("the gradient of a norm's rows", d_normed, x.len())?;
        same("the means and deviations of a norm's rows", stats, 2 * rows)?;
        same("a norm's scales and shifts", factors, 2 * c)?;
        let (mut d_x, mut parts) = (self.gpu.alloc(x.len())?, self.gpu.alloc(self.parts() * 2 * c)?);
        let config = LaunchConfig::new(self.parts() as u32, norm_threads(&self.shape) as u32);
        let stride = 2 * c as i32;
        // Nothing comes past the norm, and nobody asks for the sums of d_x.
        let args = (d_normed, x, stats, factors, &mut d_x, &mut parts, 0, 0, -1, stride, 0, rows as i32);
        self.named["norm_backward"].launch(config, args)?;
        Ok((d_x, self.sum_of(&parts, 2 * c)?))
    }

    /// Adds a bias to each row, which is as long as the bias: a multiple of 8.
    ///
    /// # Errors
    /// As [`GptOperators::norm`].
    pub fn add_bias(&self, y: &mut Buffer<u16>, bias: &Buffer<f32>) -> Result<()> {
        let columns = bias.len();
        let rows = rows_of("rows to which a bias is added", y, columns)?;
        let config = each(y.len() / 8);
        self.named["add_bias"].launch(config, (y, bias, 0, columns as i32, rows as i32))
    }

    /// The sum of each column of rows of so many numbers: the gradient of their bias. Rows are added up in a fixed order.
    ///
    /// # Errors
    /// As [`GptOperators::norm`].
    pub fn column_sums(&self, d: &Buffer<u16>, columns: usize) -> Result<Buffer<f32>> {
        let rows = rows_of("rows whose columns are added up", d, columns)?;
        let mut parts = self.gpu.alloc(self.parts() * columns)?;
        let args = (d, &mut parts, 0, columns as i32, columns as i32, rows as i32);
        self.named["column_sums"].launch(table(columns.div_ceil(256), self.parts()), args)?;
        self.sum_of(&parts, columns)
    }

    /// GELU, in its tanh form, of h + bias.
    ///
    /// # Errors
    /// As [`GptOperators::norm`].
    pub fn gelu(&self, h: &Buffer<u16>, bias: &Buffer<f32>) -> Result<Buffer<u16>> {
        let columns = bias.len();
        let rows = rows_of("rows before GELU", h, columns)?;
        let mut g = self.gpu.alloc(h.len())?;
        self.named["gelu"].launch(each(h.len() / 8), (h, bias, &mut g, 0, columns as i32, rows as i32))?;
        Ok(g)
    }

    /// The gradients of `h` and of `bias`, from that of the result.
    ///
    /// # Errors
    /// As [`GptOperators::norm`].
    pub fn gelu_backward(
        &self,
        d_g: &Buffer<u16>,
        h: &Buffer<u16>,
        bias: &Buffer<f32>,
    ) -> Result<(Buffer<u16>, Buffer<f32>)> {
        let columns = bias.len();
        let rows = rows_of("rows before GELU", h, columns)?;
        // The kernel works in the gradient's place, and that is the caller's.
        let (mut d_h, mut parts) = (self.gpu.alloc(h.len())?, self.gpu.alloc(self.parts() * columns)?);
        d_h.copy_from_buffer(d_g)?;
        let args = (&mut d_h, h, bias, &mut parts, 0, 0, columns as i32, columns as i32, rows as i32);
        self.named["gelu_backward"].launch(table(columns.div_ceil(256), self.parts()), args)?;
        Ok((d_h, self.sum_of(&parts, columns)?))
    }

    /// Cross-entropy: gives the loss of each row in nats, and the gradient of it, times `share`, takes the logits' place. Rows are
    /// [`GptShape::rows`] long, and what is beyond the vocabulary counts as no token. Where a target is none of the vocabulary's tokens, the
    /// loss and the gradient of its row are NaN.
    ///
    /// # Errors
    /// As [`GptOperators::norm`].
    pub fn cross_entropy(&self, logits: &mut Buffer<u16>, targets: &Buffer<i32>, share: f32) -> Result<Buffer<f32>> {
        let rows = rows_of("rows of logits", logits, self.shape.rows())?;
        same("targets", targets, rows)?;
        let mut losses = self.gpu.alloc(rows)?;
        let config = LaunchConfig::new(rows as u32, loss_threads(&self.shape) as u32);
        self.named["cross_entropy"].launch(config, (logits, targets, &mut losses, 0, share))?;
        Ok(losses)
    }

    /// Cuts rows of q, k and v beside each other into heads, for texts of `length` tokens: three arrays of
    /// `[texts, heads, length, 64]`.
    ///
    /// # Errors
    /// As [`GptOperators::norm`]; [`Error::Invalid`] for texts that are longer than the context.
    pub fn to_heads(&self, qkv: &Buffer<u16>, length: usize) -> Result<[Buffer<u16>; 3]> {
        let c = self.shape.width();
        let rows = self.texts_of(rows_of("rows of q, k and v", qkv, 3 * c)?, length)?;
        let (mut q, mut k, mut v) = (self.gpu.alloc(rows * c)?, self.gpu.alloc(rows * c)?, self.gpu.alloc(rows * c)?);
        let args = (qkv, &self.rope, &mut q, &mut k, &mut v, length as i32, rows as i32);
        self.named["lora_to_heads"].launch(each(qkv.len() / 8), args)?;
        Ok([q, k, v])
    }

    /// The inverse of [`GptOperators::to_heads`], for the gradients.
    ///
    /// # Errors
    /// As [`GptOperators::to_heads`].
    pub fn from_heads(&self, [dq, dk, dv]: [&Buffer<u16>; 3], length: usize) -> Result<Buffer<u16>> {
        let c = self.shape.width();
        let rows = self.texts_of(rows_of("heads", dq, c)?, length)?;
        same("heads of k", dk, rows * c)?;
        same("heads of v", dv, rows * c)?;
        let mut d_qkv = self.gpu.alloc(rows * 3 * c)?;
        let args = (dq, dk, dv, &self.rope, &mut d_qkv, length as i32, rows as i32);
        self.named["lora_from_heads"].launch(each(rows * 3 * c / 8), args)?;
        Ok(d_qkv)
    }

    /// Puts a token's heads beside each other: `[texts, heads, length, 64]` to rows as wide as the model.
    ///
    /// # Errors
    /// As [`GptOperators::to_heads`].
    pub fn gather(&self, o: &Buffer<u16>, length: usize) -> Result<Buffer<u16>> {
        self.moved("lora_gather", o, length)
    }

    /// The inverse of [`GptOperators::gather`].
    ///
    /// # Errors
    /// As [`GptOperators::to_heads`].
    pub fn scatter(&self, d: &Buffer<u16>, length: usize) -> Result<Buffer<u16>> {
        self.moved("lora_scatter", d, length)
    }

    fn moved(&self, kernel: &str, from: &Buffer<u16>, length: usize) -> Result<Buffer<u16>> {
        let rows = self.texts_of(rows_of("heads", from, self.shape.width())?, length)?;
        let mut to = self.gpu.alloc(from.len())?;
        // There are no adapters, whose weights would be the second array.
        let args = (from, from, &mut to, 0, 0, length as i32, rows as i32);
        self.named[kernel].launch(row_blocks(rows, THREADS), args)?;
        Ok(to)
    }

    /// Adds the gradient of the embeddings' sum to that of the table and of the positions, in the order of [`GptShape::tensors`]:
    /// `tokens` are those of whole contexts, `d_x` has a row for each.
    ///
    /// # Errors
    /// As [`GptOperators::norm`]; [`Error::Invalid`] for a token that the vocabulary does not have.
    pub fn embed_backward(&self, tokens: &[u32], d_x: &Buffer<u16>, gradient: &mut Buffer<f32>) -> Result<()> {
        let GptShape { context, vocabulary, .. } = self.shape;
        let rows = self.texts_of(tokens.len(), context)?;
        same("the gradient of the embeddings", d_x, rows * self.shape.width())?;
        same("all gradients", gradient, self.shape.parameter_count())?;
        self.shape.knows(tokens)?;
        let mut piece = Piece::new(&self.gpu, rows, 1)?;
        piece.set(&tokens.iter().map(|&token| token as i32).collect::<Vec<_>>(), 0, vocabulary)?;
        let Piece { tokens, order, starts, .. } = &piece;
        let config = LaunchConfig::new(rows as u32, THREADS as u32);
        self.named["embed_backward"].launch(config, (d_x, tokens, order, starts, &mut *gradient, rows as i32))?;
        let (positions, texts) = (self.shape.positions() as i32, (rows / context) as i32);
        let args = (d_x, gradient, positions, context as i32, texts, 1);
        self.named["position_backward"].launch(each(context * self.shape.width() / 8), args)
    }

    /// What blocks have left, added up.
    fn sum_of(&self, parts: &Buffer<f32>, columns: usize) -> Result<Buffer<f32>> {
        let mut sums = self.gpu.alloc(columns)?;
        let (stride, blocks) = (columns as i32, self.parts() as i32);
        self.named["add_parts"].launch(strips(columns), (parts, &mut sums, 0, 0, stride, stride, blocks, 0))?;
        Ok(sums)
    }

    /// Blocks that leave sums of columns: one for each multiprocessor.
    fn parts(&self) -> usize {
        self.gpu.multiprocessors() as usize
    }

    /// So many rows, where they are texts of that length.
    fn texts_of(&self, rows: usize, length: usize) -> Result<usize> {
        if length == 0 || length > self.shape.context || !rows.is_multiple_of(length) {
            let context = self.shape.context;
            return Err(Error::invalid(
                format!("{rows} rows as texts of {length} tokens, in a context of {context}"),
                "give whole texts of one length, not longer than the context",
            ));
        }
        Ok(rows)
    }
}

/// Blocks of so many threads, a warp a row.
fn row_blocks(rows: usize, threads: usize) -> LaunchConfig {
    LaunchConfig::new(rows.div_ceil(threads / 32) as u32, threads as u32)
}

/// How many rows of so many numbers it has: whole ones, of whole eights.
fn rows_of(what: &str, x: &Buffer<u16>, columns: usize) -> Result<usize> {
    if columns == 0 || !columns.is_multiple_of(8) || x.is_empty() {
        return Err(Error::invalid(
            format!("{what}: {} numbers in rows of {columns}", x.len()),
            "give at least one row; the kernels read eight numbers at a time",
        ));
    }
    let rows = x.len() / columns;
    same(what, x, rows * columns)?;
    Ok(rows)
}

fn same<T: gpulab::launch::Element>(what: &str, x: &Buffer<T>, expected: usize) -> Result<()> {
    same_length(what, expected, x.len())
}

// ----------------------------------------------------------------------
// The end of a step.

/// AdamW on all parameters of a model in three kernels: parameters and moments in f32, and the parameters in bf16, with which the
/// next step computes. Each is one flat array, in the order of [`GptShape::tensors`].
///
/// ```no_run
/// # use gpulab::prelude::*;
/// # use gpulab_kernels::gpt_step::*;
/// # fn of(operators: &GptOperators, losses: &Buffer<f32>, own: impl Fn(&mut Buffer<f32>) -> Result<()>) -> Result<()> {
/// let mut optimizer = GptOptimizer::new(operators)?;
/// optimizer.load(&operators.shape().start(1))?;
/// optimizer.queue(operators, &AdamWConfig::default(), losses, own)?; // `own` puts the gradients into the array that it gets
/// println!("{}", optimizer.result()?.norm);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct GptOptimizer {
    parameters: Parameters,
    squares: Buffer<f32>,
    tallied: Buffer<f32>,
    settings: Buffer<f32>,
    step: u64,
    /// Whether the last step still counts as made, whatever came of it.
    unjudged: bool,
}

impl GptOptimizer {
    /// All parameters are 0, and no step was made.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(operators: &GptOperators) -> Result<GptOptimizer> {
        let gpu = &operators.gpu;
        Ok(GptOptimizer {
            parameters: Parameters::zeros(gpu, operators.shape.parameter_count())?,
            squares: gpu.alloc(WALKERS)?,
            tallied: gpu.zeros(2)?,
            settings: gpu.zeros(8)?,
            step: 0,
            unjudged: false,
        })
    }

    /// Begins with these parameters; no step has been made.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`], [`Error::Driver`].
    pub fn load(&mut self, parameters: &[f32]) -> Result<()> {
        let zeros = vec![0.0; parameters.len()];
        self.restore(&GptState { parameters: parameters.to_vec(), m: zeros.clone(), v: zeros, step: 0 })
    }

    /// Goes on where a run stood.
    ///
    /// # Errors
    /// As [`GptOptimizer::load`].
    pub fn restore(&mut self, state: &GptState) -> Result<()> {
        self.parameters.set(&state.parameters, [&state.m, &state.v])?;
        (self.step, self.unjudged) = (state.step, false);
        Ok(())
    }

    /// Everything that a run needs to go on.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn state(&self) -> Result<GptState> {
        self.parameters.state(self.step)
    }

    /// The parameters in f32.
    pub fn master(&self) -> &Buffer<f32> {
        &self.parameters.master
    }

    /// The parameters in bf16.
    pub fn weights(&self) -> &Buffer<u16> {
        &self.parameters.weights
    }

    /// The gradients of the last step, before clipping.
    pub fn gradient(&self) -> &Buffer<f32> {
        &self.parameters.gradient
    }

    /// Queues a step: `gradients` puts those of all parameters into the array that it is given, which holds the step before's;
    /// `losses` are those of all rows. Where the norm of the gradients or a loss is no finite number, nothing is updated.
    ///
    /// # Errors
    /// [`Error::LengthMismatch`] for the operators of another model, what `gradients` returns, [`Error::Driver`].
    pub fn queue(
        &mut self,
        operators: &GptOperators,
        adamw: &AdamWConfig,
        losses: &Buffer<f32>,
        gradients: impl FnOnce(&mut Buffer<f32>) -> Result<()>,
    ) -> Result<()> {
        same("the optimizer's parameters", &self.parameters.master, operators.shape.parameter_count())?;
        gradients(&mut self.parameters.gradient)?;
        self.settings.copy_from(&adamw.numbers(self.step + 1))?;
        let Self { parameters, squares, tallied, settings, .. } = self;
        tally(&operators.named, &parameters.gradient, (losses, losses.len()), squares, tallied)?;
        let all = 0..operators.shape.parameter_count();
        update(&operators.named, &operators.shape, parameters, tallied, settings, all)?;
        self.step += 1;
        self.unjudged = true;
        Ok(())
    }

    /// What came of the last step; waits for it.
    ///
    /// # Errors
    /// [`Error::Driver`]; [`Error::Invalid`] when the loss or a gradient was no finite number: the step then counts as not made, and the
    /// parameters are those of before.
    pub fn result(&mut self) -> Result<StepResult> {
        let tallied = self.tallied.to_host()?;
        let result = StepResult { loss: tallied[0], norm: tallied[1] }.finite(self.step, "parameters");
        if result.is_err() && self.unjudged {
            self.step -= 1;
        }
        self.unjudged = false;
        result
    }
}
