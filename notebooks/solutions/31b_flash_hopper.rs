// Solutions of lesson 31b. Each section replaces the exercise cell of that name.

// exercise: merge_parts
fn merge_parts(a: &check::Part, b: &check::Part) -> check::Part {
    let most = a.most.max(b.most);
    let (of_a, of_b) = (a.sum * (a.most - most).exp(), b.sum * (b.most - most).exp());
    let sum = of_a + of_b;
    let out = a.out.iter().zip(&b.out).map(|(x, y)| (of_a * x + of_b * y) / sum).collect();
    check::Part { most, sum, out }
}

// exercise: tensor_busy
// Products: 4 · 128 · 64 · 256 operations at 4096 a cycle, 2048 cycles. Powers: 128 · 64 at 16 a cycle, 512 cycles.
let my_busy: Option<f64> = Some(100.0 * 2048.0 / (2048.0 + 512.0));
