//! Each operator in the simulator against candle's own in f64.

use super::*;
use crate::plain_attention;
use candle_core::{D, DType, Device, Var};
use gpulab::cpu::random_f32;
use gpulab::sim::BlockOrder;

/// Rows are no multiple of a warp's or a tile's, the vocabulary is none of 128.
const SHAPE: GptShape = GptShape { layers: 1, heads: 3, vocabulary: 301, context: 19 };
const ROWS: usize = 2 * 17;

fn operators() -> CandleOperators {
    // Results must not depend on which block starts first.
    CandleOperators::new(&Gpu::simulated_in(BlockOrder::Reverse).unwrap(), SHAPE).unwrap()
}

/// Random numbers that bf16 represents exactly.
fn random(rows: usize, columns: usize, seed: u64, size: f64) -> Tensor {
    let values = Tensor::from_vec(random_f32(rows * columns, seed), (rows, columns), &Device::Cpu).unwrap();
    (values * size).unwrap().to_dtype(DType::BF16).unwrap()
}

/// The same as candle's own operators get it.
fn exact(x: &Tensor) -> Var {
    Var::from_tensor(&x.to_dtype(DType::F64).unwrap()).unwrap()
}

/// Replaces some rows by another tensor's, times a factor: awkward inputs among the others.
fn with_rows(x: &Tensor, rows: std::ops::Range<usize>, factor: f64) -> Tensor {
    let scaled = (x.to_dtype(DType::F32).unwrap() * factor).unwrap().to_dtype(DType::BF16).unwrap();
    let part = |of: &Tensor, from: usize, to: usize| of.narrow(0, from, to - from).unwrap();
    let end = x.dim(0).unwrap();
    Tensor::cat(&[part(x, 0, rows.start), part(&scaled, rows.start, rows.end), part(x, rows.end, end)], 0).unwrap()
}

/// ‖given − exact‖ ÷ ‖exact‖.
fn off(given: &Tensor, exact: &Tensor) -> f64 {
    assert_eq!(given.dims(), exact.dims());
    let list = |x: &Tensor| x.to_dtype(DType::F64).unwrap().flatten_all().unwrap().to_vec1::<f64>().unwrap();
    let (given, exact) = (list(given), list(exact));
    let size = exact.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!(size > 0.0, "there is nothing to compare");
    given.iter().zip(&exact).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt() / size
}

/// Result and gradients of the sum of result · weights, ours beside candle's in f64.
fn agrees(
    inputs: &[Tensor],
    allowed: f64,
    own: impl Fn(&[Tensor]) -> Result<Tensor>,
    candle: impl Fn(&[Tensor]) -> candle_core::Result<Tensor>,
) {
    let (vars, wide): (Vec<Var>, Vec<Var>) = inputs.iter().map(|x| (Var::from_tensor(x).unwrap(), exact(x))).unzip();
    let tensors = |vars: &[Var]| vars.iter().map(|var| var.as_tensor().clone()).collect::<Vec<_>>();
    let (y, wanted) = (own(&tensors(&vars)).unwrap(), candle(&tensors(&wide)).unwrap());
    assert!(off(&y, &wanted) < allowed, "result: {}", off(&y, &wanted));
    let weights = random(1, y.elem_count(), 77, 1.0).reshape(y.shape()).unwrap();
    let gradients = |y: &Tensor, weights: &Tensor| (y * weights).unwrap().sum_all().unwrap().backward().unwrap();
    let (own, wanted) = (gradients(&y, &weights.to_dtype(y.dtype()).unwrap()), gradients(&wanted, &exact(&weights)));
    for (at, (var, wide)) in vars.iter().zip(&wide).enumerate() {
        let (given, wanted) = (own.get(var).expect("a gradient"), wanted.get(wide).expect("a gradient"));
        assert_eq!(given.dtype(), var.dtype());
        assert!(off(given, wanted) < allowed, "gradient {at}: {}", off(given, wanted));
        // Row by row, too: a wrong one is not to be lost among others.
        let rows = |x: &Tensor| x.reshape(((), x.dim(D::Minus1).unwrap())).unwrap();
        let (given, wanted) = (rows(given), rows(wanted));
        let size = wanted.sqr().unwrap().mean_all().unwrap().to_scalar::<f64>().unwrap().sqrt();
        for row in 0..wanted.dim(0).unwrap() {
            let (given, wanted) = (given.get(row).unwrap(), wanted.get(row).unwrap());
            let apart = (given.to_dtype(DType::F64).unwrap() - &wanted).unwrap().sqr().unwrap();
            let apart = apart.mean_all().unwrap().to_scalar::<f64>().unwrap().sqrt();
            let own = wanted.sqr().unwrap().mean_all().unwrap().to_scalar::<f64>().unwrap().sqrt();
            assert!(apart < 2.0 * allowed * own.max(0.1 * size), "gradient {at}, row {row}: {apart} of {own}");
        }
    }
}

