//! Kernels that include CUDA's headers, as learners write them: each compiles for every GPU that has what it needs, and
//! gives the right numbers in the simulator. No GPU is needed.
#![cfg(not(target_os = "macos"))] // these kernels are compiled here, and there is no NVRTC for macOS

use gpulab::cuda::compile_to_ptx;
use gpulab::launch::Source;
use gpulab::prelude::*;

/// Compiles for these compute capabilities, and loads into the simulator.
fn kernel(gpu: &Gpu, source: &str, name: &str, architectures: &[u32]) -> Kernel {
    for architecture in architectures {
        let ptx = compile_to_ptx(&Source::text(source), &format!("compute_{architecture}"));
        let ptx = ptx.unwrap_or_else(|error| panic!("sm_{architecture}: {error}"));
        assert!(
            ptx.contains(&format!(".entry {name}(")) && ptx.contains(&format!(".target sm_{architecture}")),
            "{name}"
        );
    }
    gpu.compile(source).and_then(|module| module.kernel(name)).unwrap_or_else(|error| panic!("{error}"))
}

fn launched(outcome: Result<()>) {
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// Small whole numbers: exact in every format here, so that results are equal and not only near.
fn whole(n: usize, step: usize, below: usize) -> Vec<f32> {
    (0..n).map(|i| (i * step % below) as f32 - (below / 2) as f32).collect()
}

#[test]
fn half_precision_in_pairs() {
    let gpu = Gpu::simulated().unwrap();
    let source = r#"#include <cuda_fp16.h>
extern "C" __global__ void pairs(const float *a, const float *b, float *sum, float *fused, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        __half2 x = __floats2half2_rn(a[2 * i], a[2 * i + 1]);
        __half2 y = __floats2half2_rn(b[2 * i], b[2 * i + 1]);
        float2 s = __half22float2(__hadd2(x, y));
        float2 f = __half22float2(__hfma2(x, y, __float2half2_rn(0.5f)));
        sum[2 * i] = s.x;
        sum[2 * i + 1] = s.y;
        fused[2 * i] = f.x;
        fused[2 * i + 1] = __half2float(__low2half(x) > __low2half(y) ? __hmax(__high2half(x), __high2half(y))
                                                                     : __float2half(f.y));
    }
}"#;
    let pairs = kernel(&gpu, source, "pairs", &[75, 80, 90]);
    let n = 100;
    let (a, b) = (whole(2 * n, 7, 33), whole(2 * n, 11, 29));
    let (on_a, on_b) = (gpu.to_device(&a).unwrap(), gpu.to_device(&b).unwrap());
    let (mut sum, mut fused) = (gpu.poison::<f32>(2 * n).unwrap(), gpu.poison::<f32>(2 * n).unwrap());
    let config = LaunchConfig::for_elements(n, 64);
    launched(pairs.launch(config, (&on_a, &on_b, &mut sum, &mut fused, n as i32)));
    let (sum, fused) = (sum.to_host().unwrap(), fused.to_host().unwrap());
    for i in 0..2 * n {
        assert_eq!(sum[i], a[i] + b[i], "{i}");
        let larger = i % 2 == 1 && a[i - 1] > b[i - 1];
        assert_eq!(fused[i], if larger { a[i].max(b[i]) } else { a[i] * b[i] + 0.5 }, "{i}");
    }
    // Rounded to eleven bits: 2048 + 1 lies between two halves, and the even one is taken.
    let (big, one) = (gpu.to_device(&[2048.0_f32, 2048.0]).unwrap(), gpu.to_device(&[1.0_f32, 3.0]).unwrap());
    let (mut sum, mut rest) = (gpu.poison::<f32>(2).unwrap(), gpu.poison::<f32>(2).unwrap());
    launched(pairs.launch(LaunchConfig::new(1, 32), (&big, &one, &mut sum, &mut rest, 1_i32)));
    assert_eq!(sum.to_host().unwrap(), [2048.0, 2052.0]);
}

