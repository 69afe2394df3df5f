//! GPT-2 with its KV cache. One graph reads a prompt and makes each further token: a prompt comes with a past of length 0.

use super::attribute::Attribute;
use super::graph::Graph;
use super::model::Onnx;
use super::value::{Dim, Kind, Numbers, Value};
use gpulab::error::Result;
use gpulab_nn::gpt::{Config, Weights};

/// What hides a key: exp of it is 0 in f32, and unlike −∞ it makes no NaN where a whole row is hidden.
const HIDDEN: f32 = -1e9;
/// GPT-2's, for all its layer norms.
const EPSILON: f32 = 1e-5;

/// A GPT-2 in f32, with the names that Hugging Face's tools know.
///
/// | in | | out | |
/// | --- | --- | --- | --- |
/// | `input_ids` | i64 [batch, sequence] | `logits` | f32 [batch, sequence, vocabulary] |
/// | `attention_mask` | i64 [batch, total_sequence], 0 for tokens that fill a text up on the left, else 1 | | |
/// | `position_ids` | i64 [batch, sequence], each token's place in its text | | |
/// | `past_key_values.N.key`, `.value` | f32 [batch, heads, past_sequence, head], for each layer N | `present.N.key`, `.value` | [batch, heads, total_sequence, head] |
///
/// `total_sequence` is `past_sequence + sequence`; the past may have a length of 0.
///
/// # Errors
/// None for weights in the shapes of their [`Config`].
pub fn gpt(weights: &Weights) -> Result<Onnx> {
    let config = weights.config();
    let mut graph = Graph::new("GPT-2");
    let (batch, sequence, past, total) = ("batch", "sequence", "past_sequence", "total_sequence");
    let ids = graph.input("input_ids", Kind::I64, &[batch.into(), sequence.into()]);
    let mask = graph.input("attention_mask", Kind::I64, &[batch.into(), total.into()]);
    let places = graph.input("position_ids", Kind::I64, &[batch.into(), sequence.into()]);
    let kept = |length: &str| -> [Dim; 4] { [batch.into(), config.n_head.into(), length.into(), config.head().into()] };

    let mut writer = Writer { graph, weights, config, constants: 0 };
    let table = writer.weight("wte.weight");
    let place_table = writer.weight("wpe.weight");
    let tokens = writer.graph.node("wte", "Gather", &[&table, &ids], &[]);
    let placed = writer.graph.node("wpe", "Gather", &[&place_table, &places], &[]);
    let mut x = writer.graph.node("embedding", "Add", &[&tokens, &placed], &[]);
    let hides = writer.mask(&ids, &mask);
    let mut cached = Vec::new();
    for layer in 0..config.n_layer {
        let name = |part: &str| format!("past_key_values.{layer}.{part}");
        let before = ["key", "value"].map(|part| writer.graph.input(&name(part), Kind::F32, &kept(past)));
        let (y, now) = writer.block(layer, x, &before, &hides);
        x = y;
        cached.extend(now);
    }
    let x = writer.norm("ln_f", &x);
    let logits = writer.head(&x, &table, &ids);
    let mut graph = writer.graph;
    graph.output(&logits, Kind::F32, &[batch.into(), sequence.into(), config.vocab_size.into()]);
    for value in &cached {
        graph.output(value, Kind::F32, &kept(total));
    }
    graph.note("layers, heads, width", &format!("{}, {}, {}", config.n_layer, config.n_head, config.n_embd));
    graph.note("longest text in tokens", &config.n_ctx.to_string());
    graph.note("parameters", &config.parameter_count().to_string());
    graph.finish()
}

struct Writer<'a> {
    graph: Graph,
    weights: &'a Weights,
    config: Config,
    constants: usize,
}

