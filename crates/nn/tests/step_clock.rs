//! The clock inside a training step does not change what it measures. A process of its own: tests beside it would take turns with
//! its steps.

use gpulab_nn::cnn::{AdamW, Cnn, Kernels, Parameters, Precision, batch};
use gpulab_nn::data::Images;
use gpulab_nn::{Device, DeviceKind};
use std::time::Instant;

#[test]
fn the_spans_add_up_to_a_step_without_a_clock() {
    add_up(&Device::Cpu, 16, &[Kernels::Candle, Kernels::Own]);
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_events_of_a_step_add_up_to_a_step_without_them() {
    add_up(&DeviceKind::Cuda.open().unwrap(), 512, &[Kernels::Candle]);
}

fn add_up(device: &Device, images: u32, kinds: &[Kernels]) {
    let which: Vec<u32> = (0..images).collect();
    let (x, digits) = batch(&Images::generated(1, which.len(), 1).train, &which, device).unwrap();
    for &kernels in kinds {
        let cnn = Cnn::new(&Parameters::random(1), device, kernels, Precision::F32).unwrap();
        let mut adamw = AdamW::new(&cnn).unwrap();
        let mut plain = || {
            device.synchronize().unwrap();
            let start = Instant::now();
            let gradients = cnn.loss(&x, &digits).unwrap().backward().unwrap();
            adamw.step(&cnn, &gradients, 1.0).unwrap();
            device.synchronize().unwrap();
            // The spans, too, end before the memory of a step is given back.
            1e3 * start.elapsed().as_secs_f64()
        };
        let timed = || {
            let spans = cnn.step_by_operator(&x, &digits, "").unwrap();
            spans.iter().map(|span| span.end_ms - span.start_ms).sum::<f64>()
        };
        plain();
        timed();
        // Neighbours have the same load beside them, each comes first as often, and the median leaves out whoever was
        // interrupted; more of them where the two are apart.
        let mut pairs = Vec::new();
        let fits = (0..12).any(|_| {
            for _ in 0..3 {
                let alone = plain();
                pairs.push((timed(), alone));
                pairs.push((timed(), plain()));
            }
            pairs.sort_by(|(sum, alone), (other_sum, other_alone)| (sum / alone).total_cmp(&(other_sum / other_alone)));
            let (sum, alone) = pairs[pairs.len() / 2];
            (sum / alone - 1.0).abs() <= 0.1
        });
        let (sum, alone) = pairs[pairs.len() / 2];
        assert!(fits, "{kernels:?}: the spans add up to {sum} ms, and a step without a clock takes {alone} ms");
        println!("{kernels:?}: spans {sum:.2} ms, step {alone:.2} ms, the median of {} pairs", pairs.len());
    }
}
