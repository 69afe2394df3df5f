//! A model as text, for the command line.

use super::Onnx;
use super::model::Port;
use gpulab::error::bytes;
use std::collections::BTreeMap;
use std::fmt;

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shape: Vec<String> = self.shape.iter().map(ToString::to_string).collect();
        write!(f, "{}: {} [{}]", self.name, self.kind, shape.join(", "))
    }
}

impl fmt::Display for Onnx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (operators, format) = self.versions();
        writeln!(f, "{}: operators of version {operators}, file format {format}", self.name())?;
        for (word, ports) in [("in", self.inputs()), ("out", self.outputs())] {
            for port in ports {
                writeln!(f, "  {word:<4}{port}")?;
            }
        }
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let nodes = self.nodes();
        for node in &nodes {
            *counts.entry(node.operator.clone()).or_default() += 1;
        }
        let counts: Vec<String> = counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
        writeln!(f, "  {} nodes: {}", nodes.len(), counts.join(", "))?;
        writeln!(f, "  {} weights, {}", self.tensors().count(), bytes(self.weight_bytes()))?;
        for (key, text) in self.notes() {
            writeln!(f, "  {key}: {text}")?;
        }
        Ok(())
    }
}
