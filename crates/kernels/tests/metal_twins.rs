//! The Metal twins, as far as they can be tried without a Mac: each is turned into CUDA C, word by word, and then runs in
//! the simulator, which checks results, bounds, barriers and races. Whether Apple's compiler takes them is not known here.

#![cfg(not(target_os = "macos"))] // there is no NVRTC for macOS

use gpulab::launch::{Source, signatures};
use gpulab::prelude::*;
use gpulab_kernels::ladder::{Leaves, RUNGS, Rung};
use std::collections::BTreeSet;

const LENGTHS: [usize; 5] = [1, 31, 33, 70_000, 100_003];

/// Rows, columns and the length of the sums.
const SHAPES: [(usize, usize, usize); 5] = [(1, 1, 1), (31, 33, 31), (33, 31, 33), (127, 65, 129), (129, 264, 0)];

/// What Metal's library has, in CUDA C.
const METAL: &str = "
#define device
#define constant
#define atomic_float float
#define threadgroup_barrier(flags) __syncthreads()
#define simd_shuffle_down(x, distance) __shfl_down_sync(0xffffffff, x, distance)
#define atomic_fetch_add_explicit(to, x, order) atomicAdd(to, x)
typedef unsigned int uint;
typedef unsigned short ushort;
__device__ float4 operator+(float4 x, float4 y) { return make_float4(x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w); }
";

/// What the attributes of a kernel's parameters stand for, as (x, y).
const POSITIONS: [(&str, &str); 4] = [
    ("thread_position_in_grid", "blockIdx.A * blockDim.A + threadIdx.A"),
    ("threadgroup_position_in_grid", "blockIdx.A"),
    ("thread_position_in_threadgroup", "threadIdx.A"),
    ("threadgroups_per_grid", "gridDim.A"),
];

/// The twins, each with its rung.
fn twins() -> Vec<&'static Rung> {
    RUNGS.iter().filter(|rung| rung.metal_source().is_ok()).collect()
}

#[test]
fn every_twin_stands_beside_its_kernel_and_takes_the_same() {
    let known: BTreeSet<String> = twins().iter().map(|rung| format!("{}.metal", rung.path)).collect();
    let mut files = BTreeSet::new();
    let folder = gpulab_kernels::ladder::folder();
    for topic in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(topic).unwrap() {
            let path = file.unwrap().path();
            let path = path.strip_prefix(&folder).unwrap().display().to_string();
            files.extend(path.ends_with(".metal").then_some(path));
        }
    }
    assert_eq!(files, known);
    for rung in twins() {
        let (ours, theirs) = (rung.source().unwrap(), translated(rung));
        let named = |source: &Source| -> Vec<String> {
            let found = signatures(&source.text);
            let kernel = found.iter().find(|found| found.name == rung.kernel);
            let kernel = kernel.unwrap_or_else(|| panic!("{}: no kernel `{}`", rung.path, rung.kernel));
            kernel.parameters.iter().map(|parameter| parameter.text.clone()).collect()
        };
        assert_eq!(named(&theirs), named(&ours), "{}: the parameters differ", rung.path);
    }
}

#[test]
fn every_twin_is_right_and_makes_no_mistake() {
    let gpu = Gpu::simulated().unwrap();
    for rung in twins() {
        let compiled = gpu.compile(translated(rung)).and_then(|module| module.kernel(rung.kernel));
        let kernel = compiled.unwrap_or_else(|error| panic!("{}: {error}", rung.path));
        for (n, shape) in LENGTHS.into_iter().zip(SHAPES) {
            let done = match rung.kernel {
                "vector_add" => vector_add(&gpu, rung, &kernel, n),
                "reduce" => sum(&gpu, rung, &kernel, n),
                "matmul" => matmul(&gpu, rung, &kernel, shape),
                other => panic!("nobody holds `{other}` against a reference\nnext: add it here"),
            };
            done.unwrap_or_else(|error| panic!("{} at {n} or {shape:?}: {error}", rung.path));
        }
    }
}

fn vector_add(gpu: &Gpu, rung: &Rung, kernel: &Kernel, n: usize) -> Result<()> {
    let (a, b) = (cpu::random_f32(n, 1), cpu::random_f32(n, 2));
    let (on_a, on_b, mut c) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.poison::<f32>(n)?);
    kernel.launch(rung.launch(n, 1, gpu.multiprocessors()), (&on_a, &on_b, &mut c, n as i32))?;
    let expected: Vec<f32> = a.iter().zip(&b).map(|(a, b)| a + b).collect();
    assert_eq!(c.to_host()?, expected, "{} at n = {n}", rung.path);
    Ok(())
}

