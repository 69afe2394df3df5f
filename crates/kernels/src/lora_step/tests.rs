//! What is refused, and what is counted. Losses and gradients are compared with candle's in `gpulab-nn`.

use super::*;

const SMALL: LoraShape =
    LoraShape { layers: 1, heads: 2, kv_heads: 1, inner: 192, vocabulary: 77, epsilon: 1e-5, rank: 2, scale: 2.0 };
const SETTINGS: LoraSettings = LoraSettings { batch: 1, length: 5, graph: false, plain_products: true };

fn weights(shape: &LoraShape) -> LoraWeights {
    let matrix = |[outputs, inputs]: [usize; 2]| LoraMatrix {
        frozen: Frozen::Bf16(vec![0; outputs * inputs]),
        a: vec![0.5; shape.rank * inputs],
        b: vec![0.25; outputs * shape.rank],
    };
    LoraWeights {
        table: vec![0; shape.vocabulary * shape.width()],
        norms: vec![1.0; (2 * shape.layers + 1) * shape.width()],
        rope: vec![0.0; 8 * HEAD],
        layers: (0..shape.layers).map(|_| shape.matrices().map(matrix)).collect(),
        levels: vec![0.0; 16 + 256],
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let gpu = Gpu::simulated().unwrap();
    let refused = |shape: LoraShape, given: &LoraWeights, settings: LoraSettings| {
        let text = LoraTraining::new(&gpu, shape, given, settings).unwrap_err().to_string();
        assert!(text.contains("\nnext: "), "{text}");
        text
    };
    let good = weights(&SMALL);
    assert!(refused(LoraShape { rank: 0, ..SMALL }, &good, SETTINGS).contains("rank: 0"));
    assert!(refused(LoraShape { rank: 65, ..SMALL }, &good, SETTINGS).contains("rank of 65"));
    assert!(refused(LoraShape { inner: 100, ..SMALL }, &good, SETTINGS).contains("middle of 100"));
    assert!(refused(SMALL, &good, LoraSettings { length: 9, ..SETTINGS }).contains("8 positions"));
    let mut short = good.clone();
    short.layers[0][3].a.pop();
    assert!(refused(SMALL, &short, SETTINGS).contains("A of layer 0's matrix 3"));
    let mut mixed = good.clone();
    mixed.layers[0][1].frozen = Frozen::Nf4 { codes: Vec::new(), scales: Vec::new(), of_group: Vec::new(), mean: 0.0 };
    assert!(refused(SMALL, &mixed, SETTINGS).contains("not of the first one's kind"));
    let mut training = LoraTraining::new(&gpu, SMALL, &good, SETTINGS).unwrap();
    assert!(training.queue(&AdamWConfig::default()).unwrap_err().to_string().contains("no batch yet"));
    assert!(matches!(training.set_batch(&[0; 5]), Err(Error::LengthMismatch { expected: 6, given: 5, .. })));
    assert!(training.set_batch(&[77; 6]).unwrap_err().to_string().contains("ends at 76"));
    // What was given comes back.
    let back = training.adapters().unwrap();
    for ((a, b), matrix) in back[0].iter().zip(&good.layers[0]) {
        assert_eq!((a, b), (&matrix.a, &matrix.b));
    }
    let learns: usize = back[0].iter().map(|(a, b)| a.len() + b.len()).sum();
    assert_eq!(learns, SMALL.trainable());
}
