//! What needs an NVIDIA GPU: `cargo test --test gpu -- --ignored`.

use gpulab::cudarc::driver::sys::CUresult;
use gpulab::cudarc::driver::{self, CudaContext, DriverError, PushKernelArg};
use gpulab::cudarc::nvrtc::compile_ptx;
use gpulab::prelude::*;
use std::sync::Arc;

const ADD: &str = r#"extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { c[i] = a[i] + b[i]; }
}"#;

fn gpu() -> Gpu {
    Gpu::open_index(0).unwrap()
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_four_steps_at_awkward_sizes() {
    let gpu = gpu();
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
#[ignore = "needs an NVIDIA GPU"]
fn mistakes_are_named_before_anything_runs() {
    let gpu = gpu();
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
#[ignore = "needs an NVIDIA GPU"]
fn ptx_of_a_newer_version_is_the_drivers_fault() {
    let gpu = gpu();
    let ptx = ".version 99.0\n.target sm_75\n.address_size 64\n.visible .entry k() { ret; }\n";
    let said = gpu.load_ptx(ptx).unwrap_err().to_string();
    println!("{said}");
    assert!(said.contains("PTX 99.0, which is newer") && said.contains("NVRTC=12"), "{said}");
    let module = gpu.load_ptx(&ptx.replace("99.0", "7.0")).unwrap();
    module.kernel("k").unwrap().launch(LaunchConfig::new(1, 1), ()).unwrap();
    gpu.synchronize().unwrap();
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn streams_wait_for_each_other_and_pinned_memory_comes_back() {
    let gpu = gpu();
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
#[ignore = "needs an NVIDIA GPU"]
fn the_pool_counts_and_gives_back() {
    let gpu = gpu();
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
#[ignore = "needs an NVIDIA GPU"]
fn time_is_the_devices_own() {
    let gpu = gpu();
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

/// One kernel, launched by cudarc alone, through the doors, and by this crate.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn one_kernel_three_ways() -> Result<()> {
    let n = 1000;
    let (a, b) = (cpu::random_f32(n, 1), cpu::random_f32(n, 2));
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    let (config, count) = (LaunchConfig::for_elements(n, 256), n as i32);

    // By cudarc alone. Its errors pass through `?` as ours do.
    let context = CudaContext::new(0)?;
    let stream = context.default_stream();
    let function = context.load_module(compile_ptx(ADD)?)?.load_function("add")?;
    let (on_a, on_b) = (stream.clone_htod(&a)?, stream.clone_htod(&b)?);
    let mut c = stream.alloc_zeros::<f32>(n)?;
    let shape = driver::LaunchConfig { grid_dim: config.grid, block_dim: config.block, shared_mem_bytes: 0 };
    // SAFETY: two slices to read and one to write, each of `count` elements, and their count.
    unsafe { stream.launch_builder(&function).arg(&on_a).arg(&on_b).arg(&mut c).arg(&count).launch(shape) }?;
    assert_eq!(stream.clone_dtoh(&c)?, expected);

    // Through the doors: cudarc's context, function and memory in a launch that is checked.
    let gpu = Gpu::from_cuda(context.clone())?;
    assert!(Arc::ptr_eq(&gpu.cuda_context()?, &context));
    let declaration = "__global__ void add(const float *a, const float *b, float *c, int n)";
    // SAFETY: the function is of this context, and this is its declaration.
    let kernel = unsafe { gpu.kernel_from_cuda(function, declaration) }?;
    stream.memset_zeros(&mut c)?;
    kernel.launch(config, (&on_a, &on_b.as_view(), &mut c, count))?;
    assert_eq!(stream.clone_dtoh(&c)?, expected);
    let mut c = Buffer::from_cuda(&gpu, c)?;
    c.fill_bytes(0xFF)?;
    kernel.launch_on(&context.new_stream()?.into(), config, (&on_a, &on_b, &mut c, count))?;
    assert_eq!(c.to_host()?, expected);
    assert_eq!(stream.clone_dtoh(&c.into_cuda()?)?, expected);
    assert!(matches!(kernel.launch(config, (&on_a, &on_b, count)), Err(Error::ArgumentCount { .. })));

    // By this crate, and its kernel and buffers in a launch of cudarc's.
    let gpu = self::gpu();
    let kernel = gpu.compile(ADD)?.kernel("add")?;
    let (on_a, on_b) = (gpu.to_device(&a)?, gpu.to_device(&b)?);
    let mut c = gpu.poison::<f32>(n)?;
    kernel.launch(config, (&on_a, &on_b, &mut c, count))?;
    assert_eq!(c.to_host()?, expected);
    c.fill_bytes(0xFF)?;
    let (view_a, view_b, stream) = (on_a.as_cuda()?, on_b.as_cuda()?, gpu.cuda_stream()?);
    let (mut view_c, function) = (c.as_cuda_mut()?, kernel.cuda_function()?);
    // SAFETY: as above.
    unsafe { stream.launch_builder(function).arg(&view_a).arg(&view_b).arg(&mut view_c).arg(&count).launch(shape) }?;
    assert_eq!(c.to_host()?, expected);

    // Memory of the other context would not be ordered with this one's streams.
    let foreign = context.default_stream().clone_htod(&a)?;
    let refused = kernel.launch(config, (&foreign, &on_b, &mut c, count));
    assert!(matches!(refused, Err(Error::DeviceMismatch { .. })), "{refused:?}");
    let refused = kernel.launch_on(&context.new_stream()?.into(), config, (&on_a, &on_b, &mut c, count));
    assert!(matches!(refused, Err(Error::DeviceMismatch { .. })), "{refused:?}");
    assert!(matches!(Buffer::from_cuda(&gpu, foreign), Err(Error::DeviceMismatch { .. })));
    let raw = Error::from(DriverError(CUresult::CUDA_ERROR_INVALID_VALUE));
    assert!(matches!(raw, Error::Driver { code, .. } if code == "CUDA_ERROR_INVALID_VALUE"));
    // Nothing of that harmed the GPU.
    assert_eq!(c.to_host()?, expected);
    Ok(())
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn the_driver_tells_the_same_sizes_as_the_ptx() {
    let source = r#"struct Pair { double a; int b, c; };
extern "C" __global__ void k(const float *x, float4 v, Pair p, char small, unsigned long long n, float3 w) {}"#;
    let layouts = |gpu: &Gpu| {
        let kernel = gpu.compile(source).unwrap().kernel("k").unwrap();
        kernel.parameters().iter().map(|it| it.layout.unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(layouts(&gpu()), layouts(&Gpu::simulated().unwrap()));
    let (gpu, config) = (gpu(), LaunchConfig::new(1, 1));
    let kernel = gpu.compile(source).unwrap().kernel("k").unwrap();
    let (x, pair) = (gpu.zeros::<f32>(1).unwrap(), [0.0_f64; 2]);
    kernel.launch(config, (&x, [0.0_f32; 4], pair, 1_i8, 1_u64, [0.0_f32; 3])).unwrap();
    let refused = kernel.launch(config, (&x, 1.0_f32, pair, 1_i8, 1_u64, [0.0_f32; 3]));
    assert!(matches!(refused, Err(Error::ArgumentSize { expected: 16, given_bytes: 4, .. })), "{refused:?}");
    gpu.synchronize().unwrap();
}

/// A kernel that takes long enough for a mistake in the order to show.
const SLOW: &str = r#"extern "C" __global__ void slow(float *x, int n, float value) {
    long long end = clock64() + 200000000LL;
    while (clock64() < end) { }
    for (int i = threadIdx.x; i < n; i += blockDim.x) { x[i] = value; }
}"#;

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_copy_of_pinned_memory_has_ended_when_the_host_may_touch_it() {
    let (gpu, n) = (gpu(), 1 << 20);
    let slow = gpu.compile(SLOW).unwrap().kernel("slow").unwrap();
    let mut x = gpu.zeros::<f32>(n).unwrap();
    let mut host = gpu.pinned::<f32>(n).unwrap();
    slow.launch(LaunchConfig::new(1, 256), (&mut x, n as i32, 7.0_f32)).unwrap();
    // The driver sees through the slice that the memory is pinned, and would return at once.
    x.copy_to(host.as_mut_slice().unwrap()).unwrap();
    assert!(host.as_slice().unwrap().iter().all(|x| *x == 7.0));
    slow.launch(LaunchConfig::new(1, 256), (&mut x, n as i32, 8.0_f32)).unwrap();
    x.copy_from(host.as_slice().unwrap()).unwrap();
    host.as_mut_slice().unwrap().fill(9.0);
    assert!(x.to_host().unwrap().iter().all(|x| *x == 7.0));
    // The default stream alone, through a door.
    slow.launch(LaunchConfig::new(1, 256), (&mut x, n as i32, 5.0_f32)).unwrap();
    x.copy_to_on(&gpu.cuda_stream().unwrap().into(), &mut host).unwrap();
    assert!(host.as_slice().unwrap().iter().all(|x| *x == 5.0));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_dropped_stream_keeps_its_order() {
    let (gpu, n) = (gpu(), 1 << 20);
    let slow = gpu.compile(SLOW).unwrap().kernel("slow").unwrap();
    let mut x = gpu.zeros::<f32>(n).unwrap();
    let stream = gpu.new_stream().unwrap();
    slow.launch_on(&stream, LaunchConfig::new(1, 256), (&mut x, n as i32, 7.0_f32)).unwrap();
    drop(stream);
    assert!(x.to_host().unwrap().iter().all(|x| *x == 7.0));
    // Both open the one context: else the second would not know of the first one's streams.
    let again = self::gpu();
    assert!(Arc::ptr_eq(&gpu.cuda_context().unwrap(), &again.cuda_context().unwrap()));
}

#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_cooperative_launch_that_is_too_large_says_how_many_blocks_fit() {
    let gpu = gpu();
    let source = "extern \"C\" __global__ void k(int *x) { if (threadIdx.x == 0) atomicAdd(x, 1); }";
    let kernel = gpu.compile(source).unwrap().kernel("k").unwrap();
    let mut x = gpu.zeros::<i32>(1).unwrap();
    let together = LaunchAttributes { cooperative: true, ..LaunchAttributes::NONE };
    let fit = kernel.co_resident_blocks(LaunchConfig::new(1, 256)).unwrap();
    kernel.launch_with(LaunchConfig::new(fit as u32, 256), together, (&mut x,)).unwrap();
    let refused = kernel.launch_with(LaunchConfig::new(fit as u32 + 1, 256), together, (&mut x,)).unwrap_err();
    assert!(
        matches!(refused, Error::LaunchLimit { asked, limit, .. } if (asked, limit) == (fit + 1, fit)),
        "{refused:?}"
    );
    assert_eq!(x.to_host().unwrap(), [fit as i32]);
}

/// The TMA writes through a map on a stream of its own, right behind a slow kernel on the default stream.
#[test]
#[ignore = "needs an NVIDIA GPU"]
fn a_tensor_map_is_ordered_on_another_stream() {
    let gpu = gpu();
    if gpu.compute_capability().unwrap() < (9, 0) {
        return eprintln!("skipped: the TMA came with compute capability 9.0");
    }
    let source = r#"struct alignas(64) TensorMap { unsigned long long opaque[16]; };
extern "C" __global__ void store(const __grid_constant__ TensorMap map, float value) {
    __shared__ alignas(1024) float tile[8][32];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 256; i++) { tile[i / 32][i % 32] = value; }
        asm volatile("fence.proxy.async.shared::cta;");
        unsigned from = (unsigned)__cvta_generic_to_shared(tile);
        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                     :: "l"(&map), "r"(0), "r"(0), "r"(from) : "memory");
        asm volatile("cp.async.bulk.commit_group;");
        asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}"#;
    let slow = gpu.compile(SLOW).unwrap().kernel("slow").unwrap();
    let store = gpu.compile(source).unwrap().kernel("store").unwrap();
    let stream = gpu.new_stream().unwrap();
    let mut x = gpu.zeros::<f32>(256).unwrap();
    slow.launch(LaunchConfig::new(1, 256), (&mut x, 256, 1.0_f32)).unwrap();
    let mut map = TensorMap::written(&mut x, 8, 32, 8).unwrap();
    store.launch_on(&stream, LaunchConfig::new(1, 32), (&mut map, 2.0_f32)).unwrap();
    // The copy back waits for the other stream.
    assert_eq!(x.to_host().unwrap(), [2.0; 256]);
}
