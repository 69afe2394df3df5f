//! Models made in code, run on the CPU; what is wrong with a file, with inputs, with a provider is said with its next step.

use super::*;
use gpulab::error::{Error, Result};
use std::path::{Path, PathBuf};

/// A file that goes when the test ends.
struct File(PathBuf);

impl File {
    fn of(name: &str, bytes: &[u8]) -> File {
        let path = std::env::temp_dir().join(format!("gpulab-runtime-{}-{name}.onnx", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        File(path)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn good<T>(outcome: Result<T>) -> T {
    outcome.unwrap_or_else(|error| panic!("{error}"))
}

/// The error's text, which must end with a next step.
fn wrong<T>(outcome: Result<T>) -> String {
    let text = outcome.err().expect("an error").to_string();
    assert!(text.lines().last().unwrap_or_default().starts_with("next: "), "{text}");
    text
}

fn inputs(batch: usize) -> (OnnxTensor, OnnxTensor) {
    let x = (0..batch * 3).map(|at| at as f32 - 2.0).collect::<Vec<f32>>();
    let z = (0..batch * 2).map(|at| at as f32 * 0.5).collect::<Vec<f32>>();
    (good(OnnxTensor::new(&[batch, 3], x)), good(OnnxTensor::new(&[batch, 2], z)))
}

fn expected(x: &OnnxTensor, z: &OnnxTensor) -> Vec<f32> {
    let (x, z) = (x.f32s().unwrap(), z.f32s().unwrap());
    let one = |at: usize| (0..3).map(|k| x[at / 2 * 3 + k] * W[k * 2 + at % 2]).sum::<f32>() + z[at];
    (0..z.len()).map(|at| one(at).max(0.0)).collect()
}

fn open(name: &str) -> (File, OnnxModel) {
    let file = File::of(name, &model("Relu", 10, 21));
    let opened = good(OnnxModel::open(&file.0, ExecutionProvider::Cpu));
    (file, opened)
}

#[test]
fn a_model_runs_at_any_batch_and_tells_where() {
    let (_file, mut model) = open("runs");
    let ports: Vec<String> = model.inputs().iter().chain(model.outputs()).map(ToString::to_string).collect();
    assert_eq!(ports, ["x: f32 [batch, 3]", "z: f32 [batch, 2]", "y: f32 [batch, 2]"]);
    for batch in [1, 5] {
        let (x, z) = inputs(batch);
        let outputs = good(model.run(&[("z", &z), ("x", &x)]));
        assert_eq!(outputs.len(), 1);
        assert_eq!((outputs[0].0.as_str(), &outputs[0].1.shape), ("y", &vec![batch, 2]));
        assert_eq!(outputs[0].1.f32s().unwrap(), expected(&x, &z));
        good(model.bind(&[("x", &x), ("z", &z)]));
        good(model.run_bound());
        assert_eq!(good(model.bound_outputs())[0].1.f32s().unwrap(), expected(&x, &z));
    }
    let mut places = good(model.node_assignments());
    places.sort();
    let of: Vec<(&str, &str)> = places.iter().map(|at| (at.operator.as_str(), at.provider.as_str())).collect();
    // What ONNX Runtime makes of the three is its own affair; that each has a place is not.
    assert!(!of.is_empty() && of.iter().all(|(_, provider)| *provider == "CPUExecutionProvider"), "{of:?}");
    assert!(good(model.where_it_runs()).ends_with("on CPUExecutionProvider"));
    assert_eq!(model.engines(), None);
    assert!(model.open_ms() > 0.0);
}

#[test]
fn the_trace_of_a_run_agrees_with_what_it_tells() {
    let file = File::of("trace", &model("Relu", 10, 21));
    let begin = std::env::temp_dir().join(format!("gpulab-trace-{}", std::process::id()));
    // A session with options of its own: made by `ort`, taken by `OnnxModel`, handed out again.
    let session = || -> ort::Result<ort::session::Session> {
        let builder = ort::session::Session::builder(environment().unwrap())?.with_intra_threads(1)?;
        let builder = builder.with_config_entry("session.record_ep_graph_assignment_info", "1")?;
        builder.with_profiling(&begin)?.commit_from_file(&file.0)
    };
    let mut model = good(OnnxModel::from_session(session().unwrap(), ExecutionProvider::Cpu, &file.0));
    assert_eq!(model.session().inputs().len(), model.inputs().len());
    let (x, z) = inputs(2);
    good(model.run(&[("x", &x), ("z", &z)]));
    let trace = model.session_mut().end_profiling().unwrap();
    let text = std::fs::read_to_string(&trace).unwrap();
    std::fs::remove_file(&trace).unwrap();
    let events: serde_json::Value = serde_json::from_str(&text).unwrap();
    let ran: Vec<String> = events
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|event| Some(event["args"]["provider"].as_str()?.to_string()))
        .collect();
    assert!(!ran.is_empty() && ran.iter().all(|provider| provider == "CPUExecutionProvider"), "{ran:?}");
    assert!(good(model.node_assignments()).iter().all(|place| ran.contains(&place.provider)));
}

#[test]
fn wrong_inputs_are_named_before_anything_runs() {
    let (_file, mut model) = open("wrong");
    let (x, z) = inputs(2);
    let text = wrong(model.run(&[("x", &x), ("zz", &z)]));
    assert!(text.contains("no input `zz`") && text.contains("`x: f32 [batch, 3]`, `z: f32 [batch, 2]`"), "{text}");
    assert!(wrong(model.run(&[("x", &x)])).contains("input `z: f32 [batch, 2]` is missing"));
    assert!(wrong(model.run(&[("x", &x), ("x", &x), ("z", &z)])).contains("`x` was given twice"));
    assert!(wrong(model.run_bound()).contains("not bound"));
    let whole = good(OnnxTensor::new(&[2, 3], vec![1i64; 6]));
    assert!(wrong(model.run(&[("x", &whole), ("z", &z)])).contains("takes f32, and got i64"));
    let flat = good(OnnxTensor::new(&[6], vec![0f32; 6]));
    assert!(wrong(model.run(&[("x", &flat), ("z", &z)])).contains("has 2 dimensions, and got 1: [6]"));
    let wide = good(OnnxTensor::new(&[2, 4], vec![0f32; 8]));
    assert!(wrong(model.bind(&[("x", &wide), ("z", &z)])).contains("dimension 1 must be 3"));
    let (_, more) = inputs(3);
    let text = wrong(model.run(&[("x", &x), ("z", &more)]));
    assert!(text.contains("`batch` is 2 in input `x` and 3 in input `z`"), "{text}");
    assert!(wrong(OnnxTensor::new(&[2, 2], vec![0f32; 5])).contains("4 elements expected, 5 given"));
    assert!(wrong(whole.f32s()).contains("holds i64"));
}

#[test]
fn a_file_that_is_no_model_says_what_is_wrong_with_it() {
    let opens = |file: &Path| wrong(OnnxModel::open(file, ExecutionProvider::Cpu));
    assert!(opens(Path::new("/no/such/model.onnx")).contains("cannot open /no/such/model.onnx"));
    assert!(opens(&std::env::temp_dir()).contains("it is a folder"));
    assert!(opens(&File::of("empty", b"").0).contains("it is empty"));
    let whole = model("Relu", 10, 21);
    for (name, bytes) in [("text", &b"<!DOCTYPE html><html>404</html>"[..]), ("cut", &whole[..whole.len() / 2])] {
        let text = opens(&File::of(name, bytes).0);
        assert!(text.contains("damaged") && text.contains("ONNX Runtime says: "), "{text}");
    }
    for (name, bytes) in [("ir", model("Relu", 99, 21)), ("opset", model("Relu", 10, 999))] {
        let text = opens(&File::of(name, &bytes).0);
        assert!(text.contains("newer ONNX") && text.contains(&version().unwrap()), "{text}");
    }
    let text = opens(&File::of("operator", &model("Reluu", 10, 21)).0);
    assert!(text.contains("Reluu") && text.contains("ONNX Runtime says: "), "{text}");
}

#[test]
fn a_provider_that_is_missing_is_said_and_the_fallback_is_named() {
    let file = File::of("fallback", &model("Relu", 10, 21));
    let (here, missing) = good(providers());
    assert_eq!(here[0], ExecutionProvider::Cpu);
    assert_eq!(here.len() + missing.len(), 4);
    for one in &missing {
        let text = wrong(OnnxModel::open(&file.0, one.provider.clone()));
        assert!(text.starts_with(&format!("{} is missing: ", one.provider)), "{text}");
        assert!(!one.why.is_empty() && text.contains(one.why.lines().next().unwrap()), "{text}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn without_tensorrt_its_own_library_is_named() {
    let provider = ExecutionProvider::TensorRt(TensorRt::fp16());
    let Some(missing) = good(provider.look()) else { return println!("skipped: this machine has TensorRT") };
    let text = Error::from(missing).to_string();
    assert!(text.starts_with("ONNX Runtime TensorRT fp16 is missing: "), "{text}");
    assert!(text.contains("libnvinfer.so.10") && text.ends_with("(some GB)") && text.contains("TENSORRT=1"), "{text}");
}

/// Gives what it was told to, at once.
struct Told(Vec<f32>);

impl Implementation for Told {
    fn name(&self) -> String {
        "told".to_string()
    }

    fn backend(&self) -> gpulab::measurement::Backend {
        gpulab::measurement::Backend::Model
    }

    fn set(&mut self, _: &[(&str, &OnnxTensor)]) -> Result<()> {
        Ok(())
    }

    fn call(&mut self) -> Result<()> {
        Ok(())
    }

    fn output(&mut self) -> Result<Vec<f32>> {
        Ok(self.0.clone())
    }
}

#[test]
fn a_benchmark_times_those_whose_outputs_agree_and_names_the_others() {
    let file = File::of("benchmark", &model("Relu", 10, 21));
    let mut benchmark = good(Benchmark::new(&file.0));
    let inputs = good(benchmark.inputs(2));
    assert_eq!((inputs[0].0.as_str(), inputs[0].1.shape.as_slice()), ("x", &[2, 3][..]));
    let right = expected(&inputs[0].1, &inputs[1].1);
    benchmark.entries.push(BenchmarkEntry::of(Told(right.clone())));
    good(benchmark.add(&file.0, &[benchmark.tensorrt(false, 8), benchmark.tensorrt(true, 8), ExecutionProvider::Cpu]));
    good(benchmark.add_as("another form", &file.0, ExecutionProvider::Cpu));
    assert_eq!(benchmark.entries.len() + benchmark.unavailable.len(), 6);
    good(benchmark.run(&[2]));
    let told = benchmark.latencies.iter().find(|latency| latency.implementation == "told").unwrap();
    assert!(told.us.len() >= 2 * Benchmark::REPETITIONS && told.error < 1e-6);
    let rows = benchmark.rows();
    let metrics: Vec<&str> = rows.iter().filter(|row| row.experiment == "told").map(|row| &*row.metric).collect();
    assert_eq!(metrics, ["latency p50", "latency p99", "throughput"]);
    assert!(rows.iter().any(|row| row.metric == "open" && row.unit == "ms"));
    // Legends name the machine.
    assert!(rows.iter().all(|row| !row.machine.is_empty()));
    let text = benchmark.report().to_string();
    for part in ["told", "another form", "ONNX Runtime CPU", "on CPUExecutionProvider", "examples"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    if let [(first, why), (second, _)] = benchmark.unavailable.as_slice() {
        assert!(text.contains(&format!("{first} is missing: ")) && text.contains(&why.to_string()), "{text}");
        assert!(text.contains(&format!("{second} is missing for the same reason")), "{text}");
        // Engines are TensorRT's, and it is not there.
        assert!(!text.contains("engines") && !text.contains("again"), "{text}");
    }
    // A cell keeps the last of several outputs: both tables are one.
    assert_eq!(benchmark.report().html().matches("<table").count(), 2);
    assert!(benchmark_chart(&benchmark.rows(), BenchmarkChart::Throughput).draw().svg().contains("examples a second"));
    benchmark.entries.push(BenchmarkEntry::of(Told(right.iter().map(|value| value + 1.0).collect())));
    let text = wrong(benchmark.run(&[2]));
    assert!(text.contains("at batch 2 the outputs of told lie"), "{text}");
}

// Models written byte by byte: no exporter, and no library but ONNX Runtime, has a part in these tests.

/// Just enough of protobuf to write a model: numbers and bytes under their field numbers (onnx.proto3).
#[derive(Default, Clone)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(mut self, field: u64, value: u64) -> Message {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    fn bytes(mut self, field: u64, value: &[u8]) -> Message {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend(value);
        self
    }

    fn text(self, field: u64, value: &str) -> Message {
        self.bytes(field, value.as_bytes())
    }

    fn with(self, field: u64, value: Message) -> Message {
        self.bytes(field, &value.0)
    }
}

/// A tensor port of f32; an extent is a number or a name.
fn port(name: &str, extents: &[&str]) -> Message {
    let shape = extents.iter().fold(Message::default(), |shape, extent| {
        let extent = match extent.parse::<u64>() {
            Ok(n) => Message::default().number(1, n),
            Err(_) => Message::default().text(2, extent),
        };
        shape.with(1, extent)
    });
    let tensor = Message::default().number(1, 1).with(2, shape);
    Message::default().text(1, name).with(2, Message::default().with(1, tensor))
}

fn node(operator: &str, inputs: &[&str], output: &str) -> Message {
    let node = inputs.iter().fold(Message::default(), |node, input| node.text(1, input));
    node.text(2, output).text(3, &format!("the_{operator}")).text(4, operator)
}

/// The weights, row by row.
const W: [f32; 6] = [1.0, -1.0, 0.5, 2.0, -3.0, 0.25];

/// y = activation(x · W + z), for x \[batch, 3\] and z \[batch, 2\].
fn model(activation: &str, ir: u64, opset: u64) -> Vec<u8> {
    let raw: Vec<u8> = W.iter().flat_map(|value| value.to_le_bytes()).collect();
    let weights = Message::default().number(1, 3).number(1, 2).number(2, 1).text(8, "w").bytes(9, &raw);
    let graph = Message::default()
        .with(1, node("MatMul", &["x", "w"], "product"))
        .with(1, node("Add", &["product", "z"], "sum"))
        .with(1, node(activation, &["sum"], "y"))
        .text(2, "tiny")
        .with(5, weights)
        .with(11, port("x", &["batch", "3"]))
        .with(11, port("z", &["batch", "2"]))
        .with(12, port("y", &["batch", "2"]));
    let opset = Message::default().text(1, "").number(2, opset);
    Message::default().number(1, ir).with(7, graph).with(8, opset).0
}
