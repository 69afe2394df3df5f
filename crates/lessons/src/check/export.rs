//! Exercises of lesson 42.

use super::Verdict;
use super::on_paper::part;
use super::verdict::{Check, ask, timed, verdict, wrong};
use gpulab::error::Result;
use gpulab_onnx::export::Onnx;
use gpulab_onnx::export::quantize::{Activations, QuantParams, ValueRange};
use gpulab_onnx::runtime::{ExecutionProvider, OnnxModel, OnnxTensor};

/// Checks a function that gives the step and the zero point of a value in 0 … 255 from the smallest and the largest number that
/// was seen of it. 0 must stay exactly 0, whatever was seen.
pub fn eight_bits(answer: fn(f32, f32) -> (f32, i32)) -> Verdict {
    timed("eight_bits", move || {
        for (low, high) in [(0.0, 2.55), (-1.0, 3.0), (-0.3, 0.7), (-5.0, 0.0), (1.0, 4.0), (-8.0, -2.0)] {
            let (scale, zero) = ask("", || answer(low, high))?;
            let right =
                QuantParams::of(ValueRange { low: f32::min(low, 0.0), high: f32::max(high, 0.0) }, Activations::U8);
            let near = (scale / right.scale - 1.0).abs() < 1e-4;
            // Halfway between two integers either will do.
            let nearest =
                (f64::from(zero) - f64::from(-low.min(0.0) / right.scale)).abs() <= 0.501 && (0..=255).contains(&zero);
            if !near || !nearest {
                let what = format!(
                    "seen {low} to {high}\nyou give a step of {scale} and the zero point {zero}; {} and {} are right",
                    right.scale, right.zero_point
                );
                return wrong(what, step_hint(low, high, scale, zero, right));
            }
        }
        Ok(())
    })
}

/// Which mistake gives such a step.
fn step_hint(low: f32, high: f32, scale: f32, zero: i32, right: QuantParams) -> &'static str {
    let is = |width: f32| (scale / width - 1.0).abs() < 1e-3;
    if !(scale > 0.0 && scale.is_finite()) {
        "a step is a positive number: how far it is from one integer to the next"
    } else if is((right.scale * 255.0) / 256.0) {
        "from 0 to 255 there are 255 steps, not 256"
    } else if is(high.max(-low) / 127.0) {
        "that is the step of −127 … 127; here the integers are 0 … 255, and all of them should be of use"
    } else if (low > 0.0 || high < 0.0) && is((high - low) / 255.0) {
        "0 must have an integer, even where all numbers that were seen lie on one side of it: pads are 0. Widen the range to it first"
    } else if is(right.scale) && (zero + right.zero_point).abs() <= 1 && zero < 0 {
        "the zero point is the integer that stands for 0: −low ÷ step, with a minus"
    } else if is(right.scale) && !(0..=255).contains(&zero) {
        "the zero point is one of the integers 0 … 255"
    } else if is(right.scale) {
        "the step is right. The smallest number becomes 0, so 0 becomes −low ÷ step, rounded"
    } else {
        "the range, with 0 in it, is cut into 255 steps: (high − low) ÷ 255"
    }
}

/// The layer whose steps [`slow_model`] has by blocks.
const ODD: &str = "fc1";

/// The puzzle of the exercise `left_in_f32`: the same network in 8 bits, whose file differs from a good one in one layer. Its
/// numbers are right, and a part of it is computed in f32.
///
/// # Errors
/// Where the model is not the CNN in 8 bits.
pub fn slow_model(model8: &Onnx) -> Result<Onnx> {
    model8.with_blocks(ODD)
}