impl Writer<'_> {
    fn weight(&mut self, name: &str) -> Value {
        self.graph.shared_weight(name, self.weights.shared(name))
    }

    fn whole(&mut self, shape: &[usize], numbers: &[i64]) -> Value {
        self.constants += 1;
        self.graph.weight(&format!("constant{}", self.constants), shape, Numbers::I64(numbers))
    }

    fn number(&mut self, number: f32) -> Value {
        self.constants += 1;
        self.graph.weight(&format!("constant{}", self.constants), &[], Numbers::F32(&[number]))
    }

    fn reshape(&mut self, name: &str, x: &Value, shape: &[i64]) -> Value {
        let shape = self.whole(&[shape.len()], shape);
        self.graph.node(name, "Reshape", &[x, &shape], &[])
    }

    fn norm(&mut self, name: &str, x: &Value) -> Value {
        let (factor, summand) = (self.weight(&format!("{name}.weight")), self.weight(&format!("{name}.bias")));
        let told = [("axis", Attribute::Int(-1)), ("epsilon", EPSILON.into())];
        self.graph.node(name, "LayerNormalization", &[x, &factor, &summand], &told)
    }

    fn linear(&mut self, name: &str, x: &Value) -> Value {
        // GPT-2 keeps its weights [inputs, outputs], as MatMul takes them.
        let (weight, bias) = (self.weight(&format!("{name}.weight")), self.weight(&format!("{name}.bias")));
        let product = self.graph.node(&format!("{name}.product"), "MatMul", &[x, &weight], &[]);
        self.graph.node(name, "Add", &[&product, &bias], &[])
    }

    /// What is added to the scores, [batch, 1, sequence, total]: 0, or what hides a key that comes later, or that only fills up.
    fn mask(&mut self, ids: &Value, mask: &Value) -> Value {
        let length = |graph: &mut Graph, name: &str, of: &Value| {
            let told = [("start", Attribute::Int(1)), ("end", Attribute::Int(2))];
            graph.node(name, "Shape", &[of], &told)
        };
        let sequence = length(&mut self.graph, "mask.sequence", ids);
        let total = length(&mut self.graph, "mask.total", mask);
        // Range takes single numbers, and Shape gives rows of one.
        let (zero, one, single) = (self.whole(&[], &[0]), self.whole(&[], &[1]), self.whole(&[0], &[]));
        let sequence = self.graph.node("mask.queries", "Reshape", &[&sequence, &single], &[]);
        let total = self.graph.node("mask.keys", "Reshape", &[&total, &single], &[]);
        let past = self.graph.node("mask.past", "Sub", &[&total, &sequence], &[]);
        let keys = self.graph.node("mask.key", "Range", &[&zero, &total, &one], &[]);
        let queries = self.graph.node("mask.query", "Range", &[&past, &total, &one], &[]);
        let queries = self.reshape("mask.query_rows", &queries, &[-1, 1]);
        let later = self.graph.node("mask.later", "Greater", &[&keys, &queries], &[]);
        let filling = self.graph.node("mask.filling", "Equal", &[mask, &zero], &[]);
        let filling = self.filling_rows(&filling);
        let hidden = self.graph.node("mask.hidden", "Or", &[&later, &filling], &[]);
        let (hides, shows) = (self.number(HIDDEN), self.number(0.0));
        self.graph.node("mask", "Where", &[&hidden, &hides, &shows], &[])
    }

    /// [batch, total] as [batch, 1, 1, total].
    fn filling_rows(&mut self, filling: &Value) -> Value {
        let axes = self.whole(&[2], &[1, 2]);
        self.graph.node("mask.filling_rows", "Unsqueeze", &[filling, &axes], &[])
    }

    fn block(&mut self, layer: usize, x: Value, before: &[Value; 2], hides: &Value) -> (Value, [Value; 2]) {
        let of = |part: &str| format!("h.{layer}.{part}");
        let normed = self.norm(&of("ln_1"), &x);
        let (seen, now) = self.attention(layer, &normed, before, hides);
        let seen = self.linear(&of("attn.c_proj"), &seen);
        let x = self.graph.node(&of("attn.sum"), "Add", &[&x, &seen], &[]);
        let normed = self.norm(&of("ln_2"), &x);
        let up = self.linear(&of("mlp.c_fc"), &normed);
        let inner = self.graph.node(&of("mlp.gelu"), "Gelu", &[&up], &[("approximate", "tanh".into())]);
        let down = self.linear(&of("mlp.c_proj"), &inner);
        (self.graph.node(&of("mlp.sum"), "Add", &[&x, &down], &[]), now)
    }

    /// softmax(q · kᵀ / √d + mask) · v, with the past's keys and values before the new ones; gives both for the next call.
    fn attention(&mut self, layer: usize, x: &Value, before: &[Value; 2], hides: &Value) -> (Value, [Value; 2]) {
        let of = |part: &str| format!("h.{layer}.attn.{part}");
        let (heads, head, width) = (self.config.n_head as i64, self.config.head(), self.config.n_embd as i64);
        let qkv = self.linear(&of("c_attn"), x);
        let names = [of("q_row"), of("k_row"), of("v_row")];
        let told = [("axis", Attribute::Int(-1)), ("num_outputs", Attribute::Int(3))];
        let rows = self.graph.node_with(&of("split"), "Split", &[&qkv], &told, names.each_ref().map(String::as_str));
        let [q, k, v] = ["q", "k", "v"].map(|part| {
            let row = &rows["qkv".find(part).expect("one of the three")];
            // 0 stands for the axis as it is.
            let split = self.reshape(&of(&format!("{part}_heads")), row, &[0, 0, heads, head as i64]);
            self.graph.node(&of(part), "Transpose", &[&split], &[("perm", [0, 2, 1, 3].into())])
        });
        let along = [("axis", Attribute::Int(2))];
        let keys = self.graph.node(&format!("present.{layer}.key"), "Concat", &[&before[0], &k], &along);
        let values = self.graph.node(&format!("present.{layer}.value"), "Concat", &[&before[1], &v], &along);
        let scale = self.number(1.0 / (head as f32).sqrt());
        let q = self.graph.node(&of("q_scaled"), "Mul", &[&q, &scale], &[]);
        let turned = self.graph.node(&of("k_turned"), "Transpose", &[&keys], &[("perm", [0, 1, 3, 2].into())]);
        let scores = self.graph.node(&of("scores"), "MatMul", &[&q, &turned], &[]);
        let masked = self.graph.node(&of("masked"), "Add", &[&scores, hides], &[]);
        let shares = self.graph.node(&of("softmax"), "Softmax", &[&masked], &[("axis", Attribute::Int(-1))]);
        let seen = self.graph.node(&of("seen"), "MatMul", &[&shares, &values], &[]);
        let joined = self.graph.node(&of("joined"), "Transpose", &[&seen], &[("perm", [0, 2, 1, 3].into())]);
        (self.reshape(&of("row"), &joined, &[0, 0, width]), [keys, values])
    }

    /// The embedding's table again, as a product of two axes: so a runtime need not keep it a second time, turned.
    fn head(&mut self, x: &Value, table: &Value, ids: &Value) -> Value {
        let flat = self.reshape("head.rows", x, &[-1, self.config.n_embd as i64]);
        let product = self.graph.node("head.product", "Gemm", &[&flat, table], &[("transB", Attribute::Int(1))]);
        let (own, tokens) =
            (self.whole(&[1], &[self.config.vocab_size as i64]), self.graph.node("head.tokens", "Shape", &[ids], &[]));
        let shape = self.graph.node("head.shape", "Concat", &[&tokens, &own], &[("axis", Attribute::Int(0))]);
        self.graph.node("logits", "Reshape", &[&product, &shape], &[])
    }
}
