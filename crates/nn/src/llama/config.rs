//! The shape of a Llama, from a GGUF file's metadata, and the matrices of its layers.

use super::GgufFile;
use gpulab::error::{Error, Result};

/// The shape of a Llama.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LlamaConfig {
    /// Blocks of attention and feed-forward layer.
    pub layers: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values; each serves `heads / kv_heads` heads of queries (grouped-query attention).
    pub kv_heads: usize,
    /// Width of the residual stream: the numbers that stand for a token (`d_model`, `hidden_size`).
    pub width: usize,
    /// Width of the feed-forward layer's middle.
    pub inner: usize,
    /// The longest text, in tokens.
    pub context: usize,
    /// Different tokens.
    pub vocabulary: usize,
    /// The base of RoPE's frequencies.
    pub rope_base: f32,
    /// What RMS norm adds to the mean square.
    pub epsilon: f32,
}

impl LlamaConfig {
    /// SmolLM2-135M's.
    pub const SMOLLM2_135M: LlamaConfig = LlamaConfig {
        layers: 30,
        heads: 9,
        kv_heads: 3,
        width: 576,
        inner: 1536,
        context: 8192,
        vocabulary: 49_152,
        rope_base: 100_000.0,
        epsilon: 1e-5,
    };

    /// Reads it from the metadata.
    ///
    /// # Errors
    /// [`Error::Unsupported`] when the file describes another architecture, experts, or a stretched RoPE; [`Error::File`] when
    /// something is missing; [`Error::Invalid`] when the numbers do not fit together.
    pub fn of(file: &GgufFile) -> Result<LlamaConfig> {
        let architecture = file.text("general.architecture")?;
        let fix = "use a GGUF file whose general.architecture is llama, such as the one that `make model` fetches";
        if architecture != "llama" {
            let what = format!("{} is a model of the architecture `{architecture}`", file.path().display());
            return Err(Error::unsupported(what, fix));
        }
        if file.knows("llama.expert_count") && file.number("llama.expert_count")? > 0 {
            return Err(Error::unsupported("a Llama with experts (a mixture)", fix));
        }
        let stretched = file.knows("llama.rope.scaling.type") && file.text("llama.rope.scaling.type")? != "none";
        if stretched || file.has("rope_freqs.weight") {
            return Err(Error::unsupported("a Llama whose RoPE was stretched for longer texts", fix));
        }
        let number = |key: &str| file.number(&format!("llama.{key}"));
        let heads = number("attention.head_count")?;
        let config = LlamaConfig {
            layers: number("block_count")?,
            heads,
            kv_heads: match file.knows("llama.attention.head_count_kv") {
                true => number("attention.head_count_kv")?,
                false => heads,
            },
            width: number("embedding_length")?,
            inner: number("feed_forward_length")?,
            context: number("context_length")?,
            vocabulary: file.list("tokenizer.ggml.tokens")?.len(),
            rope_base: match file.knows("llama.rope.freq_base") {
                true => file.float("llama.rope.freq_base")? as f32,
                false => 10_000.0,
            },
            epsilon: file.float("llama.attention.layer_norm_rms_epsilon")? as f32,
        };
        config.checked(file)
    }

    fn checked(self, file: &GgufFile) -> Result<LlamaConfig> {
        let fails = |what: String| Error::invalid(format!("{}: {what}", file.path().display()), "fetch the file again");
        let counts = [self.layers, self.heads, self.kv_heads, self.width, self.inner, self.context, self.vocabulary];
        if counts.contains(&0) || !self.width.is_multiple_of(self.heads) || !self.heads.is_multiple_of(self.kv_heads) {
            return Err(fails(format!("its numbers of heads and its widths do not fit together: {self:?}")));
        }
        let rotated = match file.knows("llama.rope.dimension_count") {
            true => file.number("llama.rope.dimension_count")?,
            false => self.head_dim(),
        };
        if rotated != self.head_dim() || !rotated.is_multiple_of(2) {
            return Err(fails(format!(
                "RoPE is to rotate {rotated} numbers, and the head dimension is {}",
                self.head_dim()
            )));
        }
        Ok(self)
    }

    /// The head dimension.
    pub fn head_dim(&self) -> usize {
        self.width / self.heads
    }

    /// Weights in the blocks' projections: what a quantized file keeps in few bits.
    pub fn projection_count(&self) -> usize {
        let kv = self.kv_heads * self.head_dim();
        self.layers * (2 * self.width * self.width + 2 * self.width * kv + 3 * self.width * self.inner)
    }

    /// All parameters, the embedding once: it is the last matrix as well, where the file has no other (tied embeddings).
    pub fn parameter_count(&self) -> usize {
        self.projection_count() + self.vocabulary * self.width + (2 * self.layers + 1) * self.width
    }

    /// Bytes that a token has in the KV cache, with numbers of `number` bytes.
    pub fn cache_bytes_a_token(&self, number: usize) -> usize {
        2 * self.layers * self.kv_heads * self.head_dim() * number
    }
}

/// The seven matrices of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Projection {
    /// Queries.
    Q,
    /// Keys.
    K,
    /// Values.
    V,
    /// From the heads back to the model's width.
    Out,
    /// The half of SwiGLU that goes through SiLU.
    Gate,
    /// Its other half.
    Up,
    /// From the feed-forward layer's middle back to the model's width.
    Down,
}

/// What goes into a layer's matrices: several read the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Input {
    /// After the first norm: queries, keys and values read it.
    Attention,
    /// What attention has gathered.
    Gathered,
    /// After the second norm: both halves of SwiGLU read it.
    FeedForward,
    /// The middle of the feed-forward layer.
    Middle,
}

impl Projection {
    /// All of them, in the order in which a token meets them.
    pub const ALL: [Projection; 7] = [
        Projection::Q,
        Projection::K,
        Projection::V,
        Projection::Out,
        Projection::Gate,
        Projection::Up,
        Projection::Down,
    ];

    /// As GGUF files call it.
    pub fn name(self) -> &'static str {
        match self {
            Projection::Q => "attn_q",
            Projection::K => "attn_k",
            Projection::V => "attn_v",
            Projection::Out => "attn_output",
            Projection::Gate => "ffn_gate",
            Projection::Up => "ffn_up",
            Projection::Down => "ffn_down",
        }
    }

    /// What it reads.
    pub fn input(self) -> Input {
        match self {
            Projection::Q | Projection::K | Projection::V => Input::Attention,
            Projection::Out => Input::Gathered,
            Projection::Gate | Projection::Up => Input::FeedForward,
            Projection::Down => Input::Middle,
        }
    }

    /// Outputs and inputs.
    pub fn shape(self, config: &LlamaConfig) -> [usize; 2] {
        let kv = config.kv_heads * config.head_dim();
        match self {
            Projection::Q | Projection::Out => [config.width, config.width],
            Projection::K | Projection::V => [kv, config.width],
            Projection::Gate | Projection::Up => [config.inner, config.width],
            Projection::Down => [config.width, config.inner],
        }
    }
}
