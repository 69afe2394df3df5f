//! A step in f64 on the host, by the formulas: what the kernels are compared with at small shapes.

use super::GptShape;
use super::shape::HEAD;
use gpulab::cpu;

/// What becomes of an array of activations, or of a gradient of one, before it is used again.
type Kept<'a> = &'a dyn Fn(Vec<f64>) -> Vec<f64>;

/// Loss and gradients of a batch in f64.
#[derive(Debug, Clone, PartialEq)]
pub struct GptReference {
    /// The mean loss.
    pub loss: f64,
    /// In the order of [`GptShape::tensors`].
    pub gradients: Vec<f64>,
}

/// y (rows × outputs) = x · wᵀ + b.
fn linear(x: &[f64], w: &[f64], b: &[f64], inputs: usize) -> Vec<f64> {
    let rows = x.chunks_exact(inputs);
    rows.flat_map(|x| w.chunks_exact(inputs).zip(b).map(move |(w, b)| dot(x, w) + b)).collect()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Adds the gradients of w and b, and gives that of x.
fn linear_backward(x: &[f64], w: &[f64], dy: &[f64], inputs: usize, dw: &mut [f64], db: &mut [f64]) -> Vec<f64> {
    let outputs = w.len() / inputs;
    let mut dx = vec![0.0; x.len()];
    for ((x, dy), dx) in x.chunks_exact(inputs).zip(dy.chunks_exact(outputs)).zip(dx.chunks_exact_mut(inputs)) {
        for (output, &d) in dy.iter().enumerate() {
            let row = output * inputs..(output + 1) * inputs;
            db.get_mut(output).into_iter().for_each(|db| *db += d);
            dw[row.clone()].iter_mut().zip(x).for_each(|(dw, x)| *dw += d * x);
            dx.iter_mut().zip(&w[row]).for_each(|(dx, w)| *dx += d * w);
        }
    }
    dx
}

fn moments(x: &[f64]) -> (f64, f64) {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let variance = x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    (mean, 1.0 / (variance + 1e-5).sqrt())
}

/// Scale and shift lie one behind the other.
fn norm(x: &[f64], w: &[f64], width: usize) -> Vec<f64> {
    let row = |x: &[f64]| {
        let (mean, rstd) = moments(x);
        (0..width).map(|i| (x[i] - mean) * rstd * w[i] + w[width + i]).collect::<Vec<_>>()
    };
    x.chunks_exact(width).flat_map(row).collect()
}

fn norm_backward(x: &[f64], w: &[f64], dy: &[f64], width: usize, dw: &mut [f64]) -> Vec<f64> {
    let n = width as f64;
    let mut dx = Vec::with_capacity(x.len());
    for (x, dy) in x.chunks_exact(width).zip(dy.chunks_exact(width)) {
        let (mean, rstd) = moments(x);
        let unit: Vec<f64> = x.iter().map(|x| (x - mean) * rstd).collect();
        let d: Vec<f64> = (0..width).map(|i| dy[i] * w[i]).collect();
        let (total, along) = (d.iter().sum::<f64>() / n, dot(&d, &unit) / n);
        for i in 0..width {
            dw[i] += dy[i] * unit[i];
            dw[width + i] += dy[i];
            dx.push((d[i] - total - unit[i] * along) * rstd);
        }
    }
    dx
}

fn gelu(x: f64) -> f64 {
    0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044715 * x.powi(3))).tanh())
}

const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;

fn gelu_slope(x: f64) -> f64 {
    let t = (SQRT_2_OVER_PI * (x + 0.044715 * x.powi(3))).tanh();
    0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * SQRT_2_OVER_PI * (1.0 + 3.0 * 0.044715 * x * x)
}