/// Checks the answer: the layer that ONNX Runtime computes in f32, the operator that unpacks its weight in each call, and how many
/// bytes that operator writes each time.
pub fn left_in_f32(layer: &str, operator: &str, written: Option<f64>) -> Verdict {
    verdict("left_in_f32", || {
        if layer.is_empty() && operator.is_empty() {
            return wrong("no layer is named yet", "profile both files at batch 1: which rows has only one of them?");
        }
        if !["conv1", "conv2", "fc1", "fc2"].contains(&layer) {
            let hint = "the layers with weights are `conv1`, `conv2`, `fc1` and `fc2`; names of nodes begin with their layer's";
            return wrong(format!("the network has no layer `{layer}` with a weight"), hint);
        }
        if layer != ODD {
            let hint = "compare node by node: which layer's operator is not the one that the good file has there?";
            return wrong(format!("`{layer}` is computed by the same operator in both files"), hint);
        }
        match operator {
            "DequantizeLinear" => {
                let numbers = 9216.0 * 128.0;
                part(
                    "bytes written",
                    written,
                    0.999 * 4.0 * numbers..=1.001 * 4.0 * numbers,
                    &[
                        (numbers, "so many bytes are read, one for each weight; what is written is in f32"),
                        (5.0 * numbers, "a byte of each weight is read; how many are written?"),
                        (2.0 * numbers, "a number in f32 has 4 bytes"),
                    ],
                    "how many weights has this layer (section 2), and what does the operator make of each?",
                )
                .map(|_| ())
            }
            "QuantizeLinear" => wrong(
                "`QuantizeLinear` makes integers of floats, and both files round the values between layers so",
                "the weight is stored as integers, and a product in f32 takes floats",
            ),
            other => wrong(
                format!("the layer is right; but `{other}` unpacks no weight"),
                "beside the product itself the slow file has a node more for this layer: what does it read, and how many bytes?",
            ),
        }
    })
}

/// Inputs and outputs of the layer that [`own_graph`] asks for.
const INPUTS: usize = 6;
const OUTPUTS: usize = 4;

/// Checks a function that makes a file of one layer and its softmax: `x` [batch, 6] goes in, `probabilities` [batch, 4] come out.
/// The weight has a row for each output, as candle keeps it. ONNX Runtime runs the file with batches of several lengths.
pub fn own_graph(answer: fn(&[f32], &[f32]) -> Result<Onnx>) -> Verdict {
    timed("own_graph", move || {
        let numbers =
            |count: usize, step: usize| (0..count).map(|i| ((i * step + 3) % 11) as f32 / 4.0 - 1.2).collect();
        let (weight, bias): (Vec<f32>, Vec<f32>) = (numbers(OUTPUTS * INPUTS, 7), numbers(OUTPUTS, 5));
        let file = std::env::temp_dir().join(format!("gpulab-own-graph-{}.onnx", std::process::id()));
        ask("", || answer(&weight, &bias))??.write(&file)?;
        let opened = OnnxModel::open(&file, ExecutionProvider::Cpu);
        // The session has read it.
        let _ = std::fs::remove_file(&file);
        let mut model = opened?;
        let names = |ports: &[gpulab_onnx::export::ValueInfo]| -> Vec<String> {
            ports.iter().map(|port| port.name.clone()).collect()
        };
        let (inputs, outputs) = (names(model.inputs()), names(model.outputs()));
        if inputs != ["x"] || outputs != ["probabilities"] {
            let what = format!("the file takes {inputs:?} and gives {outputs:?}");
            return wrong(what, "one input named `x`, one output named `probabilities`: an output has its node's name");
        }
        [1, 3, 8].into_iter().try_for_each(|batch| gives_probabilities(&mut model, batch, &weight, &bias))
    })
}

