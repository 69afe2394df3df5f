//! Kernels on the simulated GPU: the same calls as on hardware, mistakes named by line, counters. No GPU is needed.
#![cfg(not(target_os = "macos"))] // these kernels are compiled here, and there is no NVRTC for macOS

use gpulab::inspect::{AccessKind, Space};
use gpulab::launch::LaunchAttributes;
use gpulab::prelude::*;
use gpulab::sim::BlockOrder;

const ADD: &str = r#"extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}"#;

/// The same without the guard: the last block runs past the end.
fn unguarded() -> String {
    ADD.replace("if (i < n) {", "{")
}

fn simulated() -> Gpu {
    Gpu::simulated().expect("the simulator opens anywhere")
}

fn kernel(gpu: &Gpu, source: &str, name: &str) -> Kernel {
    gpu.compile(source).and_then(|module| module.kernel(name)).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn the_four_steps_at_awkward_sizes() {
    let gpu = simulated();
    let add = kernel(&gpu, ADD, "add");
    for n in [0, 1, 31, 33, 1000, 100_003] {
        let (a, b) = (cpu::random_f32(n, 1), cpu::random_f32(n, 2));
        let (on_a, on_b) = (gpu.to_device(&a).unwrap(), gpu.to_device(&b).unwrap());
        let mut c = gpu.poison::<f32>(n).unwrap();
        add.launch(LaunchConfig::for_elements(n, 256), (&on_a, &on_b, &mut c, n as i32)).unwrap();
        let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
        assert_eq!(c.to_host().unwrap(), expected, "{n}");
    }
}

#[test]
fn opening_falls_to_it_and_asking_for_hardware_does_not() {
    let opened = Gpu::open().unwrap();
    assert_eq!(matches!(opened, Gpu::Simulated(_)), Gpu::count() == 0, "{opened}");
    assert!(!matches!(Gpu::open_index(0), Ok(Gpu::Simulated(_))));
    let gpu = simulated();
    assert!(gpu.to_string().contains("no hardware") && gpu.name().contains("warpsim"), "{gpu}");
    assert_eq!(gpu.backend(), Backend::Simulator);
    assert_eq!(gpu.compute_capability().unwrap(), (9, 0));
}

#[test]
fn a_missing_guard_is_told_by_line_block_thread_and_name() {
    let gpu = simulated();
    let add = kernel(&gpu, &unguarded(), "add");
    let (a, b) = (gpu.to_device(&[1.0_f32; 1000]).unwrap(), gpu.to_device(&[2.0_f32; 1000]).unwrap());
    let mut c = gpu.zeros::<f32>(1000).unwrap();
    let error = add.launch(LaunchConfig::for_elements(1000, 256), (&a, &b, &mut c, 1000_i32)).unwrap_err();
    let text = error.to_string();
    println!("{text}");
    for part in [
        "`add` has a mistake",
        "access out of bounds: kernel.cu:4, block (3, 0, 0), thread (232, 0, 0)",
        "    4 |         c[i] = a[i] + b[i];",
        "past the end of `a`, at index 1000: it has 1000 elements of 4 bytes",
        "past the end of `b`",
        "past the end of `c`",
        "if (i < n)",
        "\nnext: ",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let Error::Mistakes { shown, more: 0, .. } = error else { panic!("{error:?}") };
    assert_eq!((shown.len(), shown[0].what.len()), (1, 3));
    // What was right is there, and nothing else was touched.
    assert_eq!(c.to_host().unwrap(), [3.0; 1000]);
}

#[test]
fn memory_that_nobody_wrote_is_told_and_what_was_filled_is_not() {
    let gpu = simulated();
    let source = "extern \"C\" __global__ void copy(const float *a, float *c) { c[threadIdx.x] = a[threadIdx.x]; }";
    let copy = kernel(&gpu, source, "copy");
    let run = |a: &Buffer<f32>| {
        let mut c = gpu.alloc::<f32>(32)?;
        copy.launch(LaunchConfig::new(1, 32), (a, &mut c))?;
        c.to_host()
    };
    for raw in [gpu.alloc(32).unwrap(), gpu.poison(32).unwrap()] {
        let text = run(&raw).unwrap_err().to_string();
        assert!(
            text.contains("read of memory that nothing has written: kernel.cu:1") && text.contains("`a`"),
            "{text}"
        );
    }
    assert!(gpu.poison::<f32>(4).unwrap().to_host().unwrap().iter().all(|x| x.is_nan()));
    assert_eq!(run(&gpu.zeros(32).unwrap()).unwrap(), [0.0; 32]);
    assert_eq!(run(&gpu.to_device(&[7.0; 32]).unwrap()).unwrap(), [7.0; 32]);
    let mut copied = gpu.alloc(32).unwrap();
    copied.copy_from_buffer(&gpu.to_device(&[5.0; 32]).unwrap()).unwrap();
    assert_eq!(run(&copied).unwrap(), [5.0; 32]);
}

#[test]
fn mistakes_before_a_launch_are_told_apart() {
    let gpu = simulated();
    let undefined = "extern \"C\" __global__ void k(float *x) { x[0] = y; }";
    assert!(matches!(gpu.compile(undefined), Err(Error::Compile { log, .. }) if log.contains("undefined")));
    let text = gpu.load_ptx("no PTX").map(drop).unwrap_err().to_string();
    assert!(text.contains("simulator: PTX line 1") && text.contains("\nnext: "), "{text}");
    assert!(matches!(gpu.alloc::<f32>(1 << 44), Err(Error::OutOfMemory { .. })));
}

#[test]
fn what_only_hardware_has_is_refused_with_a_way_on() {
    let gpu = simulated();
    let add = kernel(&gpu, ADD, "add");
    let mut ran = false;
    let timed = gpu.time(&Bench::default(), |_| {
        ran = true;
        Ok(())
    });
    let said = [
        timed.map(drop),
        gpu.event().map(drop),
        gpu.new_stream().map(drop),
        gpu.pinned::<f32>(8).map(drop),
        gpu.trim(0),
        add.resources(LaunchConfig::new(1, 32)).map(drop),
    ];
    for outcome in said {
        let error = outcome.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, Error::Unsupported { .. }), "{text}");
        assert!(text.contains("this is a simulated GPU\nnext: "), "{text}");
    }
    assert!(!ran, "no time is taken of a simulator");
}

