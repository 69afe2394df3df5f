//! What needs an NVIDIA GPU. Without one each test says so and ends.

use gpulab::prelude::*;

const ADD: &str = r#"extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { c[i] = a[i] + b[i]; }
}"#;

/// Only "there is no GPU" is a reason to skip: a GPU that is there and does not open is a failure.
fn gpu() -> Option<Gpu> {
    match Gpu::open_index(0) {
        Ok(gpu) => Some(gpu),
        Err(Error::NoGpu { tried }) => {
            eprintln!("skipped: needs an NVIDIA GPU ({})", tried.join("; "));
            None
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn the_four_steps_at_awkward_sizes() {
    let Some(gpu) = gpu() else { return };
    let kernel = gpu.compile(ADD).unwrap().kernel("add").unwrap();
    for n in [0, 1, 31, 33, 1000, 127 * 65 * 129] {
        let (a, b) = (cpu::random_f32(n, 1), cpu::random_f32(n, 2));
        let (on_a, on_b) = (gpu.to_device(&a).unwrap(), gpu.to_device(&b).unwrap());
        let mut c = gpu.poison::<f32>(n).unwrap();
        kernel.launch(LaunchConfig::for_elements(n, 256), (&on_a, &on_b, &mut c, n as i32)).unwrap();
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(c.to_host().unwrap(), expected, "{n}");
    }
}

#[test]
fn mistakes_are_named_before_anything_runs() {
    let Some(gpu) = gpu() else { return };
    let module = gpu.compile(ADD).unwrap();
    let kernel = module.kernel("add").unwrap();
    let a = gpu.zeros::<f32>(8).unwrap();
    let wide = gpu.zeros::<f64>(8).unwrap();
    let mut c = gpu.zeros::<f32>(8).unwrap();
    let config = LaunchConfig::for_elements(8, 64);
    let said = [
        module.kernel("sub").map(drop),
        kernel.launch(config, (&a, &mut c, 8_i32)),
        kernel.launch(config, (&a, &wide, &mut c, 8_i32)),
        kernel.launch(config, (&a, &a, &mut c, 8_usize)),
        kernel.launch(LaunchConfig::new(1, 2048), (&a, &a, &mut c, 8_i32)),
        gpu.compile("extern \"C\" __global__ void k(float *x) { x[0] = y; }").map(drop),
        Gpu::open_index(99).map(drop),
        gpu.alloc::<f32>(1 << 44).map(drop),
        gpu.zeros::<f32>(4).unwrap().copy_from(&[0.0; 5]),
    ]
    .map(|outcome| outcome.unwrap_err().to_string());
    let expected = [
        "no kernel `sub`",
        "takes 4 arguments",
        "Buffer<f32>",
        "value as i32",
        "too many threads",
        "undefined",
        "no GPU 99",
        "out of device memory",
        "4 elements expected, 5 given",
    ];
    for (said, expected) in said.iter().zip(expected) {
        println!("{said}\n");
        assert!(said.contains(expected) && said.contains("\nnext: "), "{said}");
    }
    // Nothing of that harmed the GPU.
    assert_eq!(a.to_host().unwrap(), [0.0; 8]);
}

#[test]
fn ptx_of_a_newer_version_is_the_drivers_fault() {
    let Some(gpu) = gpu() else { return };
    let ptx = ".version 99.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";
    let said = gpu.load_ptx(ptx).unwrap_err().to_string();
    println!("{said}");
    assert!(said.contains("PTX 99.0, which is newer") && said.contains("NVRTC=12"), "{said}");
    let module = gpu.load_ptx(&ptx.replace("99.0", "7.0")).unwrap();
    module.kernel("k").unwrap().launch(LaunchConfig::new(1, 1), ()).unwrap();
    gpu.synchronize().unwrap();
}

#[test]
fn streams_wait_for_each_other_and_pinned_memory_comes_back() {
    let Some(gpu) = gpu() else { return };
    let kernel = gpu.compile(ADD).unwrap().kernel("add").unwrap();
    let n = 1 << 20;
    let (one, two) = (gpu.new_stream().unwrap(), gpu.new_stream().unwrap());
    let (mut host, mut back) = (gpu.pinned::<f32>(n).unwrap(), gpu.pinned::<f32>(n).unwrap());
    host.as_mut_slice().unwrap().iter_mut().enumerate().for_each(|(i, x)| *x = i as f32);
    let (mut a, mut c) = (gpu.zeros::<f32>(n).unwrap(), gpu.poison::<f32>(n).unwrap());
    a.copy_from_on(&one, &host).unwrap();
    kernel.launch_on(&two, LaunchConfig::for_elements(n, 256), (&a, &a, &mut c, n as i32)).unwrap();
    c.copy_to_on(&one, &mut back).unwrap();
    assert!(back.as_slice().unwrap().iter().enumerate().all(|(i, x)| *x == 2.0 * i as f32));
}

#[test]
fn the_pool_counts_and_gives_back() {
    let Some(gpu) = gpu() else { return };
    gpu.trim(0).unwrap();
    let before = gpu.memory().unwrap();
    println!("begin: {before}");
    let buffer = gpu.zeros::<f32>(100 << 18).unwrap();
    let with = gpu.memory().unwrap();
    println!("100 MiB: {with}");
    assert!(with.used >= before.used + (100 << 20) && with.reserved >= with.used);
    drop(buffer);
    println!("dropped: {}", gpu.memory().unwrap());
    gpu.set_release_threshold(u64::MAX).unwrap();
    drop(gpu.zeros::<f32>(100 << 18).unwrap());
    let kept = gpu.memory().unwrap();
    println!("threshold at maximum, allocated and dropped: {kept}");
    assert!(kept.reserved >= 100 << 20, "{kept}");
    gpu.trim(0).unwrap();
    gpu.set_release_threshold(0).unwrap();
    println!("trimmed: {}", gpu.memory().unwrap());
}

#[test]
fn time_is_the_devices_own() {
    let Some(gpu) = gpu() else { return };
    let kernel = gpu.compile(ADD).unwrap().kernel("add").unwrap();
    for n in [1 << 10, 1 << 26] {
        let sets = gpu.sets_past_cache(12 * n);
        let mut buffers: Vec<_> = (0..sets)
            .map(|i| (gpu.to_device(&cpu::random_f32(n, i as u64)).unwrap(), gpu.zeros::<f32>(n).unwrap()))
            .collect();
        let config = LaunchConfig::for_elements(n, 256);
        let ms = gpu
            .time(&Bench::default(), |i| {
                let (a, c) = &mut buffers[i % sets];
                kernel.launch(config, (&*a, &*a, c, n as i32))
            })
            .unwrap();
        println!("n {n}, {sets} sets: {ms} ms, {} GB/s", figures(ms.gb_per_s(8 * n).median));
        assert!(ms.median > 0.0);
    }
}