fn gives_probabilities(model: &mut OnnxModel, batch: usize, weight: &[f32], bias: &[f32]) -> Check {
    let x: Vec<f32> = (0..batch * INPUTS).map(|i| ((i * 5 + 2) % 13) as f32 / 5.0 - 1.0).collect();
    let given = match model.run(&[("x", &OnnxTensor::new(&[batch, INPUTS], x.clone())?)]) {
        Ok(values) => values[0].1.f32s()?.to_vec(),
        Err(error) => {
            return wrong(
                format!("a batch of {batch}: {error}"),
                "an axis that may have any length has a name, such as `batch`",
            );
        }
    };
    let logit = |text: usize, out: usize, at: &dyn Fn(usize, usize) -> usize| {
        (0..INPUTS).map(|k| x[text * INPUTS + k] * weight[at(out, k)]).sum::<f32>() + bias[out]
    };
    let by_row = |out: usize, k: usize| out * INPUTS + k;
    let softmax = |logits: Vec<f32>| -> Vec<f32> {
        let sum: f32 = logits.iter().map(|x| x.exp()).sum();
        logits.iter().map(|x| x.exp() / sum).collect()
    };
    let rows = |at: &dyn Fn(usize, usize) -> usize| -> Vec<f32> {
        (0..batch).flat_map(|text| softmax((0..OUTPUTS).map(|out| logit(text, out, at)).collect())).collect()
    };
    let near =
        |wanted: &[f32]| given.len() == wanted.len() && given.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-4);
    let right = rows(&by_row);
    if near(&right) {
        return Ok(());
    }
    let what =
        format!("a batch of {batch}: you give {:.3?}, and {:.3?} is right", &given[..given.len().min(4)], &right[..4]);
    let sums = given.chunks(OUTPUTS).map(|row| row.iter().sum::<f32>()).collect::<Vec<_>>();
    let hint = if near(&rows(&|out, k| k * OUTPUTS + out)) {
        "the weight's numbers lie row after row, a row for each output: its shape is [4, 6]"
    } else if sums.iter().any(|sum| (sum - 1.0).abs() > 1e-3) {
        "the probabilities of a row do not add up to 1: along which axis does the softmax go, and is there one?"
    } else {
        "x · Wᵀ + b, then softmax: `Gemm` with `transB` 1, or `Transpose`, `MatMul` and `Add`"
    };
    wrong(what, hint)
}