/// Causal attention of a text; q, k and v lie beside each other in a token's row. The weights are given, too.
fn attention(qkv: &[f64], width: usize, kept: Kept<'_>) -> (Vec<f64>, Vec<f64>) {
    let length = qkv.len() / (3 * width);
    let heads = width / HEAD;
    let (mut o, mut weights) = (vec![0.0; length * width], vec![0.0; heads * length * length]);
    let part = |token: usize, which: usize, head: usize| {
        let at = token * 3 * width + which * width + head * HEAD;
        &qkv[at..at + HEAD]
    };
    for head in 0..heads {
        for query in 0..length {
            let score = |key: usize| dot(part(query, 0, head), part(key, 1, head)) / (HEAD as f64).sqrt();
            let scores: Vec<f64> = (0..=query).map(score).collect();
            let most = scores.iter().copied().fold(f64::MIN, f64::max);
            let total: f64 = scores.iter().map(|score| (score - most).exp()).sum();
            // The kernels round e^(score - most), and divide at the end.
            let powers = kept(scores.iter().map(|score| (score - most).exp()).collect());
            for (key, power) in powers.iter().enumerate() {
                weights[(head * length + query) * length + key] = (scores[key] - most).exp() / total;
                for i in 0..HEAD {
                    o[query * width + head * HEAD + i] += power / total * part(key, 2, head)[i];
                }
            }
        }
    }
    (o, weights)
}

fn attention_backward(qkv: &[f64], weights: &[f64], [o, d_o]: [&[f64]; 2], width: usize, kept: Kept<'_>) -> Vec<f64> {
    let length = qkv.len() / (3 * width);
    let mut d = vec![0.0; qkv.len()];
    let place = |token: usize, which: usize, head: usize| token * 3 * width + which * width + head * HEAD;
    for head in 0..width / HEAD {
        for query in 0..length {
            let [o, d_o] = [o, d_o].map(|array| &array[query * width + head * HEAD..][..HEAD]);
            let weight = |key: usize| weights[(head * length + query) * length + key];
            let dp = |key: usize| dot(d_o, &qkv[place(key, 2, head)..][..HEAD]);
            let delta = dot(o, d_o);
            let slopes = kept((0..=query).map(|key| weight(key) * (dp(key) - delta)).collect());
            let rounded = kept((0..=query).map(weight).collect());
            for key in 0..=query {
                let ds = slopes[key] / (HEAD as f64).sqrt();
                for i in 0..HEAD {
                    d[place(key, 2, head) + i] += rounded[key] * d_o[i];
                    d[place(query, 0, head) + i] += ds * qkv[place(key, 1, head) + i];
                    d[place(key, 1, head) + i] += ds * qkv[place(query, 0, head) + i];
                }
            }
        }
    }
    d
}

fn add(a: &mut [f64], b: &[f64]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
}

/// Loss and gradients of a batch of texts of context + 1 tokens, all in f64.
pub fn reference_step(shape: &GptShape, parameters: &[f64], tokens: &[u32]) -> GptReference {
    step_with(shape, parameters, tokens, &|array| array)
}

/// The same where each array that passes from kernel to kernel is rounded to bf16: how far that alone moves the gradients.
pub fn rounded_step(shape: &GptShape, parameters: &[f64], tokens: &[u32]) -> GptReference {
    let round = |x: f64| f64::from(cpu::f32_from_bf16(cpu::bf16_from_f32(x as f32)));
    step_with(shape, parameters, tokens, &|array| array.into_iter().map(round).collect())
}

