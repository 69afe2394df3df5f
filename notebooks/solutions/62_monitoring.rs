// Solutions of lesson 62. Each section replaces the exercise cell of that name.

// exercise: hysteresis
fn my_alert(samples: &[(f64, Option<f64>)]) -> Vec<bool> {
    let (mut firing, mut since, mut answers) = (false, None, Vec::new());
    for &(now, celsius) in samples {
        // Which condition is asked for depends on whether the alert fires; an unknown temperature meets neither.
        let (limit, holds) = match firing {
            false => (30.0, celsius.is_some_and(|celsius| celsius > 85.0)),
            true => (20.0, celsius.is_some_and(|celsius| celsius <= 80.0)),
        };
        since = if holds { since.or(Some(now)) } else { None };
        if since.is_some_and(|since: f64| now - since >= limit) {
            (firing, since) = (!firing, None);
        }
        answers.push(firing);
    }
    answers
}

// exercise: run_energy
// A GPU: 0.5 h · 120 W + 6 h · 650 W + 1.5 h · 250 W = 4.335 kWh.
let my_kwh: Option<f64> = Some(8.0 * (0.5 * 120.0 + 6.0 * 650.0 + 1.5 * 250.0) / 1000.0);
let my_euros: Option<f64> = my_kwh.map(|kwh| kwh * 1.2 * 0.30);

// exercise: diagnose_slow
// The job waits for data for a small part of each step; the memory is taken from the first sample to the last; no slowdown is named. But
// PCIe is busy all the time, where the healthy training moves next to nothing.
let rate = training.iter().filter_map(|sample| sample.pcie_rx_bytes_per_s).sum::<f64>() / training.len() as f64;
let taken = steps(&training)[training.len() - 1] - steps(&training)[0];
let per_second = taken / (case.seconds(&training[training.len() - 1]) - case.seconds(&training[0]));
let my_diagnosis: Option<(check::SlowFault, f64)> = Some((check::SlowFault::UploadsEachStep, rate / 1e9 / per_second));
