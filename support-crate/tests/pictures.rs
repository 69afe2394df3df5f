//! What a picture of a real launch says equals what was counted. Each launch has one warp, so the warp that is drawn is
//! all of it. No GPU is needed.
#![cfg(not(target_os = "macos"))] // these kernels are compiled here, and there is no NVRTC for macOS

use gpulab::inspect::Inspection;
use gpulab::plot::Figure;
use gpulab::prelude::*;

const GLOBAL: &str = r#"
extern "C" __global__ void strided(const float *a, float *c, int stride, int offset, int active) {
    int i = threadIdx.x;
    if (i < active) {
        c[i] = a[i * stride + offset];
    }
}
extern "C" __global__ void gather(const float *a, float *c, const int *index) {
    c[threadIdx.x] = a[index[threadIdx.x]];
}
extern "C" __global__ void wide(const float4 *a, float4 *c) {
    c[threadIdx.x] = a[threadIdx.x];
}
"#;

const SHARED: &str = r#"
extern "C" __global__ void strided(float *c, int stride) {
    __shared__ float words[1100];
    for (int i = threadIdx.x; i < 1100; i += 32) {
        words[i] = 0.0f;
    }
    __syncwarp();
    words[threadIdx.x * stride] = threadIdx.x;
    __syncwarp();
    c[threadIdx.x] = words[threadIdx.x * stride];
}
extern "C" __global__ void pairs(double *c, int stride) {
    __shared__ double words[256];
    for (int i = threadIdx.x; i < 256; i += 32) {
        words[i] = 0.0;
    }
    __syncwarp();
    c[threadIdx.x] = words[threadIdx.x * stride / 2];
}
"#;

/// Lanes part ways: odd ones take another branch than even ones.
const DIVERGENT: &str = r#"
extern "C" __global__ void divergent(int *c) {
    int i = threadIdx.x;
    int sum = 0;
    for (int k = 0; k < i; ++k) {
        sum += k * i;
    }
    c[i] = sum;
}
"#;

fn kernel(gpu: &Gpu, source: &str, name: &str) -> Kernel {
    gpu.compile(source).and_then(|module| module.kernel(name)).unwrap_or_else(|error| panic!("{error}"))
}

fn words(figure: &Figure) -> String {
    figure.svg().replace(['\u{a0}', '\n'], " ").replace("&gt;", ">").replace("&lt;", "<")
}

/// The picture says this many sectors, and so do the counters.
fn sectors(it: &Inspection, what: &str, expected: u64) {
    let (said, counted) = (words(&it.sectors(what).unwrap()), it.counters.global_load_sectors);
    let ends = if expected == 1 { "" } else { "s" };
    assert!(said.contains(&format!(": {expected} sector{ends} of 32 bytes")), "{what}: {expected}\n{said}");
    assert!(!said.contains("The counters say"), "{said}");
    // Of the loads alone: a second one stands on the same line in some of the kernels.
    assert!(counted >= expected, "{what}: {counted} counted, {expected} drawn");
}

#[test]
fn sectors_drawn_are_sectors_counted() {
    let gpu = Gpu::simulated().unwrap();
    let strided = kernel(&gpu, GLOBAL, "strided");
    let a = gpu.zeros::<f32>(4096).unwrap();
    let mut c = gpu.zeros::<f32>(128).unwrap();
    let one = LaunchConfig::new(1, 32);
    for (stride, offset, active, expected) in
        [(1, 0, 32, 4), (1, 1, 32, 5), (2, 0, 32, 8), (3, 0, 32, 12), (32, 0, 32, 32), (0, 9, 32, 1), (1, 0, 9, 2)]
    {
        let it = strided.inspect(one, (&a, &mut c, stride, offset, active)).unwrap();
        assert!(it.findings.is_empty() && it.counters.global_load_requests == 1, "{it}");
        assert_eq!(it.counters.global_load_sectors, expected, "stride {stride}, offset {offset}, {active} lanes");
        sectors(&it, "a[i * stride + offset]", expected);
        assert!(it.to_string().contains(&format!("{expected} a request")), "{it}");
    }
    let indices: Vec<i32> = (0..32).map(|i| i * 1237 % 1009).collect();
    let index = gpu.to_device(&indices).unwrap();
    let it = kernel(&gpu, GLOBAL, "gather").inspect(one, (&a, &mut c, &index)).unwrap();
    let different: std::collections::BTreeSet<i32> = indices.iter().map(|i| i / 8).collect();
    sectors(&it, "a[index[threadIdx.x]]", different.len() as u64);
    sectors(&it, "index[threadIdx.x]", 4);
    assert_eq!(it.counters.global_load_sectors, different.len() as u64 + 4);
    let it = kernel(&gpu, GLOBAL, "wide").inspect(one, (&a, &mut c)).unwrap();
    sectors(&it, "a[threadIdx.x]", 16);
    assert_eq!(it.counters.global_load_sectors, 16);
}

/// The picture says these wavefronts and conflicts, and so do the counters.
fn banks(it: &Inspection, what: &str, counted: (u64, u64), expected: (u64, u64)) {
    let said = words(&it.banks(what).unwrap());
    assert_eq!(counted, expected, "{what}\n{it}");
    let (waves, conflicts) = expected;
    let text = match (waves, conflicts) {
        (1, 0) => "1 wavefront, no bank conflict.".to_string(),
        (_, 0) => format!("{waves} wavefronts, no bank conflict."),
        (_, 1) => format!("{waves} wavefronts, 1 of them a bank conflict"),
        _ => format!("{waves} wavefronts, {conflicts} of them bank conflicts"),
    };
    assert!(said.contains(&text) && !said.contains("The counters say"), "{what}: {text}\n{said}");
}

