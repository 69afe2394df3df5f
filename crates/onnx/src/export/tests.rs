use super::*;
use gpulab_nn::cnn::Parameters;
use gpulab_nn::memory::{Layer, Loss, Network};

fn small(layers: Vec<Layer>, input: &[usize]) -> Network {
    Network { name: "small".to_string(), input: input.to_vec(), layers, loss: Loss::MeanSquare }
}

#[test]
fn the_cnn_has_a_node_a_layer_and_the_checkpoints_names() {
    let parameters = Parameters::random(1);
    let model = cnn(&parameters).unwrap();
    let nodes = model.nodes();
    let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["conv1", "relu1", "conv2", "relu2", "pool1", "flatten1", "fc1", "relu3", "logits"]);
    for ((name, shape), (found, dims, bytes)) in Parameters::SHAPES.iter().zip(model.weights()) {
        assert_eq!((*name, shape.to_vec()), (found, dims));
        assert_eq!(bytes, 4 * shape.iter().product::<usize>() as u64);
    }
    let ports: Vec<String> = model.inputs().iter().chain(&model.outputs()).map(ToString::to_string).collect();
    assert_eq!(ports, ["images: f32 [batch, 1, 28, 28]", "logits: f32 [batch, 10]"]);
    assert_eq!(model.versions(), (OPSET, IR));
}

#[test]
fn a_layer_that_is_not_exported_is_named() {
    let layers = vec![Layer::Relu, Layer::Attention { width: 8, heads: 2 }];
    let text = network(&small(layers, &[4, 24]), &[], "x", "y").unwrap_err().to_string();
    assert!(text.contains("`attention1` (attention, 2 heads)") && text.contains("\nnext: use `export::gpt`"), "{text}");
    let text = network(&Network::cnn(), &[&[0.0; 288]], "x", "y").unwrap_err().to_string();
    assert!(text.contains("`conv1` (conv 3×3, 1→32) finds none left"), "{text}");
    let text = network(&Network::cnn(), &[&[0.0; 287]], "x", "y").unwrap_err().to_string();
    assert!(
        text.contains("`conv1`") && text.contains("weight of shape [32, 1, 3, 3]") && text.contains("287"),
        "{text}"
    );
    let text = network(&small(vec![Layer::Relu], &[4]), &[&[1.0]], "x", "y").unwrap_err().to_string();
    assert!(text.contains("1 arrays are left over"), "{text}");
}

#[test]
fn a_graph_that_does_not_fit_together_is_told_with_its_node() {
    let wrong = |build: fn(&mut Graph, &Value) -> Value| {
        let mut graph = Graph::new("wrong");
        let x = graph.input("x", Kind::F32, &["batch".into(), 3.into()]);
        let y = build(&mut graph, &x);
        graph.output(&y, Kind::F32, &["batch".into(), 3.into()]);
        let text = graph.finish().unwrap_err().to_string();
        assert!(text.starts_with("the graph does not fit together: ") && text.contains("\nnext: "), "{text}");
        text
    };
    let text = wrong(|graph, x| graph.node("fft", "DFT", &[x], &[]));
    assert!(text.contains("the node `fft` asks for the operator `DFT`") && text.contains("MatMul"), "{text}");
    let text = wrong(|graph, _| graph.node("y", "Relu", &[&Value("z".to_string())], &[]));
    assert!(text.contains("the node `y` takes `z`, which nothing before it gives"), "{text}");
    assert!(wrong(|graph, x| graph.node("x", "Relu", &[x], &[])).contains("a name that is taken"));
    assert!(wrong(|_, _| Value("y".to_string())).contains("nothing gives the output `y`"));
    let text = wrong(|graph, x| {
        let w = graph.weight("w", &[2, 2], Numbers::F32(&[1.0]));
        graph.node("y", "MatMul", &[x, &w], &[])
    });
    assert!(text.contains("`w` has 1 numbers for a shape of [2, 2]"), "{text}");
}

#[test]
fn the_gpt_has_a_cache_for_each_layer() {
    let config = gpulab_nn::gpt::Config { n_layer: 2, n_head: 2, n_embd: 8, n_ctx: 16, vocab_size: 11 };
    let model = gpt(&gpulab_nn::gpt::Weights::random(config, 1).unwrap()).unwrap();
    let ports: Vec<String> = model.inputs().iter().chain(&model.outputs()).map(ToString::to_string).collect();
    assert_eq!(
        ports[..3],
        [
            "input_ids: i64 [batch, sequence]",
            "attention_mask: i64 [batch, total_sequence]",
            "position_ids: i64 [batch, sequence]",
        ]
    );
    assert_eq!(ports[6], "past_key_values.1.value: f32 [batch, 2, past_sequence, 4]");
    assert_eq!(ports[7], "logits: f32 [batch, sequence, 11]");
    assert_eq!(
        ports[10..],
        ["present.1.key: f32 [batch, 2, total_sequence, 4]", "present.1.value: f32 [batch, 2, total_sequence, 4]",]
    );
    // The head is the embedding's table again, and not another copy.
    let numbers = model
        .weights()
        .iter()
        .filter(|(name, ..)| !name.starts_with("constant"))
        .map(|(_, _, bytes)| bytes / 4)
        .sum::<u64>();
    assert_eq!(numbers, config.parameter_count() as u64);
}

#[test]
fn the_picture_has_every_node_and_its_weights() {
    let model = cnn(&Parameters::random(1)).unwrap();
    let svg = model.picture().svg();
    for text in ["images: f32 [batch, 1, 28, 28]", "conv2: Conv", "weight [64, 32, 3, 3]", "out logits"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    assert!(!svg.contains("nodes more"));
    let config = gpulab_nn::gpt::Config { n_layer: 2, n_head: 2, n_embd: 8, n_ctx: 16, vocab_size: 11 };
    let long = gpt(&gpulab_nn::gpt::Weights::random(config, 1).unwrap()).unwrap();
    let left = long.nodes().len() - 44;
    assert!(long.picture().svg().contains(&format!("and {left} nodes more")));
}