fn in_f32(x: &Tensor) -> Tensor {
    x.to_dtype(DType::F32).unwrap()
}

#[test]
fn layer_norm_of_equal_and_of_large_numbers() {
    let (own, c) = (operators(), SHAPE.width());
    // A row of equal numbers, whose deviation is 0, and large ones.
    let x = with_rows(&with_rows(&random(ROWS, c, 1, 2.0), 5..6, 0.0), 6..8, 300.0);
    let factors = in_f32(&random(2, c, 2, 1.5));
    agrees(
        &[x, factors],
        0.006,
        |x| own.norm(&x[0], &x[1]),
        |x| {
            let away = x[0].broadcast_sub(&x[0].mean_keepdim(D::Minus1)?)?;
            let deviation = (away.sqr()?.mean_keepdim(D::Minus1)? + 1e-5)?.sqrt()?;
            away.broadcast_div(&deviation)?.broadcast_mul(&x[1].narrow(0, 0, 1)?)?.broadcast_add(&x[1].narrow(0, 1, 1)?)
        },
    );
}

#[test]
fn linear_layers_with_and_without_gelu() {
    let (own, c) = (operators(), SHAPE.width());
    // The sides of the weight are multiples of 8, and of nothing else.
    for outputs in [8, 264] {
        let x = with_rows(&with_rows(&random(ROWS, c, 3, 1.0), 0..1, 0.0), 1..2, 40.0);
        let inputs = [x, random(outputs, c, 4, 0.1), in_f32(&random(1, outputs, 5, 1.0).flatten_all().unwrap())];
        let product = |x: &[Tensor]| x[0].matmul(&x[1].t()?)?.broadcast_add(&x[2]);
        agrees(&inputs, 0.006, |x| own.linear(&x[0], &x[1], &x[2]), product);
        // candle's derivative of its GELU has rounded constants: this one is of the formula.
        let gelu = |x: &[Tensor]| {
            let h = product(x)?;
            let inner = ((&h + (h.powf(3.0)? * 0.044715)?)? * (2.0 / std::f64::consts::PI).sqrt())?;
            (h * 0.5)? * (inner.tanh()? + 1.0)?
        };
        agrees(&inputs, 0.008, |x| own.linear_gelu(&x[0], &x[1], &x[2]), gelu);
    }
}

#[test]
fn attention_of_equal_and_of_large_scores() {
    let (own, c) = (operators(), SHAPE.width());
    // A query to which all keys are the same, and some whose scores leave one key alone.
    let qkv = with_rows(&with_rows(&random(ROWS, 3 * c, 6, 1.0), 9..10, 0.0), 11..13, 8.0);
    agrees(
        &[qkv],
        0.012,
        |x| own.attend(&x[0], ROWS / 2),
        |x| {
            let heads = |part: usize| {
                let rows = x[0].narrow(1, part * c, c)?;
                rows.reshape((2, ROWS / 2, SHAPE.heads, GptShape::HEAD))?.transpose(1, 2)?.contiguous()
            };
            let y = plain_attention(&heads(0)?, &heads(1)?, &heads(2)?, true).unwrap();
            y.transpose(1, 2)?.reshape((ROWS, c))
        },
    );
}

