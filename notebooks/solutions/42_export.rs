// Solutions of lesson 42. Each section replaces the exercise cell of that name.

// exercise: eight_bits
fn my_step(low: f32, high: f32) -> (f32, i32) {
    let (low, high) = (low.min(0.0), high.max(0.0)); // 0 must have an integer
    let step = (high - low) / 255.0;
    (step, (-low / step).round() as i32)
}

// exercise: left_in_f32
// The good file has an integer Gemm there; this one unpacks 9,216 × 128 weights in each call, and multiplies in f32.
let my_layer = "fc1";
let my_operator = "DequantizeLinear";
let my_written: Option<f64> = Some(9216.0 * 128.0 * 4.0);

// exercise: cache_bytes
// A token: keys and values, 4 layers, 4 heads, 32 numbers of 4 bytes. 1000 tokens go in, 1001 come out.
let my_cache_bytes: u64 = 2 * 4 * 4 * 32 * 4 * (1000 + 1001);

// exercise: own_graph
fn my_graph(weight: &[f32], bias: &[f32]) -> Result<Onnx> {
    let mut graph = GraphBuilder::new("one layer and its softmax");
    let x = graph.input("x", DataType::F32, &["batch".into(), 6.into()]);
    let (w, b) = (graph.weight("weight", &[4, 6], weight), graph.weight("bias", &[4], bias));
    let logits = graph.node("logits", "Gemm", &[&x, &w, &b], &[("transB", Attribute::Int(1))]);
    let probabilities = graph.node("probabilities", "Softmax", &[&logits], &[("axis", Attribute::Int(-1))]);
    graph.output(&probabilities, DataType::F32, &["batch".into(), 4.into()]);
    graph.finish()
}
