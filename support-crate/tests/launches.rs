//! What a launch takes and what it refuses before anything runs, in the simulator: the same checks as on a GPU. What it says
//! then stands in `messages.txt`.
#![cfg(not(target_os = "macos"))] // its kernels are compiled, and there is no NVRTC for macOS

use gpulab::launch::ParameterType;
use gpulab::prelude::*;

const BY_VALUE: &str = r#"struct Line { float slope, offset; int n; };
extern "C" __global__ void line(const float *x, float *y, Line line, float4 last) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < line.n) { y[i] = line.slope * x[i] + line.offset; }
    if (i == line.n - 1) { y[i] += last.x + last.y + last.z + last.w; }
}
extern "C" __global__ void scale(float *x, float by) { x[threadIdx.x] *= by; }"#;

#[repr(C)]
#[derive(Clone, Copy)]
struct Line {
    slope: f32,
    offset: f32,
    n: i32,
}
gpulab::kernel_param!(Line { slope: f32, offset: f32, n: i32 });

#[test]
fn vectors_and_structs_arrive_by_value() {
    let gpu = Gpu::simulated().unwrap();
    let kernel = gpu.compile(BY_VALUE).unwrap().kernel("line").unwrap();
    let sizes: Vec<_> =
        kernel.parameters().iter().map(|it| it.layout.unwrap()).map(|it| (it.offset, it.bytes)).collect();
    assert_eq!(sizes, [(0, 8), (8, 8), (16, 12), (32, 16)]);
    let (x, mut y) = (gpu.to_device(&[1.0_f32, 2.0, 3.0]).unwrap(), gpu.poison::<f32>(3).unwrap());
    let line = Line { slope: 2.0, offset: 1.0, n: 3 };
    kernel.launch(LaunchConfig::new(1, 32), (&x, &mut y, line, [10.0_f32, 20.0, 30.0, 40.0])).unwrap();
    assert_eq!(y.to_host().unwrap(), [3.0, 5.0, 107.0]);
}

#[test]
fn an_argument_of_another_size_is_refused_with_both_sizes() {
    let gpu = Gpu::simulated().unwrap();
    let module = gpu.compile(BY_VALUE).unwrap();
    let (kernel, scale) = (module.kernel("line").unwrap(), module.kernel("scale").unwrap());
    let (x, mut y) = (gpu.zeros::<f32>(3).unwrap(), gpu.zeros::<f32>(3).unwrap());
    let (config, line, last) = (LaunchConfig::new(1, 32), Line { slope: 1.0, offset: 1.0, n: 3 }, [0.0_f32; 4]);
    let refused = [
        // A number where a vector is declared, and the reverse.
        (kernel.launch(config, (&x, &mut y, line, 1.0_f32)), (16, 4)),
        (scale.launch(config, (&mut y, last)), (4, 16)),
        // Structs of other sizes.
        (kernel.launch(config, (&x, &mut y, [1.0_f32; 2], last)), (12, 8)),
        (kernel.launch(config, (&x, &mut y, last, last)), (12, 16)),
        (kernel.inspect(config, (&x, &mut y, line, [0.0_f32; 5])).map(drop), (16, 20)),
    ];
    for (outcome, sizes) in refused {
        match outcome {
            Err(Error::ArgumentSize { expected, given_bytes, .. }) => assert_eq!((expected, given_bytes), sizes),
            other => panic!("{other:?}"),
        }
    }
    // Nothing ran.
    assert_eq!(y.to_host().unwrap(), [0.0; 3]);
}

#[test]
fn no_number_passes_for_an_address() {
    let gpu = Gpu::simulated().unwrap();
    let source = r#"typedef float *row_t;
struct Pair { float a, b; };
extern "C" __global__ void named(row_t x) { x[0] = 1.0f; }
extern "C" __global__ void pairs(Pair *x) { x[0].a = 1.0f; }
extern "C" __global__ void rows(float **x) { x[0] = nullptr; }"#;
    let module = gpu.compile(source).unwrap();
    for name in ["named", "pairs", "rows"] {
        let kernel = module.kernel(name).unwrap();
        // Such as the address of pinned memory.
        let refused = kernel.launch(LaunchConfig::new(1, 1), (0x7f00_0000_0000_u64,));
        assert!(matches!(refused, Err(Error::ArgumentType { position: 1, .. })), "{name}: {refused:?}");
        let mut x = gpu.zeros::<f32>(2).unwrap();
        kernel.launch(LaunchConfig::new(1, 1), (&mut x,)).unwrap();
    }
}

