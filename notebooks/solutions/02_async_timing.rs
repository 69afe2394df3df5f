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

// exercise: crossover
fn crossover(cpu: &[(usize, f64)], gpu: &[(usize, f64)]) -> Option<usize> {
    let mut from = None;
    // From the large end down, for as long as the GPU is ahead.
    for (cpu, gpu) in cpu.iter().zip(gpu).rev() {
        if gpu.1 >= cpu.1 {
            break;
        }
        from = Some(cpu.0);
    }
    from
}
