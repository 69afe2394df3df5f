// Solutions of lesson 01. Each section replaces the exercise cell of its name.

// exercise: fix_mismatch
fn fix_mismatch(weight: &DeviceVector, bias: &DeviceVector, x: &DeviceVector) -> Result<DeviceVector> {
    let x = x.to(weight.device())?;
    weight.multiply(&x)?.add(bias)
}

// exercise: will_it_run
fn will_it_run(pairing: &check::Pairing) -> bool {
    pairing.gpu >= pairing.compiled_for && pairing.driver >= pairing.compiler
}

// exercise: layer_batch
// The GPU computes 24 · 128 · 2 · 2.37e9 / 256e9 = 56.9 FLOP in the time of a byte. The layer has
// 2 n² b / (4 (n² + 2 n b)) FLOP a byte; that is 56.9 at b = 120.5.
let my_batch: Option<usize> = Some(121);

// exercise: share_batch
fn share_batch(samples: usize, gpus: &[check::Worker]) -> Option<Vec<usize>> {
    let mut shares = vec![0; gpus.len()];
    for _ in 0..samples {
        // Each sample goes where it is done first, among those with room.
        let ends = |&at: &usize| (shares[at] + 1) as f64 / gpus[at].samples_per_s;
        let free = (0..gpus.len()).filter(|&at| shares[at] < gpus[at].fits);
        let next = free.min_by(|a, b| ends(a).total_cmp(&ends(b)))?;
        shares[next] += 1;
    }
    Some(shares)
}
