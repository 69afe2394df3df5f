//! Right answers pass, and each wrong one is told what is wrong with it.

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
        (|low, high| ((high.max(0.0) - low.min(0.0)) / 255.0, (low / ((high - low) / 255.0)) as i32), "with a minus"),
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
    type Answer = fn(&mut Graph, &Value) -> Value;
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
