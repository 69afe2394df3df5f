// Solutions of lesson 50. Each section replaces the exercise cell of that name.

// exercise: lora_forward
fn my_forward(x: &[f32], weight: &[f32], a: &[f32], b: &[f32], shape: check::AdapterShape, alpha: f32) -> Vec<f32> {
    let dot = |one: &[f32], two: &[f32]| one.iter().zip(two).map(|(one, two)| one * two).sum::<f32>();
    let scale = alpha / shape.rank as f32;
    x.chunks(shape.inputs).flat_map(|x| {
        // `rank` numbers for the whole row: each output uses them.
        let low: Vec<f32> = a.chunks(shape.inputs).map(|a| dot(a, x)).collect();
        let outputs = weight.chunks(shape.inputs).zip(b.chunks(shape.rank));
        outputs.map(|(w, b)| dot(w, x) + scale * dot(b, &low)).collect::<Vec<f32>>()
    }).collect()
}

// exercise: qlora_memory
// A layer has 4 · 4096² + 3 · 4096 · 11008 = 202.4 million weights, 32 layers 6.476 billion, at 4 + 8/64 + 32/(64 · 256) = 4.127 bits:
// 3.341 GB. Two matrices of 32000 · 4096 in bf16: 0.524 GB. Adapters: 32 · 16 · (4 · 8192 + 3 · 15104) = 39.98 million numbers,
// 16 bytes each: 0.640 GB.
let my_memory: Option<f64> = Some(4.505);

// exercise: diagnose_adapter
// Doubling alpha should double the first gradient of B; it becomes four times as large, so the factor is (alpha / r)². At rank 8 and
// alpha 32 it is 16 where 4 is right.
let my_diagnosis: Option<(check::AdapterFault, f64)> = Some((check::AdapterFault::ScaleTwice, 4.0));
