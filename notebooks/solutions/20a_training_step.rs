// Solutions of lesson 20a: each section replaces the exercise cell of that name.

// exercise: conv_gradient
// Weight (a, b) meets pixel (i + a, j + b) at output (i, j): the output moves by that pixel, and the loss by that times the
// output's gradient. The loss depends on the weight through every output, so these add up: it is a convolution again.
fn conv_gradient(x: &[f64], to_y: &[f64], side: usize) -> [f64; 9] {
    let out = side - 2;
    let mut sums = [0.0; 9];
    for (at, gradient) in to_y.iter().enumerate() {
        for (tap, sum) in sums.iter_mut().enumerate() {
            *sum += gradient * x[(at / out + tap / 3) * side + at % out + tap % 3];
        }
    }
    sums
}

// exercise: nan_origin
// All results are finite, so it happened in the backward pass. What arrives at the division is finite, what arrives at the
// length, which the division hands down, is not. The slope of a / b by b is -a / b²: image 6 is so faint that b² is 0 in f32.
// b itself is not 0, or the result of the division would not be finite either; and a gradient of 0 makes no finite slope a NaN.
fn nan_origin() -> (&'static str, usize, &'static str) {
    ("division", 6, "a square")
}

// exercise: bytes_well_used
// Each number of the weight is multiplied once for each image in each of the three products (forward, the gradient with respect to
// the input, its own gradient), and moves three times: read twice, and its gradient written, 4 bytes each time. 9216 × 128 cancels:
// 3 · 32 ÷ (3 · 4) = 8, in proportion to the images.
fn bytes_well_used() -> (f64, u64) {
    (3.0 * 32.0 / (3.0 * 4.0), 4 * 100)
}
