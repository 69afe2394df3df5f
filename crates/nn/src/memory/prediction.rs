//! Predicted bytes, layer by layer, and how they show themselves.

use gpulab::error::bytes;
use gpulab::measurement::{Backend, Measurement, Summary};
use gpulab::table::{Cell, Table};

/// One layer's part, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerBytes {
    /// Its name.
    pub name: String,
    /// The shape of what goes out, the batch first.
    pub shape: Vec<usize>,
    /// Its parameters.
    pub parameters: u64,
    /// What is kept of it until the backward pass.
    pub activations: u64,
}

/// What a step of training must hold, in bytes, from the layers' shapes alone. As a cell's last line it shows itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prediction {
    /// Examples.
    pub batch: usize,
    /// Layer by layer; the loss last.
    pub layers: Vec<LayerBytes>,
    /// The parameters.
    pub parameters: u64,
    /// Their gradients: as large.
    pub gradients: u64,
    /// What the optimiser remembers.
    pub optimiser: u64,
    /// Everything kept between the forward and the backward pass.
    pub activations: u64,
    /// The examples themselves.
    pub input: u64,
}

impl Prediction {
    /// All of it together: what is held when the backward pass has ended and nothing was dropped yet.
    pub fn total(&self) -> u64 {
        self.parameters + self.gradients + self.optimiser + self.activations + self.input
    }

    /// The four parts that a measurement is held against.
    pub fn parts(&self) -> [(&'static str, u64); 4] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimiser state", self.optimiser),
            ("activations", self.activations),
        ]
    }

    /// A row for each part, for [`gpulab::plot::stacked`]; `bar` names the bar.
    pub fn rows(&self, bar: &str) -> Vec<Measurement> {
        self.parts().map(|(part, bytes)| part_row(bar, self.batch, Backend::Derived, part, bytes)).to_vec()
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        let rows = self.layers.iter().map(|layer| {
            let share = 100.0 * layer.activations as f64 / self.activations.max(1) as f64;
            let shape: Vec<String> = layer.shape.iter().map(usize::to_string).collect();
            [
                layer.name.clone(),
                shape.join(" × "),
                bytes(layer.parameters),
                bytes(layer.activations),
                format!("{share:.1} %"),
            ]
            .map(Cell::of)
            .to_vec()
        });
        let sums = [
            "together".to_string(),
            String::new(),
            bytes(self.parameters),
            bytes(self.activations),
            "100 %".to_string(),
        ];
        let table = Table {
            title: format!("Predicted from the layers alone, {} examples", self.batch),
            heads: ["layer", "gives", "parameters", "activations kept", "share"].map(str::to_string).to_vec(),
            rows: rows.chain([sums.map(Cell::of).to_vec()]).collect(),
            notes: vec![format!(
                "and gradients {}, optimiser state {}, the examples {}: {} in all, before any workspace",
                bytes(self.gradients),
                bytes(self.optimiser),
                bytes(self.input),
                bytes(self.total())
            )],
            ..Table::default()
        };
        table.show();
    }
}

/// One part of a bar, in MB (10⁶ bytes).
pub(super) fn part_row(bar: &str, batch: usize, backend: Backend, part: &str, bytes: u64) -> Measurement {
    Measurement::new(bar, backend, batch, part, "MB", Summary::of(&[bytes as f64 / 1e6]))
}
