// Solutions of lesson 20: each section replaces the exercise cell of that name.

// exercise: loss_scale
fn loss_scale(scale: f32, good_steps: u64, finite: bool) -> (f32, u64) {
    match (finite, good_steps + 1) {
        // A step that overflowed is no good step, whatever came before it.
        (false, _) => ((scale / 2.0).max(1.0), 0),
        (true, 200) => (scale * 2.0, 0),
        (true, good_steps) => (scale, good_steps),
    }
}

// exercise: adamw
fn adamw_step(state: [f64; 3], gradient: f64, t: i32) -> [f64; 3] {
    let [weight, m, v] = state;
    let (m, v) = (0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient * gradient);
    let (m_hat, v_hat) = (m / (1.0 - 0.9_f64.powi(t)), v / (1.0 - 0.999_f64.powi(t)));
    // The decay is taken from the weight itself: in the gradient it would be divided by the gradient's own size.
    [weight * (1.0 - 0.001 * 0.01) - 0.001 * m_hat / (v_hat.sqrt() + 1e-8), m, v]
}
