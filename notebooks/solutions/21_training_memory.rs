// Solutions of lesson 21. Each section replaces the exercise cell of that name.

// exercise: step_memory
// Each parameter is there four times: itself, its gradient, AdamW's two means. Each layer keeps three results of one shape
// (product, with bias, ReLU), whose side is smaller by window - 1 than the side that came in, layer after layer.
fn step_memory(layers: &[(u64, u64, u64)], side: u64, batch: u64) -> u64 {
    let (mut parameters, mut activations, mut out) = (0, 0, side);
    for &(inputs, outputs, window) in layers {
        out = out + 1 - window;
        parameters += outputs * inputs * window * window + outputs;
        activations += 3 * batch * outputs * out * out;
    }
    let images = batch * layers[0].0 * side * side;
    4 * (4 * parameters + activations + images)
}

// exercise: sixteen_bit_gpu
// 2 + 2 bytes for the bf16 parameter and its gradient, 4 for the master copy, 2 × 4 for AdamW's means: 16 a parameter, as much
// as f32 throughout. What bf16 saves in training are activations. The rest, in whole texts:
fn sixteen_bit_gpu() -> u64 {
    (24_000_000_000 - 16 * 124_439_808) / 45_000_000
}

// exercise: choose_algorithms
// The convolutions run one after the other, so the buffer is free again for the next: each may use all of it, and chooses alone.
fn choose_algorithms(convolutions: &[Vec<check::AlgoPerf>], budget: u64) -> Option<Vec<usize>> {
    let best = |list: &Vec<check::AlgoPerf>| {
        let fits = list.iter().enumerate().filter(|(_, a)| a.workspace <= budget);
        // Of equal ones `min_by` gives the first.
        fits.min_by(|(_, a), (_, b)| a.us.total_cmp(&b.us).then(a.workspace.cmp(&b.workspace))).map(|(at, _)| at)
    };
    convolutions.iter().map(best).collect()
}

// exercise: diagnose_growth
// The same growth with any batch, 8 bytes per parameter, and none once the learning rate stays: each rate has an AdamW of its own, with two
// means in f32.
let my_growth: Option<(check::Growth, f64)> = Some((check::Growth::OptimizerState, 2.0 * 4.0 * 124_439_808.0 / 1e9));