#[test]
fn a_module_gives_the_ptx_that_it_loaded() {
    let gpu = simulated();
    let module = gpu.compile(ADD).unwrap();
    assert!(module.ptx().unwrap().contains(".visible .entry add("));
    let again = gpu.load_ptx(module.ptx().unwrap()).unwrap();
    assert_eq!((again.names(), again.ptx()), (module.names(), module.ptx()));
}

#[test]
fn memory_is_counted_and_comes_back() {
    let gpu = simulated();
    assert_eq!(gpu.memory().unwrap().used, 0);
    let buffer = gpu.zeros::<f32>(1000).unwrap();
    let other = gpu.clone().zeros::<f64>(500).unwrap();
    assert_eq!(gpu.memory().unwrap().used, 8000);
    drop((buffer, other));
    let after = gpu.memory().unwrap();
    assert_eq!((after.used, after.used_high), (0, 8000));
    assert!(after.total > 0 && after.free == after.total, "{after}");
}

#[test]
fn an_inspection_names_lines_parameters_and_lanes() {
    let gpu = simulated();
    let add = kernel(&gpu, ADD, "add");
    let (a, b) = (gpu.to_device(&[1.0_f32; 100]).unwrap(), gpu.to_device(&[2.0_f32; 100]).unwrap());
    let mut c = gpu.alloc::<f32>(100).unwrap();
    let config = LaunchConfig::for_elements(100, 64);
    let seen = add.inspect_warp(config, (&a, &b, &mut c, 100_i32), (1, 0, 0), 1).unwrap();
    assert_eq!(
        (seen.kernel.as_str(), seen.grid, seen.block, seen.watched),
        ("add", [2, 1, 1], [64, 1, 1], ([1, 0, 0], 1))
    );
    assert!(seen.findings.is_empty(), "{:?}", seen.findings);
    // 100 elements: three whole warps and four lanes, in two loads each.
    assert_eq!((seen.counters.global_load_requests, seen.counters.global_load_sectors), (8, 2 * 13));
    assert_eq!(seen.lines.len(), ADD.lines().count());
    assert_eq!(seen.lines[3].text, "        c[i] = a[i] + b[i];");
    assert_eq!(seen.lines[3].counters.global_store_requests, 4);
    assert_eq!(c.to_host().unwrap(), [3.0; 100]);
    let mut names: Vec<_> = seen.accesses.iter().map(|access| (access.kind, access.variable.as_str())).collect();
    // The compiler may load `b` first.
    names[..2].sort_by_key(|(_, name)| *name);
    assert_eq!(names, [(AccessKind::Load, "a"), (AccessKind::Load, "b"), (AccessKind::Store, "c")]);
    for access in &seen.accesses {
        assert_eq!((access.space, access.line, access.text.as_str()), (Space::Global, Some(4), "c[i] = a[i] + b[i];"));
        let offsets: Vec<_> = (0..32).map(|lane| (lane < 4).then_some(4 * (96 + lane))).collect();
        assert_eq!(access.offsets.to_vec(), offsets);
    }
    let seen = kernel(&gpu, &unguarded(), "add").inspect(config, (&a, &b, &mut c, 100_i32)).unwrap();
    assert_eq!(seen.findings.len(), 3);
    assert_eq!(seen.findings[0].variable.as_deref(), Some("a"));
    // A launch afterwards is an ordinary one.
    add.launch(config, (&a, &b, &mut c, 100_i32)).unwrap();
}

