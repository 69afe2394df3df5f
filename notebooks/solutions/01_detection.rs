// Solutions of lesson 01. Each section replaces the exercise cell of its name.

// exercise: choose_device
fn choose_device(gpus: &[check::Candidate]) -> Option<usize> {
    let fit = gpus.iter().enumerate().filter(|(_, gpu)| gpu.compute_capability >= (8, 0));
    fit.max_by_key(|(_, gpu)| gpu.free_bytes).map(|(index, _)| index)
}

// exercise: fix_mismatch
fn fix_mismatch(weight: &DeviceVector, bias: &DeviceVector, x: &DeviceVector) -> Result<DeviceVector> {
    let x = x.to(weight.device())?;
    weight.multiply(&x)?.add(bias)
}

// exercise: will_it_run
fn will_it_run(pairing: &check::Pairing) -> bool {
    pairing.gpu >= pairing.compiled_for && pairing.driver >= pairing.compiler
}