/// Checks a number found on paper: the bytes of keys and values that cross between host and GPU in one step of generating,
/// read and written together, when they are not bound: 4 layers, 4 heads, head dimension 32, f32, 1000 tokens in the cache, one new.
pub fn cache_bytes(answer: u64) -> Verdict {
    verdict("cache_bytes", || {
        let position = 2 * 4 * 4 * 32 * 4;
        let right = position * (1000 + 1001);
        let hint = match answer {
            _ if answer == right => return Ok(()),
            0 => "what goes in holds 1000 tokens; what comes out holds one more",
            _ if 2 * answer == right => "keys and values: both are in the cache",
            _ if 4 * answer == right => "these are numbers; a number in f32 has 4 bytes",
            _ if answer == position * 1000 || answer == position * 1001 => "it goes there and comes back in each step",
            _ if answer == position * 2000 || answer == position * 2002 => {
                "what comes back is one token longer than what went there"
            }
            _ if answer == position => {
                "that is one token's; the whole past goes in and out, as a graph remembers nothing"
            }
            _ => "first the bytes of one token in all layers, then how many tokens go in, and how many come out",
        };
        wrong(format!("{answer} bytes are not what crosses"), hint)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab_onnx::export::{Attribute, DataType, Dim, GraphBuilder};

    #[test]
    fn a_step_passes_and_each_mistake_is_named() {
        let right: fn(f32, f32) -> (f32, i32) = |low, high| {
            let (low, high) = (low.min(0.0), high.max(0.0));
            let step = (high - low) / 255.0;
            (step, (-low / step).round() as i32)
        };
        assert!(eight_bits(right).passed(), "{}", eight_bits(right).text());
        type Answer = fn(f32, f32) -> (f32, i32);
        let wrong: [(Answer, &str); 7] = [
            (|low, high| ((high - low) / 255.0, (-low / ((high - low) / 255.0)).round() as i32), "Widen the range"),
            (|_, high| (high / 256.0, 0), "not 256"),
            (|low, high| (high.max(-low) / 127.0, 0), "−127 … 127"),
            (|low, high| ((high.max(0.0) - low.min(0.0)) / 255.0, 0), "so 0 becomes"),
            (
                |low, high| ((high.max(0.0) - low.min(0.0)) / 255.0, (low / ((high - low) / 255.0)) as i32),
                "with a minus",
            ),
            (|_, _| (0.0, 0), "positive number"),
            (|_, _| panic!("not there"), "instead of panicking"),
        ];
        for (index, (answer, part)) in wrong.into_iter().enumerate() {
            let text = eight_bits(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(part), "{index}: {text}");
        }
    }

    #[test]
    fn the_layer_in_f32_and_its_operator() {
        assert!(left_in_f32("fc1", "DequantizeLinear", Some(4_718_592.0)).passed());
        for (written, part) in
            [(None, "no number yet"), (Some(1_179_648.0), "is in f32"), (Some(7.0), "how many weights")]
        {
            let text = left_in_f32("fc1", "DequantizeLinear", written).text();
            assert!(text.starts_with("NOT YET") && text.contains(part), "{written:?}: {text}");
        }
        let wrong = [
            ("", "", "no layer is named yet"),
            ("conv2", "DequantizeLinear", "the same operator in both files"),
            ("fc2", "DequantizeLinear", "the same operator in both files"),
            ("fc1", "Gemm", "unpacks no weight"),
            ("fc1", "QuantizeLinear", "both files round"),
            ("fc1_quant", "DequantizeLinear", "no layer `fc1_quant`"),
            ("fc1", "", "unpacks no weight"),
        ];
        for (layer, operator, part) in wrong {
            let text = left_in_f32(layer, operator, None).text();
            assert!(text.starts_with("NOT YET") && text.contains(part), "{layer}, {operator}: {text}");
        }
    }

    #[test]
    fn bytes_of_the_cache_on_paper() {
        assert!(cache_bytes(8_196_096).passed());
        let wrong = [
            (0, "one more"),
            (4_098_048, "both are in the cache"),
            (2_049_024, "4 bytes"),
            (4_096_000, "there and comes back"),
            (8_192_000, "one token longer"),
            (4096, "one token's"),
            (7, "first the bytes of one token"),
        ];
        for (answer, part) in wrong {
            let text = cache_bytes(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(part), "{answer}: {text}");
        }
    }

    /// The layer by `Gemm`, with what the cases below change.
    fn layer(
        weight: &[f32],
        bias: &[f32],
        shape: [usize; 2],
        batch: Dim,
        told: &[(&'static str, i64)],
        last: &str,
    ) -> Result<Onnx> {
        let mut graph = GraphBuilder::new("a layer");
        let x = graph.input("x", DataType::F32, &[batch.clone(), INPUTS.into()]);
        let w = graph.weight("weight", &shape, weight);
        let b = graph.weight("bias", &[OUTPUTS], bias);
        let (softmax, gemm): (Vec<_>, Vec<_>) = told.iter().partition(|one| one.0 == "axis");
        let attributes =
            |of: &[&(&'static str, i64)]| of.iter().map(|one| (one.0, Attribute::Int(one.1))).collect::<Vec<_>>();
        let logits = graph.node("logits", "Gemm", &[&x, &w, &b], &attributes(&gemm));
        let out = graph.node(last, "Softmax", &[&logits], &attributes(&softmax));
        graph.output(&out, DataType::F32, &[batch, OUTPUTS.into()]);
        graph.finish()
    }

    #[test]
    fn a_graph_of_one_s_own_passes_and_each_mistake_is_named() {
        const ROWS: [(&str, i64); 2] = [("transB", 1), ("axis", -1)];
        let right = own_graph(|w, b| layer(w, b, [OUTPUTS, INPUTS], "batch".into(), &ROWS, "probabilities"));
        assert!(right.passed(), "{}", right.text());
        type Answer = fn(&[f32], &[f32]) -> Result<Onnx>;
        let wrong: [(Answer, &str); 5] = [
            (|w, b| layer(w, b, [OUTPUTS, INPUTS], "batch".into(), &ROWS, "out"), "named `probabilities`"),
            (|w, b| layer(w, b, [INPUTS, OUTPUTS], "batch".into(), &[("axis", -1)], "probabilities"), "row after row"),
            (
                |w, b| layer(w, b, [OUTPUTS, INPUTS], "batch".into(), &[("transB", 1), ("axis", 0)], "probabilities"),
                "add up to 1",
            ),
            (|w, b| layer(w, b, [OUTPUTS, INPUTS], 1.into(), &ROWS, "probabilities"), "has a name"),
            (|_, _| GraphBuilder::new("nothing").finish(), "NOT YET"),
        ];
        for (index, (answer, part)) in wrong.into_iter().enumerate() {
            let text = own_graph(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(part), "{index}: {text}");
        }
    }
}
