//! ONNX Runtime's own profile of a session: how long each node of the optimised graph took.

use super::library::said;
use super::model::{CpuThreads, OnnxModel, OnnxTensor};
use super::provider::ExecutionProvider;
use gpulab::error::{Error, Result};
use gpulab::measurement::{Backend, Measurement, Summary, figures};
use serde_json::Value;
use std::fmt;
use std::path::Path;

/// A node as ONNX Runtime computes it: several nodes of the file may have been fused into one.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeTime {
    /// Its name in the optimised graph.
    pub node: String,
    /// Its operator there, such as `QLinearConv`.
    pub operator: String,
    /// The provider that computed it, in ONNX Runtime's words.
    pub provider: String,
    /// Its times over the calls, in µs; the first call, which warms up, is left out.
    pub us: Summary,
}

/// The times of a session's nodes. As a cell's last line it shows itself.
#[derive(Debug, Clone, PartialEq)]
#[must_use = "a profile shows itself as the last expression of a cell, without a semicolon"]
pub struct NodeProfile {
    /// What was run.
    pub title: String,
    /// The nodes, in the order in which they ran.
    pub nodes: Vec<NodeTime>,
}

gpulab::show_as_text!(NodeProfile);

impl NodeProfile {
    /// Opens the file with `with_profiling`, runs it `calls` times on these inputs, and reads the file that
    /// `end_profiling` names. Profiled calls take longer than others: compare nodes with nodes, and take times of whole
    /// calls elsewhere.
    ///
    /// # Errors
    /// As [`OnnxModel::open`] and [`OnnxModel::run`]; [`Error::Invalid`] where the profile names no node.
    pub fn of(
        path: &Path,
        provider: ExecutionProvider,
        inputs: &[(&str, &OnnxTensor)],
        calls: usize,
    ) -> Result<NodeProfile> {
        let prefix = std::env::temp_dir().join(format!("gpulab-profile-{}", std::process::id()));
        let batch = inputs.first().and_then(|(_, tensor)| tensor.shape.first().copied()).unwrap_or(1);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let title = format!("{name} on {}, batch {batch}", provider.name());
        let mut model = OnnxModel::open_profiled(path, provider, CpuThreads::all(), &prefix)?;
        model.bind(inputs)?;
        let ran = (0..calls.max(2)).try_for_each(|_| model.run_bound());
        let file = model.session_mut().end_profiling();
        ran?;
        let fix = "run it again; the folder for temporary files must have room";
        let file = file.map_err(|error| said("the profile was not written", &error, fix))?;
        let text = std::fs::read_to_string(&file).map_err(Error::io(Path::new(&file), "read", fix));
        let _ = std::fs::remove_file(&file);
        NodeProfile::parse(&title, &text?)
    }

    /// Reads the JSON that ONNX Runtime writes: its events of the category `Node`, one for each node and call. The first call
    /// of each node is left out where there are more.
    ///
    /// # Errors
    /// [`Error::Invalid`] for text that is no such profile.
    pub fn parse(title: &str, json: &str) -> Result<NodeProfile> {
        let wrong = |what: String| Error::invalid(what, "give the file that `session.end_profiling()` named");
        let events: Value =
            serde_json::from_str(json).map_err(|error| wrong(format!("the profile is no JSON: {error}")))?;
        let mut found: Vec<(String, String, String, Vec<f64>)> = Vec::new();
        for event in events.as_array().into_iter().flatten().filter(|event| event["cat"] == "Node") {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
            let Some(node) = event["name"].as_str().and_then(|name| name.strip_suffix("_kernel_time")) else {
                continue;
            };
            let us = event["dur"].as_f64().unwrap_or(0.0);
            match found.iter_mut().find(|one| one.0 == node) {
                Some(one) => one.3.push(us),
                None => found.push((
                    node.to_string(),
                    text(&event["args"]["op_name"]),
                    text(&event["args"]["provider"]),
                    vec![us],
                )),
            }
        }
        if found.is_empty() {
            return Err(wrong("the profile names no node".to_string()));
        }
        let of = |(node, operator, provider, us): (String, String, String, Vec<f64>)| {
            let warm = if us.len() > 1 { &us[1..] } else { &us };
            NodeTime { node, operator, provider, us: Summary::of(warm) }
        };
        Ok(NodeProfile { title: title.to_string(), nodes: found.into_iter().map(of).collect() })
    }

