// Solutions of lesson 21. Each section replaces the exercise cell of that name.

// exercise: mixed_bytes
// 2 + 2 bytes for the bf16 parameter and its gradient, 4 for the master copy, 2 × 4 for AdamW's averages: 16, as much as f32
// throughout. What bf16 saves in training are activations.
fn mixed_bytes(parameters: u64) -> u64 {
    (2 + 2 + 4 + 2 * 4) * parameters
}

// exercise: conv_bytes
// Product, sum with the bias, ReLU: three results of the same shape. The input belongs to the layer before.
fn conv_bytes(batch: u64, _inputs: u64, outputs: u64, side: u64) -> u64 {
    3 * 4 * batch * outputs * (side - 2) * (side - 2)
}

// exercise: fitting_batch
// What the fixed part leaves, in whole examples; nothing is left when it is larger than the budget.
fn fitting_batch(budget: u64, fixed: u64, each: u64) -> u64 {
    budget.saturating_sub(fixed) / each
}
