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

// exercise: conv2_products
// An output sums 3 × 3 × 32 products; there are 24 × 24 × 64 outputs. The gradient with respect to the weights and the
// one with respect to the input are products of the same size each.
fn conv2_products() -> u64 {
    3 * (24 * 24 * 64) * (3 * 3 * 32)
}