    /// All nodes together, in µs: the sum of their medians.
    pub fn total_us(&self) -> f64 {
        self.nodes.iter().map(|node| node.us.median).sum()
    }

    /// The nodes of that operator together, in µs.
    pub fn us_of(&self, operator: &str) -> f64 {
        self.nodes.iter().filter(|node| node.operator == operator).map(|node| node.us.median).sum()
    }

    /// A row for each node, to be stored and drawn; `name` stands in front of the node's.
    pub fn rows(&self, name: &str, backend: Backend, batch: usize, dtype: &str) -> Vec<Measurement> {
        let row = |node: &NodeTime| {
            let label = format!("{name}: {} ({})", node.node, node.operator);
            Measurement::new(&label, backend, batch, "time of a node", "µs", node.us).dtype(dtype)
        };
        self.nodes.iter().map(row).collect()
    }
}

impl fmt::Display for NodeProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total_us();
        let wide = |of: fn(&NodeTime) -> &String| self.nodes.iter().map(|n| of(n).chars().count()).max().unwrap_or(0);
        let (names, operators) = (wide(|node| &node.node), wide(|node| &node.operator));
        writeln!(f, "{}: {} µs in {} nodes", self.title, figures(total), self.nodes.len())?;
        for node in &self.nodes {
            let (us, percent) = (figures(node.us.median), 100.0 * node.us.median / total.max(1e-9));
            writeln!(f, "  {us:>8} µs {percent:>5.1} %  {:operators$}  {:names$}", node.operator, node.node)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROFILE: &str = r#"[
      {"cat": "Session", "name": "model_run", "dur": 900, "args": {}},
      {"cat": "Node", "name": "conv1_kernel_time", "dur": 500, "args": {"op_name": "Conv", "provider": "CPUExecutionProvider"}},
      {"cat": "Node", "name": "fc1_kernel_time", "dur": 300, "args": {"op_name": "Gemm", "provider": "CPUExecutionProvider"}},
      {"cat": "Node", "name": "conv1_kernel_time", "dur": 40, "args": {"op_name": "Conv", "provider": "CPUExecutionProvider"}},
      {"cat": "Node", "name": "fc1_kernel_time", "dur": 10, "args": {"op_name": "Gemm", "provider": "CPUExecutionProvider"}},
      {"cat": "Node", "name": "conv1_kernel_time", "dur": 60, "args": {"op_name": "Conv", "provider": "CPUExecutionProvider"}},
      {"cat": "Node", "name": "fc1_kernel_time", "dur": 10, "args": {"op_name": "Gemm", "provider": "CPUExecutionProvider"}}
    ]"#;

    #[test]
    fn nodes_keep_their_order_and_the_first_call_does_not_count() {
        let profile = NodeProfile::parse("cnn", PROFILE).unwrap();
        let of: Vec<(&str, f64)> = profile.nodes.iter().map(|node| (node.node.as_str(), node.us.median)).collect();
        assert_eq!(of, [("conv1", 50.0), ("fc1", 10.0)]);
        assert_eq!((profile.total_us(), profile.us_of("Gemm"), profile.us_of("Relu")), (60.0, 10.0, 0.0));
        let text = profile.to_string();
        assert!(text.starts_with("cnn: 60") && text.contains("83.3 %  Conv  conv1"), "{text}");
        let rows = profile.rows("f32", Backend::Cpu, 8, "f32");
        assert_eq!((rows[1].experiment.as_str(), rows[1].size, rows[1].median()), ("f32: fc1 (Gemm)", 8, 10.0));
    }

    #[test]
    fn what_is_no_profile_is_an_error_with_a_next_step() {
        for text in ["", "{", "[]", r#"[{"cat": "Session", "name": "model_run"}]"#] {
            let error = NodeProfile::parse("x", text).unwrap_err().to_string();
            assert!(error.contains("profile") && error.contains("\nnext: give the file"), "{text}: {error}");
        }
    }
}
