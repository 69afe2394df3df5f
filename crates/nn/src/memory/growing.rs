//! A training loop whose memory grows, for an exercise.

use super::{Meter, Model};
use candle_core::DType;
use candle_nn::{AdamW, Optimizer, ParamsAdamW};
use gpulab::error::Result;
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// Bytes in use after each of `steps` steps of training this network with AdamW on `batch` examples, beyond those before the first. In the
/// first `warm_up` steps the learning rate rises to 10⁻³, where it stays. The steps are real; on a CPU the bytes are the C library's.
///
/// # Errors
/// What candle reports, such as a full memory; as [`Meter::now`].
pub fn growing(
    network: &super::Network,
    meter: &Meter,
    batch: usize,
    steps: usize,
    warm_up: usize,
) -> Result<Vec<u64>> {
    let model = Model::new(network, DType::F32, meter.device(), 7)?;
    let examples = model.batch(batch, 1)?;
    model.gradients(&examples)?; // the first step makes threads and their buffers
    let (before, _) = meter.now()?;
    let mut used = Vec::new();
    // begin
    let mut optimizers: HashMap<u64, AdamW> = HashMap::new();
    for step in 0..steps {
        let lr = 1e-3 * ((step + 1) as f64 / warm_up.max(1) as f64).min(1.0);
        // One for each learning rate: each has two means of each gradient, and none is ever dropped.
        let optimizer = match optimizers.entry(lr.to_bits()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let settings = ParamsAdamW { lr, ..ParamsAdamW::default() };
                new.insert(AdamW::new(model.vars().to_vec(), settings)?)
            }
        };
        let gradients = model.loss(&examples)?.backward()?;
        optimizer.step(&gradients)?;
        drop(gradients);
        used.push(meter.now()?.0.saturating_sub(before));
    }
    // end
    Ok(used)
}

/// The loop itself, for who has found what it keeps.
pub fn growing_source() -> &'static str {
    let file = include_str!("growing.rs");
    file.split("// begin\n").nth(1).and_then(|rest| rest.split("    // end\n").next()).unwrap_or(file)
}

#[cfg(test)]
mod tests {
    use super::super::Network;
    use super::*;
    use crate::DeviceKind;

    #[test]
    fn it_grows_by_two_numbers_a_parameter_as_long_as_the_rate_changes() {
        let (network, meter) = (Network::cnn(), Meter::of(DeviceKind::Cpu).unwrap());
        for batch in [2, 8] {
            let used = growing(&network, &meter, batch, 6, 4).unwrap();
            let grown: Vec<f64> =
                used.windows(2).map(|pair| (pair[1] as f64 - pair[0] as f64) / network.parameters() as f64).collect();
            let near = |grown: f64, right: f64| (grown - right).abs() < 0.4;
            assert!(grown[1..3].iter().all(|&grown| near(grown, 8.0)) && near(grown[4], 0.0), "{batch}: {grown:?}");
        }
        assert!(growing_source().contains("AdamW::new") && !growing_source().contains("pub fn"));
    }
}