#[test]
fn bfloat16_keeps_eight_bits() {
    let gpu = Gpu::simulated().unwrap();
    let source = r#"#include <cuda_bf16.h>
extern "C" __global__ void scale(const float *x, float *rounded, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        __nv_bfloat16 b = __float2bfloat16(x[i]);
        rounded[i] = __bfloat162float(b);
        y[i] = __bfloat162float(b * __float2bfloat16(2.0f) + __float2bfloat16(1.0f));
    }
}"#;
    let scale = kernel(&gpu, source, "scale", &[75, 80, 90]);
    let x: Vec<f32> = (0..500).map(|i| (i as f32 - 250.0) * 0.37).collect();
    let on_x = gpu.to_device(&x).unwrap();
    let (mut rounded, mut y) = (gpu.poison::<f32>(500).unwrap(), gpu.poison::<f32>(500).unwrap());
    launched(scale.launch(LaunchConfig::for_elements(500, 128), (&on_x, &mut rounded, &mut y, 500_i32)));
    let (rounded, y) = (rounded.to_host().unwrap(), y.to_host().unwrap());
    for i in 0..500 {
        assert_eq!(rounded[i], bf16(x[i]), "{i}");
        assert_eq!(y[i], bf16(bf16(bf16(x[i]) * 2.0) + 1.0), "{i}");
    }
}

/// The nearest number with eight bits, ties to the even one.
fn bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

#[test]
fn tensor_cores_multiply_a_tile() {
    let gpu = Gpu::simulated().unwrap();
    let source = r#"#include <mma.h>
using namespace nvcuda;
extern "C" __global__ void tile(const float *a, const float *b, float *c) {
    __shared__ half as[256], bs[256];
    for (int i = threadIdx.x; i < 256; i += 32) {
        as[i] = __float2half(a[i]);
        bs[i] = __float2half(b[i]);
    }
    __syncwarp();
    wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> af;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major> bf;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> cf;
    wmma::fill_fragment(cf, 1.0f);
    wmma::load_matrix_sync(af, as, 16);
    wmma::load_matrix_sync(bf, bs, 16);
    wmma::mma_sync(cf, af, bf, cf);
    for (int i = 0; i < cf.num_elements; i++) {
        cf.x[i] *= 2.0f;
    }
    wmma::store_matrix_sync(c, cf, 16, wmma::mem_row_major);
}"#;
    let tile = kernel(&gpu, source, "tile", &[75, 80, 90]);
    let (a, b) = (whole(256, 5, 17), whole(256, 3, 13));
    let (on_a, on_b) = (gpu.to_device(&a).unwrap(), gpu.to_device(&b).unwrap());
    let mut c = gpu.poison::<f32>(256).unwrap();
    launched(tile.launch(LaunchConfig::new(1, 32), (&on_a, &on_b, &mut c)));
    let product = |i: usize| (0..16).map(|k| a[i / 16 * 16 + k] * b[k * 16 + i % 16]).sum::<f32>();
    let expected: Vec<f32> = (0..256).map(|i| 2.0 * (product(i) + 1.0)).collect();
    assert_eq!(c.to_host().unwrap(), expected);
}

#[test]
fn cooperative_groups_add_up() {
    let gpu = Gpu::simulated().unwrap();
    let source = r#"#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
namespace cg = cooperative_groups;
extern "C" __global__ void sum(const float *x, float *by_shuffle, int *by_reduce, int n) {
    __shared__ float partial[32];
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    int i = block.group_index().x * block.size() + block.thread_rank();
    float v = i < n ? x[i] : 0.0f;
    int counted = cg::reduce(warp, i < n ? 1 : 0, cg::plus<int>());
    for (int offset = warp.size() / 2; offset > 0; offset /= 2) {
        v += warp.shfl_down(v, offset);
    }
    if (warp.thread_rank() == 0) {
        partial[warp.meta_group_rank()] = v;
        atomicAdd(by_reduce, counted);
    }
    block.sync();
    if (block.thread_rank() == 0) {
        float all = 0.0f;
        for (int w = 0; w < warp.meta_group_size(); w++) {
            all += partial[w];
        }
        by_shuffle[block.group_index().x] = all;
    }
}"#;
    let sum = kernel(&gpu, source, "sum", &[75, 80, 90]);
    let n = 1000;
    let x = whole(n, 7, 101);
    let on_x = gpu.to_device(&x).unwrap();
    let (mut partial, mut count) = (gpu.poison::<f32>(4).unwrap(), gpu.zeros::<i32>(1).unwrap());
    launched(sum.launch(LaunchConfig::for_elements(n, 256), (&on_x, &mut partial, &mut count, n as i32)));
    let expected: Vec<f32> = x.chunks(256).map(|block| block.iter().sum()).collect();
    assert_eq!(partial.to_host().unwrap(), expected);
    assert_eq!(count.to_host().unwrap(), [n as i32]);
}