#[test]
fn wavefronts_drawn_are_wavefronts_counted() {
    let gpu = Gpu::simulated().unwrap();
    let strided = kernel(&gpu, SHARED, "strided");
    let mut c = gpu.zeros::<f32>(64).unwrap();
    let one = LaunchConfig::new(1, 32);
    // Stride 32 is a column of a tile of 32 × 32, stride 33 one of a padded tile.
    for (stride, waves) in [(1, 1), (2, 2), (3, 1), (8, 8), (32, 32), (33, 1), (0, 1)] {
        let it = strided.inspect(one, (&mut c, stride)).unwrap();
        let counters = it.counters;
        let loads = (counters.shared_load_wavefronts, counters.shared_load_bank_conflicts);
        banks(&it, "load words[threadIdx.x * stride]", loads, (waves, waves - 1));
        // 35 stores fill the array; the last store is the one that is meant.
        let stores = (counters.shared_store_wavefronts - 35, counters.shared_store_bank_conflicts);
        banks(&it, "words[threadIdx.x * stride] = threadIdx.x", stores, (waves, waves - 1));
    }
    let pairs = kernel(&gpu, SHARED, "pairs");
    let mut c = gpu.zeros::<f64>(32).unwrap();
    for (stride, expected) in [(2, (2, 0)), (4, (4, 2)), (1, (1, 0)), (0, (1, 0))] {
        let it = pairs.inspect(one, (&mut c, stride)).unwrap();
        let loads = (it.counters.shared_load_wavefronts, it.counters.shared_load_bank_conflicts);
        banks(&it, "load words", loads, expected);
    }
}

#[test]
fn the_source_adds_up_to_the_counters() {
    let gpu = Gpu::simulated().unwrap();
    let mut c = gpu.zeros::<i32>(128).unwrap();
    let it = kernel(&gpu, DIVERGENT, "divergent").inspect(LaunchConfig::new(4, 32), (&mut c,)).unwrap();
    let sum: u64 = it.lines.iter().map(|line| line.counters.warp_instructions).sum();
    assert!(sum > 0 && sum <= it.counters.warp_instructions, "{sum} of {}", it.counters.warp_instructions);
    let said = words(&it.source());
    let hot = it.lines.iter().find(|line| line.text.contains("sum += k * i")).unwrap();
    let lanes = hot.counters.active_lanes_per_instruction();
    // As long as k < i, lane i takes part: about half of them on average.
    assert!(lanes > 8.0 && lanes < 24.0, "{lanes}");
    let written = if lanes.fract() == 0.0 { format!("> {lanes} <") } else { format!("> {lanes:.1} <") };
    assert!(said.contains(&written), "{written}: {said}");
    assert!(said.contains("sum += k * i;") && !said.contains("__shared__"), "{said}");
    assert!(words(&it.launch()).contains("divergent: 4 blocks of 32 threads"));
}

/// Wide words at random places, some lanes idle; atomics of all kinds.
const RANDOM: &str = r#"
extern "C" __global__ void wide(float *c, const int *places, unsigned lanes) {
    __shared__ float4 quads[64];
    __shared__ double pairs[64];
    __shared__ int counts[64];
    for (int i = threadIdx.x; i < 64; i += 32) {
        quads[i] = make_float4(1, 2, 3, 4);
        pairs[i] = 1.0;
        counts[i] = 0;
    }
    __syncwarp();
    int at = places[threadIdx.x];
    if (lanes >> threadIdx.x & 1) {
        float4 quad = quads[at];
        double pair = pairs[at];
        atomicAdd(&counts[at], 1);
        int old = atomicExch(&counts[at], 7);
        int swapped = atomicCAS(&counts[at], 7, 8);
        c[threadIdx.x] = quad.x + quad.y + quad.z + quad.w + pair + old + swapped;
    }
}
"#;

#[test]
fn random_accesses_are_drawn_as_they_are_counted() {
    let gpu = Gpu::simulated().unwrap();
    let wide = kernel(&gpu, RANDOM, "wide");
    let mut c = gpu.zeros::<f32>(32).unwrap();
    for round in 0..40_u32 {
        let random = cpu::random_f32(64, u64::from(round));
        // Few different places at first, so that neighbours agree now and then.
        let some = 1 + round / 2;
        let mut places: Vec<i32> = random[..32].iter().map(|x| (x.abs() * 1e4) as i32 % some as i32).collect();
        if round % 3 == 0 {
            (0..32).for_each(|lane| places[lane] = places[lane & !1]);
        }
        let lanes =
            random[32..].iter().fold(0_u32, |bits, x| bits << 1 | u32::from(x.abs() < 0.7 || round % 4 == 0)) | 1;
        let places = gpu.to_device(&places).unwrap();
        let it = wide.inspect(LaunchConfig::new(1, 32), (&mut c, &places, lanes)).unwrap();
        for what in ["quads[at]", "pairs[at]", "atomicAdd", "atomicExch", "atomicCAS"] {
            let said = words(&it.banks(what).unwrap_or_else(|error| panic!("{error}")));
            assert!(!said.contains("The counters say"), "round {round}, {what}\n{said}");
            assert_eq!(what == "atomicCAS", said.contains("takes each wavefront twice"), "{said}");
        }
        assert!(it.to_string().contains("shared atomic wavefronts"), "{it}");
    }
}
