//! Exercises of lesson 42.

use super::Verdict;
use super::verdict::{Check, ask, verdict, wrong};
use gpulab_onnx::export::quantize::{Activations, QuantParams, ValueRange};
use gpulab_onnx::export::{Attribute, DataType, Dim, GraphBuilder, Onnx, Value};

/// Checks a function that gives the step and the zero point of a value in 0 … 255 from the smallest and the largest number that
/// was seen of it. 0 must stay exactly 0, whatever was seen.
pub fn eight_bits(answer: fn(f32, f32) -> (f32, i32)) -> Verdict {
    verdict("eight_bits", || {
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

/// Checks a function that gives the places of `new` tokens which follow `past` tokens that are in the cache.
pub fn positions(answer: fn(usize, usize) -> Vec<i64>) -> Verdict {
    verdict("positions", || {
        for (past, new) in [(0, 5), (5, 1), (6, 1), (9, 3), (0, 1)] {
            let given = ask("", || answer(past, new))?;
            let (from, wanted): (i64, Vec<i64>) = (past as i64, (past as i64..(past + new) as i64).collect());
            if given != wanted {
                let hint = if past > 0 && given.len() == past + new {
                    "only the new tokens are given to the model: their places alone are asked for"
                } else if given.len() != new {
                    "each new token has one place"
                } else if given.iter().eq((0..new as i64).collect::<Vec<_>>().iter()) {
                    "these are the places in the call, not in the text: the tokens in the cache come before them"
                } else if given.iter().all(|place| *place == given[0]) {
                    "each token has a place of its own"
                } else if given.iter().zip(&wanted).all(|(a, b)| *a == b + 1) || given.first() == Some(&(from + 1)) {
                    "places count from 0: the first token behind `past` others has the place `past`"
                } else {
                    "the first new token has the place `past`, the next one the place behind it"
                };
                return wrong(format!("{past} in the cache, {new} new\nyou give {given:?}"), hint);
            }
        }
        Ok(())
    })
}

/// Checks a function that adds to the graph what makes probabilities of the logits [batch, 10], and gives them.
pub fn probabilities(answer: fn(&mut GraphBuilder, &Value) -> Value) -> Verdict {
    verdict("probabilities", || {
        let shape: [Dim; 2] = ["batch".into(), 10.into()];
        let built = ask("", || {
            let mut graph = GraphBuilder::new("head");
            let logits = graph.input("logits", DataType::F32, &shape);
            let value = answer(&mut graph, &logits);
            graph.output(&value, DataType::F32, &shape);
            graph.finish()
        })?;
        match built {
            Err(error) => {
                wrong(error.to_string(), "each node takes values that were there before it, by their `Value`")
            }
            Ok(model) => check_head(&model),
        }
    })
}

fn check_head(model: &Onnx) -> Check {
    let nodes = model.nodes();
    let Some(last) = nodes.iter().find(|node| Some(&node.outputs[0]) == model.outputs().first().map(|port| &port.name))
    else {
        return wrong("the output is no node's".to_string(), "give back what the new node gives");
    };
    if last.operator != "Softmax" {
        let what = format!("the output comes from `{}`, a {}", last.name, last.operator);
        return wrong(what, "ONNX has an operator that makes numbers above 0 with the sum 1 of any numbers: `Softmax`");
    }
    if last.inputs != ["logits"] {
        let what = format!("`{}` takes {}", last.name, last.inputs.join(", "));
        return wrong(what, "softmax is taken of the logits themselves: another function before it changes the shares");
    }
    let axis = last.attributes.iter().find(|(name, _)| name == "axis").map(|(_, value)| value.clone());
    match axis {
        // Left out, it is the last one.
        None | Some(Attribute::Int(1 | -1)) if last.attributes.len() <= 1 => Ok(()),
        Some(Attribute::Int(axis)) => wrong(
            format!("`{}` sums over the axis {axis}", last.name),
            "the ten numbers of one image have the sum 1: that is axis 1, or -1, the last. Axis 0 are the images",
        ),
        _ => wrong(format!("`{}` is told {:?}", last.name, last.attributes), "Softmax is told its `axis`, and no more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn places_pass_and_each_mistake_is_named() {
        assert!(positions(|past, new| (past..past + new).map(|place| place as i64).collect()).passed());
        type Answer = fn(usize, usize) -> Vec<i64>;
        let wrong: [(Answer, &str); 6] = [
            (|_, new| (0..new as i64).collect(), "not in the text"),
            (|past, new| (0..(past + new) as i64).collect(), "only the new tokens"),
            (|past, new| (past + 1..=past + new).map(|place| place as i64).collect(), "count from 0"),
            (|past, new| vec![past as i64; new], "a place of its own"),
            (|_, _| vec![], "each new token has one place"),
            (|_, _| panic!("not there"), "instead of panicking"),
        ];
        for (index, (answer, part)) in wrong.into_iter().enumerate() {
            let text = positions(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(part), "{index}: {text}");
        }
    }

    #[test]
    fn a_head_passes_and_each_mistake_is_named() {
        let told = |axis: i64| [("axis", Attribute::Int(axis))];
        assert!(probabilities(|graph, x| graph.node("p", "Softmax", &[x], &[])).passed());
        assert!(probabilities(|graph, x| graph.node("p", "Softmax", &[x], &[("axis", Attribute::Int(-1))])).passed());
        assert_eq!(told(1)[0].1, Attribute::from(1));
        type Answer = fn(&mut GraphBuilder, &Value) -> Value;
        let wrong: [(Answer, &str); 6] = [
            (|_, x| x.clone(), "the output is no node's"),
            (|graph, x| graph.node("p", "Relu", &[x], &[]), "a Relu"),
            (|graph, x| graph.node("p", "Softmax", &[x], &[("axis", 0.into())]), "Axis 0 are the images"),
            (
                |graph, x| {
                    let positive = graph.node("positive", "Relu", &[x], &[]);
                    graph.node("p", "Softmax", &[&positive], &[])
                },
                "of the logits themselves",
            ),
            (|graph, x| graph.node("p", "SoftMax", &[x], &[]), "asks for the operator `SoftMax`"),
            (|_, _| panic!("not there"), "instead of panicking"),
        ];
        for (index, (answer, part)) in wrong.into_iter().enumerate() {
            let text = probabilities(answer).text();
            assert!(text.starts_with("NOT YET") && text.contains(part), "{index}: {text}");
        }
    }
}