/// Of 1, 2, …, 7, 1, …, whose sums are exact: up to two million elements, nothing exceeds 2²⁴.
fn sum(gpu: &Gpu, rung: &Rung, kernel: &Kernel, n: usize) -> Result<()> {
    let a: Vec<f32> = (0..n).map(|i| (1 + i % 7) as f32).collect();
    let mut from = gpu.to_device(&a)?;
    loop {
        let config = rung.launch(from.len(), 1, gpu.multiprocessors());
        let added = rung.leaves == Leaves::Added;
        let room = if added { 1 } else { config.grid.0 as usize };
        let mut partial = if added { gpu.zeros::<f32>(1)? } else { gpu.poison(room)? };
        kernel.launch(config, (&from, &mut partial, from.len() as i32))?;
        from = partial;
        if room == 1 {
            break;
        }
    }
    let exact: f64 = a.iter().copied().map(f64::from).sum();
    assert_eq!(f64::from(from.to_host()?[0]), exact, "{} at n = {n}", rung.path);
    Ok(())
}

/// Of small whole numbers, so that every order of the additions gives the same.
fn matmul(gpu: &Gpu, rung: &Rung, kernel: &Kernel, (m, n, k): (usize, usize, usize)) -> Result<()> {
    let whole = |len: usize, step: usize| -> Vec<f32> { (0..len).map(|i| (i * step % 7) as f32 - 3.0).collect() };
    let (a, b) = (whole(m * k, 3), whole(k * n, 5));
    let (on_a, on_b, mut c) = (gpu.to_device(&a)?, gpu.to_device(&b)?, gpu.poison::<f32>(m * n)?);
    let config = rung.launch(n, m, gpu.multiprocessors());
    kernel.launch(config, (&on_a, &on_b, &mut c, m as i32, n as i32, k as i32))?;
    for (at, given) in c.to_host()?.into_iter().enumerate() {
        let exact: f32 = (0..k).map(|i| a[at / n * k + i] * b[i * n + at % n]).sum();
        assert_eq!(given, exact, "{} at {m}, {n}, {k}, element {at}", rung.path);
    }
    Ok(())
}

/// The twin's source in CUDA C: positions that Metal hands in as parameters become variables.
fn translated(rung: &Rung) -> Source {
    let mut source = rung.metal_source().unwrap();
    let text = source.text.replace("#include <metal_stdlib>", METAL).replace("using namespace metal;", "");
    let (before, rest) = text.split_once("kernel void").expect("a kernel");
    // An attribute of the kernel itself, such as the most threads of a block.
    let before = before.rsplit_once("[[max_total").map_or(before, |(before, _)| before);
    let (name, rest) = rest.split_once('(').unwrap();
    let (parameters, body) = rest.split_once(") {").unwrap();
    let (mut kept, mut variables) = (Vec::new(), String::new());
    for parameter in parameters.split(',') {
        let (declared, attribute) = parameter.trim().split_once(" [[").expect("each parameter has an attribute");
        let attribute = attribute.trim_end_matches("]]");
        if attribute.starts_with("buffer(") {
            assert_eq!(attribute, format!("buffer({})", kept.len()), "{}: buffers are counted in order", rung.path);
            let declared = ["device ", "constant ", "&"].iter().fold(declared.to_string(), |d, w| d.replace(w, ""));
            kept.push(declared.replace("atomic_float", "float"));
            continue;
        }
        let (_, cuda) = POSITIONS.iter().find(|(metal, _)| *metal == attribute).expect("a known attribute");
        let (kind, name) = declared.split_once(' ').unwrap();
        match kind {
            "uint" => variables += &format!("uint {name} = {};", cuda.replace('A', "x")),
            "uint2" => {
                variables +=
                    &format!("uint2 {name} = make_uint2({}, {});", cuda.replace('A', "x"), cuda.replace('A', "y"))
            }
            other => panic!("{}: positions are `uint` or `uint2`, not `{other}`", rung.path),
        }
    }
    let functions = before.replace("threadgroup float *", "float *").replace("\nfloat ", "\n__device__ float ");
    let body = body.replace("threadgroup float", "__shared__ float");
    let kernel = format!("extern \"C\" __global__ void {}({}) {{ {variables}", name.trim(), kept.join(", "));
    source.text = format!("{functions}{kernel}{body}");
    source.name = format!("{}.cu", rung.kernel);
    source
}