#[test]
fn a_pipeline_copies_the_next_tile_while_one_is_used() {
    let gpu = Gpu::simulated().unwrap();
    let source = r#"#include <cuda_pipeline.h>
extern "C" __global__ void stages(const float4 *x, float *y, int tiles) {
    __shared__ float4 tile[2][64];
    int t = threadIdx.x;
    __pipeline_memcpy_async(&tile[0][t], &x[t], sizeof(float4));
    __pipeline_commit();
    float sum = 0.0f;
    for (int k = 0; k < tiles; k++) {
        if (k + 1 < tiles) {
            __pipeline_memcpy_async(&tile[(k + 1) % 2][t], &x[(k + 1) * 64 + t], sizeof(float4));
        }
        __pipeline_commit();
        __pipeline_wait_prior(1);
        __syncthreads();
        float4 v = tile[k % 2][63 - t];
        sum += v.x + v.y + v.z + v.w;
        __syncthreads();
    }
    y[t] = sum;
}"#;
    // Before sm_80 the header copies through registers.
    let stages = kernel(&gpu, source, "stages", &[75, 80, 90]);
    let x = whole(5 * 256, 13, 47);
    let (on_x, mut y) = (gpu.to_device(&x).unwrap(), gpu.poison::<f32>(64).unwrap());
    launched(stages.launch(LaunchConfig::new(1, 64), (&on_x, &mut y, 5_i32)));
    let four = |k: usize, t: usize| x[k * 256 + (63 - t) * 4..][..4].iter().sum::<f32>();
    let expected: Vec<f32> = (0..64).map(|t| (0..5).map(|k| four(k, t)).sum()).collect();
    assert_eq!(y.to_host().unwrap(), expected);
}

#[test]
fn what_happens_inside_a_header_is_told_at_the_line_that_calls_it() {
    let gpu = Gpu::simulated().unwrap();
    let source = r#"#include <cuda_pipeline.h>
extern "C" __global__ void shifted(const float4 *x, float4 *y) {
    __shared__ float4 tile[32];
    __pipeline_memcpy_async(&tile[threadIdx.x], &x[threadIdx.x + 1], sizeof(float4));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    y[threadIdx.x] = tile[threadIdx.x];
}"#;
    let shifted = kernel(&gpu, source, "shifted", &[]);
    let run = |elements: usize| {
        let (x, mut y) = (gpu.zeros::<f32>(elements).unwrap(), gpu.poison::<f32>(128).unwrap());
        shifted.inspect(LaunchConfig::new(1, 32), (&x, &mut y)).unwrap_or_else(|error| panic!("{error}"))
    };
    let right = run(132);
    assert!(right.findings.is_empty(), "{:?}", right.findings);
    let copy = &right.lines[3];
    assert!(copy.counters.global_load_sectors >= 16 && copy.text.contains("memcpy_async"), "{copy:?}");
    let counted: u64 = right.lines.iter().map(|line| line.counters.warp_instructions).sum();
    assert_eq!(counted, right.counters.warp_instructions);
    assert!(right.accesses[0].text.starts_with("__pipeline_memcpy_async"), "{:?}", right.accesses[0]);
    let wrong = run(128);
    let place = wrong.findings[0].source.as_ref().unwrap();
    assert_eq!((place.file.as_str(), place.line), ("kernel.cu", 4), "{:?}", wrong.findings);
}

#[test]
fn a_header_that_is_missing_has_a_next_step() {
    let gpu = Gpu::simulated().unwrap();
    let text = |source: &str| gpu.compile(source).map(drop).unwrap_err().to_string();
    let other = text("#include <vector>\n");
    assert!(other.contains("vector") && other.contains("\nnext: take this #include away"), "{other}");
    let of_cuda = text("#include <cuda_of_another_version.h>\n");
    assert!(of_cuda.contains("\nnext: run `make setup`"), "{of_cuda}");
}

#[test]
fn headers_of_the_c_library_have_what_kernels_use_of_them() {
    let gpu = Gpu::simulated().unwrap();
    let source = r#"#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdint.h>
extern "C" __global__ void pi(double *x, int n) {
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(INT_MAX > n && FLT_MAX > 1.0f && sizeof(int64_t) == 8);
    if (i < n) { x[i] = M_PI * i; }
}"#;
    let pi = kernel(&gpu, source, "pi", &[75, 80, 90]);
    let mut x = gpu.poison::<f64>(40).unwrap();
    launched(pi.launch(LaunchConfig::for_elements(40, 32), (&mut x, 40_i32)));
    assert_eq!(x.to_host().unwrap()[39], 39.0 * std::f64::consts::PI);
}
