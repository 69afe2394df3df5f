// Solutions of lesson 15a: each section replaces the exercise cell of that name.

// exercise: pass_bytes
// ge: 4 + 1, le: 4 + 1, masks: 1 + 1 + 1, to_dtype: 1 + 4, product: 4 + 4 + 4, two sums: 4 + 4.
let my_pass_bytes: u64 = 1_000_000 * (5 + 5 + 3 + 5 + 12 + 8);

// exercise: triangle_bytes
let my_triangle_bytes: u64 = 10_000_000 * 10_000_000 * 4; // 400 TB
