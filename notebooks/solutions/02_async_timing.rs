// Solutions of lesson 02: each section replaces the exercise cell of that name.

// exercise: time_kernel
fn time_kernel(queue: &mut PracticeQueue, work: PracticeKernel) -> Result<f64> {
    // Warm-up; and the wait empties the queue of what was in it before.
    queue.launch(work)?;
    queue.synchronize()?;
    let mut samples = Vec::new();
    for _ in 0..21 {
        let start = queue.event();
        queue.launch(work)?;
        samples.push(queue.event().us_since(&start));
    }
    // The median: a kernel that took twice as long does not move it.
    samples.sort_by(f64::total_cmp);
    Ok(samples[samples.len() / 2])
}

// exercise: find_fault
fn find_fault(queue: &mut PracticeQueue, work: &[PracticeKernel]) -> Option<usize> {
    for (number, &kernel) in work.iter().enumerate() {
        // Waiting after each launch, nothing launched earlier is left that could report here.
        if queue.launch(kernel).and_then(|()| queue.synchronize()).is_err() {
            return Some(number);
        }
    }
    None
}

// exercise: launch_bound
// Before, the device takes 13 µs a pair and the host 8: launches hide, and the queue grows. After, the device takes 5: it waits
// for each launch, so the last kernel begins when the last of 2000 launches has returned.
let my_us: [Option<f64>; 2] = [Some(13_005.0), Some(8_002.0)];

// exercise: which_is_faster
use std::cmp::Ordering;
fn which_is_faster(first: &[f64], second: &[f64]) -> Option<Ordering> {
    // From fewer than six samples no interval of the median has 95 % confidence.
    if first.len() < 6 || second.len() < 6 {
        return None;
    }
    let interval = |samples: &[f64]| {
        let mut sorted = samples.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (n, half) = (sorted.len() as f64, 0.98 * (sorted.len() as f64).sqrt());
        let at = |place: f64| sorted[(place as usize).min(sorted.len() - 1)];
        (at(n / 2.0 - half), at(n / 2.0 + half))
    };
    let (first, second) = (interval(first), interval(second));
    if first.1 < second.0 {
        Some(Ordering::Less)
    } else if second.1 < first.0 {
        Some(Ordering::Greater)
    } else {
        None
    }
}

// exercise: diagnose_idle
// A copy of 4 bytes takes as long as the kernels in front of it: the host waits in it for the whole step, and the queue runs empty. Then
// come 20 µs of other work and a launch, the gap of 24 µs. Without the wait the host needs 20 + 8 · 4 µs for a step of 8 kernels.
let my_idle: Option<(check::Idle, f64)> = Some((check::Idle::WaitsEachStep, (20.0 + 8.0 * 4.0) / 8.0));
