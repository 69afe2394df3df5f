//! What lies in memory between the forward and the backward pass, as a list.

use super::layer::Layer;

/// Results of one layer that are kept until the backward pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The layer's name.
    pub layer: String,
    /// Which results.
    pub what: String,
    /// The shape of each.
    pub shape: Vec<usize>,
    /// Numbers in all of them.
    pub numbers: u64,
}

/// Collects them, layer by layer.
#[derive(Debug, Default)]
pub(super) struct Keeps(pub Vec<Kept>);

impl Keeps {
    /// Notes that the layer keeps results of that shape: names, and how many of each.
    pub(super) fn keep(&mut self, layer: &Layer, shape: &[usize], results: &[(&str, u64)]) {
        self.add(&layer.name(), shape, results);
    }

    pub(super) fn add(&mut self, layer: &str, shape: &[usize], results: &[(&str, u64)]) {
        let times: u64 = results.iter().map(|(_, times)| times).sum();
        let what: Vec<&str> = results.iter().map(|(what, _)| *what).collect();
        let numbers = shape.iter().product::<usize>() as u64 * times;
        self.0.push(Kept { layer: layer.to_string(), what: what.join(", "), shape: shape.to_vec(), numbers });
    }
}
