//! The rungs on an NVIDIA GPU, against f64.

use gpulab::prelude::*;
use gpulab_kernels::ladder;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn every_rung_of_matmul_is_right() {
    let gpu = Gpu::open_index(0).unwrap();
    for rung in ladder::RUNGS.iter().filter(|rung| rung.kernel == "matmul") {
        let kernel = rung.compile(&gpu).unwrap();
        for [m, n, k] in [[1, 1, 1], [31, 33, 1], [33, 31, 257], [127, 65, 129], [200, 520, 300]] {
            let (a, b) = (cpu::random_f32(m * k, 3), cpu::random_f32(k * n, 4));
            let (on_a, on_b) = (gpu.to_device(&a).unwrap(), gpu.to_device(&b).unwrap());
            let mut c = gpu.poison::<f32>(m * n).unwrap();
            let config = rung.launch(n, m, gpu.multiprocessors());
            kernel.launch(config, (&on_a, &on_b, &mut c, m as i32, n as i32, k as i32)).unwrap();
            for (at, given) in c.to_host().unwrap().into_iter().enumerate() {
                let (row, column) = (at / n, at % n);
                let exact: f64 = (0..k).map(|i| f64::from(a[row * k + i]) * f64::from(b[i * n + column])).sum();
                let error = (f64::from(given) - exact).abs();
                assert!(error <= 1e-6 * (k as f64).sqrt() * 4.0, "{} {m} × {n} × {k}, {at}: {error}", rung.path);
            }
        }
    }
}