fn step_with(shape: &GptShape, parameters: &[f64], tokens: &[u32], kept: Kept<'_>) -> GptReference {
    let (c, context) = (shape.width(), shape.context);
    let offsets = shape.offsets();
    let batch = tokens.len() / (context + 1);
    let scale = 1.0 / (batch * context) as f64;
    let mut gradients = vec![0.0; parameters.len()];
    let mut loss = 0.0;
    for text in tokens.chunks_exact(context + 1) {
        let of = |layer: usize, at: usize, len: usize| {
            let begin = shape.layer(layer).start + at;
            begin..begin + len
        };
        let get = |layer: usize, at: usize, len: usize| &parameters[of(layer, at, len)];
        let row = |token: usize| &parameters[token * c..(token + 1) * c];
        let mut x: Vec<f64> = Vec::new();
        for (at, &token) in text[..context].iter().enumerate() {
            let position = &parameters[shape.positions() + at * c..][..c];
            x.extend(row(token as usize).iter().zip(position).map(|(a, b)| a + b));
        }
        x = kept(x);
        let mut layers = Vec::new();
        for layer in 0..shape.layers {
            let before = x.clone();
            let normed_1 = kept(norm(&x, get(layer, offsets.norm_1, 2 * c), c));
            let qkv =
                kept(linear(&normed_1, get(layer, offsets.qkv, 3 * c * c), get(layer, offsets.qkv_bias, 3 * c), c));
            let (o, weights) = attention(&qkv, c, kept);
            let o = kept(o);
            let y = linear(&o, get(layer, offsets.project, c * c), get(layer, offsets.project_bias, c), c);
            add(&mut x, &kept(y));
            x = kept(x);
            let middle = x.clone();
            let normed_2 = kept(norm(&x, get(layer, offsets.norm_2, 2 * c), c));
            let h = kept(linear(&normed_2, get(layer, offsets.up, 4 * c * c), get(layer, offsets.up_bias, 4 * c), c));
            let g = kept(h.iter().map(|&h| gelu(h)).collect());
            let y = linear(&g, get(layer, offsets.down, 4 * c * c), get(layer, offsets.down_bias, c), 4 * c);
            add(&mut x, &kept(y));
            x = kept(x);
            layers.push((before, normed_1, qkv, o, weights, middle, normed_2, h, g));
        }
        let last = shape.layer(shape.layers);
        let normed = kept(norm(&x, &parameters[last.clone()], c));
        let mut d_normed = vec![0.0; normed.len()];
        for at in 0..context {
            let normed = &normed[at * c..(at + 1) * c];
            let logits = kept((0..shape.vocabulary).map(|token| dot(normed, row(token))).collect());
            let most = logits.iter().copied().fold(f64::MIN, f64::max);
            let total: f64 = logits.iter().map(|x| (x - most).exp()).sum();
            let target = text[at + 1] as usize;
            loss += (total.ln() + most - logits[target]) * scale;
            let slope =
                |(token, x): (usize, &f64)| ((x - most).exp() / total - f64::from(u8::from(token == target))) * scale;
            let slopes = kept(logits.iter().enumerate().map(slope).collect());
            for (token, d) in slopes.into_iter().enumerate() {
                for i in 0..c {
                    d_normed[at * c + i] += d * row(token)[i];
                    gradients[token * c + i] += d * normed[i];
                }
            }
        }
        let d_normed = kept(d_normed);
        let mut dx = kept(norm_backward(&x, &parameters[last.clone()], &d_normed, c, &mut gradients[last]));
        for layer in (0..shape.layers).rev() {
            let (before, normed_1, qkv, o, weights, middle, normed_2, h, g) = &layers[layer];
            let mut own = |at: usize, len: usize, add_to: &[f64]| add(&mut gradients[of(layer, at, len)], add_to);
            let mut through = |x: &[f64], dy: &[f64], w: usize, b: usize, outputs: usize, inputs: usize| {
                let (mut dw, mut db) = (vec![0.0; outputs * inputs], vec![0.0; outputs]);
                let dx = linear_backward(x, get(layer, w, outputs * inputs), dy, inputs, &mut dw, &mut db);
                own(w, outputs * inputs, &dw);
                own(b, outputs, &db);
                dx
            };
            let dg = kept(through(g, &dx, offsets.down, offsets.down_bias, c, 4 * c));
            let dh = kept(dg.iter().zip(h).map(|(d, &h)| d * gelu_slope(h)).collect());
            let dn = kept(through(normed_2, &dh, offsets.up, offsets.up_bias, 4 * c, c));
            let mut d_norm = vec![0.0; 2 * c];
            let past = norm_backward(middle, get(layer, offsets.norm_2, 2 * c), &dn, c, &mut d_norm);
            add(&mut dx, &past);
            dx = kept(dx);
            let d_o = kept(through(o, &dx, offsets.project, offsets.project_bias, c, c));
            let d_qkv = kept(attention_backward(qkv, weights, [o, &d_o], c, kept));
            let dn = kept(through(normed_1, &d_qkv, offsets.qkv, offsets.qkv_bias, 3 * c, c));
            own(offsets.norm_2, 2 * c, &d_norm);
            let mut d_norm = vec![0.0; 2 * c];
            let past = norm_backward(before, get(layer, offsets.norm_1, 2 * c), &dn, c, &mut d_norm);
            own(offsets.norm_1, 2 * c, &d_norm);
            add(&mut dx, &past);
            dx = kept(dx);
        }
        for (at, &token) in text[..context].iter().enumerate() {
            let d = &dx[at * c..(at + 1) * c];
            add(&mut gradients[token as usize * c..][..c], d);
            add(&mut gradients[shape.positions() + at * c..][..c], d);
        }
    }
    GptReference { loss, gradients }
}
