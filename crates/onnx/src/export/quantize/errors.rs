//! How far 8 bits are from 32.

/// A value of the quantised network beside that of the network in f32.
#[derive(Debug, Clone, PartialEq)]
pub struct ValueError {
    /// The value: `input`, the layer's name, or `output`.
    pub name: String,
    /// The root of the mean square of what f32 gives.
    pub size: f64,
    /// The root of the mean square of the difference.
    pub error: f64,
    /// The largest difference.
    pub largest: f64,
}

impl ValueError {
    /// The error as a share of the value.
    pub fn share(&self) -> f64 {
        if self.size > 0.0 { self.error / self.size } else { 0.0 }
    }
}

pub(super) fn of(name: &str, exact: Option<&Vec<f32>>, rounded: &[f32]) -> ValueError {
    let exact = exact.expect("both walks see the same values");
    let root = |sum: f64| (sum / exact.len().max(1) as f64).sqrt();
    let apart = || exact.iter().zip(rounded).map(|(x, y)| f64::from(x - y).abs());
    ValueError {
        name: name.to_string(),
        size: root(exact.iter().map(|&x| f64::from(x).powi(2)).sum()),
        error: root(apart().map(|x| x * x).sum()),
        largest: apart().fold(0.0, f64::max),
    }
}
