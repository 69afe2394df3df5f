// Solutions of lesson 20: each section replaces the exercise cell of that name.

// exercise: adamw
fn adamw_step(state: [f64; 3], gradient: f64, t: i32) -> [f64; 3] {
    let [weight, m, v] = state;
    let (m, v) = (0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient * gradient);
    let (m_hat, v_hat) = (m / (1.0 - 0.9_f64.powi(t)), v / (1.0 - 0.999_f64.powi(t)));
    // The decay is taken from the weight itself: in the gradient it would be divided by the gradient's own size.
    [weight * (1.0 - 0.001 * 0.01) - 0.001 * m_hat / (v_hat.sqrt() + 1e-8), m, v]
}

// exercise: enough_images
// A step of b images takes 6 + b / 4 ms, so the highest rate is 4 images a ms. 80 % of it is b / (6 + b / 4) = 3.2: the images take
// four times as long as all else, 24 ms, which is 96 images.
fn enough_images() -> (u64, u64) {
    (96, 60_000 / 96)
}

// exercise: resume_run
// Two mistakes. The steps were not in the file, so the resumed run began its epoch anew, and AdamW took its means for young ones. And
// every number went through f32, which keeps 24 of an f64's 53 bits: near the right losses, and other ones.
fn save(run: &check::SmallRun) -> Vec<f64> {
    [run.weights, run.m, run.v, [run.steps as f64, run.seed as f64]].concat()
}
fn load(file: &[f64]) -> check::SmallRun {
    let two = |at: usize| [file[at], file[at + 1]];
    check::SmallRun { weights: two(0), m: two(2), v: two(4), steps: file[6] as u64, seed: file[7] as u64 }
}