/// As an older compiler writes it: nothing tells the address from the number.
const PTX: &str = r#".version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 count_0, .param .u64 count_1) {
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [count_0];
    ld.param.u64 %rd2, [count_1];
    cvta.to.global.u64 %rd3, %rd1;
    st.global.u64 [%rd3], %rd2;
    ret;
}
"#;

#[test]
fn ptx_without_source_takes_a_number_only_where_it_is_declared() {
    let gpu = Gpu::simulated().unwrap();
    let kernel = gpu.load_ptx(PTX).unwrap().kernel("count").unwrap();
    assert!(kernel.parameters().iter().all(|it| it.kind == ParameterType::NumberOrAddress));
    let (mut x, config) = (gpu.zeros::<u64>(1).unwrap(), LaunchConfig::new(1, 1));
    let refused = kernel.launch(config, (&mut x, 7_u64));
    assert!(matches!(refused, Err(Error::ArgumentType { position: 2, .. })), "{refused:?}");
    // SAFETY: the second parameter is stored, and not used as an address.
    let declare = |text: &str| unsafe { kernel.clone().with_declaration(text) };
    let declared = declare("__global__ void count(unsigned long long *x, unsigned long long n)").unwrap();
    declared.launch(config, (&mut x, 7_u64)).unwrap();
    assert_eq!(x.to_host().unwrap(), [7]);
    assert!(matches!(declared.launch(config, (&mut x, 7_i32)), Err(Error::ArgumentType { position: 2, .. })));
    assert!(matches!(declare("__global__ void count(int n)"), Err(Error::ArgumentCount { expected: 2, given: 1, .. })));
    assert!(matches!(declare("void count()"), Err(Error::Invalid { .. })));
}

#[test]
fn a_cooperative_launch_that_is_too_large_says_how_many_blocks_fit() {
    let gpu = Gpu::simulated().unwrap();
    let kernel = gpu.compile(BY_VALUE).unwrap().kernel("scale").unwrap();
    let mut x = gpu.zeros::<f32>(1024).unwrap();
    let together = LaunchAttributes { cooperative: true, ..LaunchAttributes::NONE };
    // Two multiprocessors, each with 2048 threads, 32 blocks and 228 KiB of shared memory, of which a block leaves 1 KiB.
    for (threads, shared, fit) in [(1024, 0, 4), (32, 0, 64), (33, 0, 64), (1000, 0, 4), (32, 113 << 10, 4)] {
        let config = |blocks| LaunchConfig::new(blocks, threads).shared(shared);
        assert_eq!(kernel.co_resident_blocks(config(1)).unwrap(), fit, "{threads} threads, {shared} bytes");
        let refused = kernel.launch_with(config(fit as u32 + 1), together, (&mut x, 1.0_f32)).unwrap_err();
        let Error::LaunchLimit { asked, limit, .. } = refused else { panic!("{refused:?}") };
        assert_eq!((asked, limit), (fit + 1, fit));
    }
    kernel.launch_with(LaunchConfig::new(1, 1024), together, (&mut x, 1.0_f32)).unwrap();
}

#[test]
fn a_simulated_gpu_has_nothing_of_cudarcs() {
    let gpu = Gpu::simulated().unwrap();
    let kernel = gpu.compile(BY_VALUE).unwrap().kernel("scale").unwrap();
    let mut x = gpu.zeros::<f32>(4).unwrap();
    let refused = [
        gpu.cuda_context().map(drop),
        gpu.cuda_stream().map(drop),
        gpu.pci_bus_id().map(drop),
        kernel.cuda_function().map(drop),
        x.as_cuda().map(drop),
        x.as_cuda_mut().map(drop),
        x.into_cuda().map(drop),
    ];
    for outcome in refused {
        assert!(matches!(outcome, Err(Error::Unsupported { .. })), "{outcome:?}");
    }
}