#[test]
fn cross_entropy_of_equal_and_of_large_logits() {
    let (own, c) = (operators(), SHAPE.width());
    let x = with_rows(&with_rows(&random(ROWS, c, 7, 1.0), 3..4, 0.0), 4..6, 60.0);
    // Rows beyond the vocabulary hold numbers here, which nobody may see.
    let table = random(SHAPE.rows(), c, 8, 0.3);
    let tokens: Vec<i32> = (0..ROWS).map(|row| ((row * 97) % SHAPE.vocabulary) as i32).collect();
    let targets = Tensor::from_slice(&tokens, ROWS, &Device::Cpu).unwrap();
    let share = 1.0 / ROWS as f32;
    let wide = targets.to_dtype(DType::U32).unwrap().unsqueeze(1).unwrap();
    let losses = |x: &[Tensor]| {
        let logits = x[0].matmul(&x[1].narrow(0, 0, SHAPE.vocabulary)?.t()?)?;
        // As ours are stored: of a logit of 200 that is half of one.
        let logits = logits.to_dtype(DType::BF16)?.to_dtype(DType::F64)?;
        let most = logits.detach().max_keepdim(D::Minus1)?;
        let sum = logits.broadcast_sub(&most)?.exp()?.sum_keepdim(D::Minus1)?.log()?.add(&most)?;
        sum.sub(&logits.gather(&wide, 1)?)?.squeeze(1)
    };
    let inputs = [x, table];
    let exact_losses = losses(&[exact(&inputs[0]).as_tensor().clone(), exact(&inputs[1]).as_tensor().clone()]).unwrap();
    assert!(exact_losses.max(0).unwrap().to_scalar::<f64>().unwrap() > 100.0, "no logit is large");
    assert!(off(&own.losses(&inputs[0], &inputs[1], &targets).unwrap(), &exact_losses) < 1e-4);
    let loss = |x: &[Tensor]| own.cross_entropy(&x[0], &x[1], &targets, share);
    agrees(&inputs, 0.012, loss, |x| losses(x)?.mean_all());
}

#[test]
fn a_cross_entropy_has_its_weight_and_gives_its_memory_away_once() {
    let (own, c) = (operators(), SHAPE.width());
    let (x, table) = (Var::from_tensor(&random(3, c, 9, 1.0)).unwrap(), random(SHAPE.rows(), c, 10, 0.3));
    let targets = Tensor::from_slice(&[0_i32, 300, 7], 3, &Device::Cpu).unwrap();
    let gradient = |share: f32, times: f64| {
        let loss = (own.cross_entropy(&x, &table, &targets, share).unwrap() * times).unwrap();
        loss.backward().unwrap().get(&x).unwrap().to_dtype(DType::F64).unwrap()
    };
    // Powers of two round nothing.
    let (one, other) = (gradient(0.125, 1.0), gradient(0.5, 2.0));
    assert_eq!(off(&(one * 8.0).unwrap(), &other), 0.0);
    let loss = own.cross_entropy(&x, &table, &targets, 1.0).unwrap();
    loss.backward().unwrap();
    let text = loss.backward().unwrap_err().to_string();
    assert!(text.contains("a second backward pass"), "{text}");
}

#[test]
fn misfits_are_named() {
    let (own, c) = (operators(), SHAPE.width());
    let refused = |y: Result<Tensor>| {
        let text = y.unwrap_err().to_string();
        assert!(text.contains("next: "), "{text}");
        text
    };
    let (x, factors) = (random(5, c, 1, 1.0), in_f32(&random(2, c, 2, 1.0)));
    assert!(refused(own.norm(&in_f32(&x), &factors)).contains("bf16 is expected"));
    assert!(refused(own.norm(&x, &random(2, c, 2, 1.0))).contains("f32 is expected"));
    assert!(refused(own.norm(&x, &factors.narrow(0, 0, 1).unwrap())).contains("scales and shifts"));
    assert!(refused(own.norm(&x.narrow(1, 0, 8).unwrap(), &factors)).contains("rows"));
    let (weight, bias) = (random(16, c, 3, 1.0), in_f32(&random(1, 8, 4, 1.0).flatten_all().unwrap()));
    assert!(refused(own.linear(&x, &weight, &bias)).contains("its bias"));
    assert!(refused(own.linear(&x, &weight.narrow(1, 0, 8).unwrap(), &bias)).contains("inputs"));
    assert!(refused(own.attend(&random(6, 3 * c, 5, 1.0), 4)).contains("6 rows as texts of 4 tokens"));
    assert!(refused(own.attend(&random(40, 3 * c, 5, 1.0), 20)).contains("context of 19"));
    let targets = Tensor::zeros(4, DType::U32, &Device::Cpu).unwrap();
    let table = random(SHAPE.rows(), c, 6, 1.0);
    assert!(refused(own.losses(&x, &table, &targets)).contains("u32"));
    let few = targets.to_dtype(DType::I32).unwrap();
    assert!(refused(own.losses(&x, &table, &few)).contains("targets"));
    // A model's [texts, tokens, width] in place of rows.
    let (texts, narrow) = (x.unsqueeze(0).unwrap(), table.narrow(1, 0, 8).unwrap());
    refused(own.losses(&texts, &table, &few));
    refused(own.cross_entropy(&texts, &table, &few, 1.0));
    assert!(refused(own.cross_entropy(&x, &narrow, &few, 1.0)).contains("rows of a cross-entropy"));
    refused(own.attend(&x.flatten_all().unwrap(), 5));
}