#[test]
fn shared_memory_has_the_readers_name() {
    let gpu = simulated();
    let source = r#"extern "C" __global__ void turn(const float *x, float *out) {
    __shared__ float tile[32][32];
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 32 + threadIdx.x];
    __syncthreads();
    out[threadIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}"#;
    let turn = kernel(&gpu, source, "turn");
    let (x, mut out) = (gpu.to_device(&cpu::random_f32(1024, 1)).unwrap(), gpu.alloc::<f32>(1024).unwrap());
    let config = LaunchConfig { grid: (1, 1, 1), block: (32, 32, 1), shared_bytes: 0 };
    let seen = turn.inspect(config, (&x, &mut out)).unwrap();
    assert_eq!(seen.shared_bytes, 4096);
    let load = seen.accesses.iter().find(|a| a.space == Space::Shared && a.kind == AccessKind::Load).unwrap();
    assert_eq!((load.variable.as_str(), load.wavefronts, load.conflicts), ("tile", 32, 31));
    assert_eq!(load.offsets[1], Some(128));
}

#[test]
fn a_loop_without_an_end_is_told_within_seconds() {
    let gpu = simulated();
    let source = r#"extern "C" __global__ void wait(volatile int *flag) {
    while (flag[0] == 0) { }
}"#;
    let mut flag = gpu.zeros::<i32>(1).unwrap();
    let start = std::time::Instant::now();
    let text = kernel(&gpu, source, "wait").launch(LaunchConfig::new(1, 32), (&mut flag,)).unwrap_err().to_string();
    println!("{:.1} s\n{text}", start.elapsed().as_secs_f64());
    assert!(text.contains("loop that does not end: kernel.cu:2") && text.contains("while (flag[0] == 0)"), "{text}");
    assert!(start.elapsed().as_secs() < 60);
}

#[test]
fn every_kind_of_number_arrives() {
    let gpu = simulated();
    let source = r#"extern "C" __global__ void sum(double *out, signed char a, short b, int c, long long d, float e, double f,
                                  unsigned char g, unsigned short h, unsigned i, unsigned long long j) {
    out[0] = a + b + c + (double)d + e + f + g + h + i + (double)j;
}"#;
    let mut out = gpu.zeros::<f64>(1).unwrap();
    let args = (
        &mut out,
        -1_i8,
        -20_i16,
        -300_i32,
        -4000_i64,
        0.5_f32,
        0.25_f64,
        200_u8,
        60_000_u16,
        4_000_000_000_u32,
        1_u64 << 40,
    );
    kernel(&gpu, source, "sum").launch(LaunchConfig::new(1, 1), args).unwrap();
    let expected = -4321.0 + 0.75 + 60_200.0 + 4e9 + (1_u64 << 40) as f64;
    assert_eq!(out.to_host().unwrap(), [expected]);
}

const GRID_SUM: &str = r#"extern "C" __global__ void grid_sum(unsigned *arrived, volatile int *values, int *sums) {
    values[blockIdx.x] = blockIdx.x;
    __threadfence();
    atomicAdd(arrived, 1);
    while (*(volatile unsigned *)arrived < gridDim.x) {}
    __threadfence();
    int sum = 0;
    for (int i = 0; i < gridDim.x; ++i) sum += values[i];
    sums[blockIdx.x] = sum;
}"#;

#[test]
fn blocks_that_wait_for_each_other_need_a_cooperative_launch() {
    for order in [BlockOrder::Forward, BlockOrder::Reverse, BlockOrder::Random(1)] {
        let gpu = Gpu::simulated_in(order).unwrap();
        let grid_sum = kernel(&gpu, GRID_SUM, "grid_sum");
        let launch = |blocks: usize, cooperative| {
            let mut arrived = gpu.zeros::<u32>(1).unwrap();
            let (mut values, mut sums) = (gpu.zeros::<i32>(blocks).unwrap(), gpu.zeros::<i32>(blocks).unwrap());
            let extras = LaunchAttributes { cooperative, ..LaunchAttributes::NONE };
            let args = (&mut arrived, &mut values, &mut sums);
            grid_sum.launch_with(LaunchConfig::new(blocks as u32, 1), extras, args).and_then(|()| sums.to_host())
        };
        assert_eq!(launch(64, true).unwrap(), [63 * 64 / 2; 64]);
        let Err(Error::Mistakes { shown: mistakes, .. }) = launch(64, false) else {
            panic!("a mistake, blocks {order}")
        };
        assert_eq!(mistakes[0].kind, "wait that depends on the order of blocks");
        assert!(mistakes[0].place.starts_with("kernel.cu:5, block"), "{:?}", mistakes[0]);
        assert!(mistakes[0].fix.starts_with("launch it cooperatively"), "{:?}", mistakes[0]);
        let text = launch(65, true).unwrap_err().to_string();
        assert!(text.contains("65 asked, and this device allows 64") && text.contains("\nnext: "), "{text}");
    }
}
