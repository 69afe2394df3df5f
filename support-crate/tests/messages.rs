//! What a launch says where it is refused: each message whole, as a reader sees it, in `messages.txt`.
//!
//! After a change of words: `GPULAB_WRITE_MESSAGES=1 cargo test -p gpulab --test messages`, and read what git shows.
#![cfg(not(target_os = "macos"))] // its kernels are compiled, and there is no NVRTC for macOS

use gpulab::cudarc::driver::DriverError;
use gpulab::cudarc::driver::sys::CUresult;
use gpulab::prelude::*;
use std::path::Path;

const KERNELS: &str = r#"struct Line { float slope, offset; int n; };
extern "C" __global__ void line(const float *x, float *y, Line line, float4 last) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < line.n) { y[i] = line.slope * x[i] + line.offset + last.x; }
}
extern "C" __global__ void scale(float *x, float by) { x[threadIdx.x] *= by; }
extern "C" __global__ void add(const float *a, const float *b, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { c[i] = a[i] + b[i]; }
}"#;

#[repr(C)]
#[derive(Clone, Copy)]
struct Line {
    slope: f32,
    offset: f32,
    n: i32,
}
gpulab::kernel_param!(Line { slope: f32, offset: f32, n: i32 });

type Cases = Vec<(&'static str, Result<()>)>;

/// Arguments that do not fit the kernel's parameters.
fn arguments(gpu: &Gpu) -> Result<Cases> {
    let module = gpu.compile(KERNELS)?;
    let (line, scale, add) = (module.kernel("line")?, module.kernel("scale")?, module.kernel("add")?);
    let (x, mut y, wide) = (gpu.zeros::<f32>(8)?, gpu.zeros::<f32>(8)?, gpu.zeros::<f64>(8)?);
    let elsewhere = Gpu::simulated()?.zeros::<f32>(8)?;
    let config = LaunchConfig::new(1, 32);
    let (by_value, last) = (Line { slope: 1.0, offset: 1.0, n: 8 }, [0.0_f32; 4]);
    Ok(vec![
        ("a struct that is too small", line.launch(config, (&x, &mut y, [1.0_f32; 2], last))),
        ("a struct that is too large", line.launch(config, (&x, &mut y, last, last))),
        ("a float where a float4 is declared", line.launch(config, (&x, &mut y, by_value, 1.0_f32))),
        ("a float4 where a float is declared", scale.launch(config, (&mut y, last))),
        ("a struct where a pointer is declared", line.launch(config, (by_value, &mut y, by_value, last))),
        ("an argument too few", add.launch(config, (&x, &mut y, 8_i32))),
        ("an argument too many", scale.launch(config, (&mut y, 2.0_f32, 8_i32))),
        ("a buffer of another element type", add.launch(config, (&x, &wide, &mut y, 8_i32))),
        ("a buffer that may not be written", add.launch(config, (&x, &x, &x, 8_i32))),
        ("an integer of another width", add.launch(config, (&x, &x, &mut y, 8_usize))),
        ("an address as a number", add.launch(config, (&x, 0x7f00_0000_0000_u64, &mut y, 8_i32))),
        ("a buffer where a number is declared", scale.launch(config, (&mut y, &x))),
        ("a buffer of another GPU", add.launch(config, (&x, &elsewhere, &mut y, 8_i32))),
        ("a kernel that is not there", module.kernel("sub").map(drop)),
    ])
}

/// Grids and blocks that the device refuses.
fn shapes(gpu: &Gpu) -> Result<Cases> {
    let scale = gpu.compile(KERNELS)?.kernel("scale")?;
    let mut x = gpu.zeros::<f32>(8)?;
    let mut launch = |config| scale.launch(config, (&mut x, 1.0_f32));
    let along = |grid, block| LaunchConfig { grid, block, shared_bytes: 0 };
    let mut cases = vec![
        ("no blocks", launch(LaunchConfig::new(0, 32))),
        ("no threads", launch(LaunchConfig::new(1, 0))),
        ("too many threads in a block", launch(LaunchConfig::new(1, 2048))),
        ("a block that is too large along z", launch(along((1, 1, 1), (1, 1, 65)))),
        ("a grid that is too large along y", launch(along((1, 65536, 1), (1, 1, 1)))),
        ("too much shared memory", launch(LaunchConfig::new(1, 32).shared(1 << 20))),
    ];
    let together = LaunchAttributes { cooperative: true, ..LaunchAttributes::NONE };
    let too_large = scale.launch_with(LaunchConfig::new(5, 1024), together, (&mut x, 1.0_f32));
    cases.push(("a cooperative launch that is too large", too_large));
    let nobody = scale.inspect_warp(LaunchConfig::new(1, 32), (&mut x, 1.0_f32), (0, 0, 0), 2);
    cases.push(("a look at a warp that is not there", nobody.map(drop)));
    Ok(cases)
}

/// What comes back from cudarc's own calls through `?`.
fn doors(gpu: &Gpu) -> Result<Cases> {
    let raw = |code: CUresult| Err(Error::from(DriverError(code)));
    Ok(vec![
        ("cudarc: an invalid value", raw(CUresult::CUDA_ERROR_INVALID_VALUE)),
        ("cudarc: an illegal address", raw(CUresult::CUDA_ERROR_ILLEGAL_ADDRESS)),
        ("cudarc: no memory", raw(CUresult::CUDA_ERROR_OUT_OF_MEMORY)),
        ("cudarc: a cooperative launch that is too large", raw(CUresult::CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE)),
        ("cudarc's context of a simulated GPU", gpu.cuda_context().map(drop)),
        ("the PCI bus id of a simulated GPU", gpu.pci_bus_id().map(drop)),
        ("a copy into a buffer of another length", gpu.zeros::<f32>(4)?.copy_from(&[0.0; 5])),
    ])
}

#[test]
fn each_refusal_says_what_happened_and_what_to_do() {
    let gpu = Gpu::simulated().unwrap();
    let mut said = String::new();
    for (name, outcome) in [arguments(&gpu), shapes(&gpu), doors(&gpu)].into_iter().flat_map(Result::unwrap) {
        let message = outcome.expect_err(name).to_string();
        assert!(message.contains("\nnext: "), "{name}: {message}");
        said += &format!("# {name}\n{message}\n\n");
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/messages.txt");
    if std::env::var_os("GPULAB_WRITE_MESSAGES").is_some() {
        std::fs::write(&file, &said).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    for (own, wanted) in said.split("\n\n").zip(expected.split("\n\n")) {
        assert_eq!(
            own, wanted,
            "if the new words are right: GPULAB_WRITE_MESSAGES=1 cargo test -p gpulab --test messages"
        );
    }
    assert_eq!(said.len(), expected.len(), "messages.txt has other cases than this test");
}
