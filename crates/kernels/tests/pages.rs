//! The kernels of docs/quick-reference.md: each is compiled as it stands there and run on the simulated GPU, which also
//! looks for races and accesses out of bounds, at awkward sizes, against the CPU. Its Rust is a documentation test.
//! The kernels of docs/exam.md are launched as they say, and counted.
//! The code of docs/own_crate.md is that of crates/template, which has tests of its own.
#![cfg(not(target_os = "macos"))] // these kernels are compiled here, and there is no NVRTC for macOS

use gpulab::prelude::*;
use std::path::Path;

const SIZES: [usize; 6] = [1, 31, 33, 255, 1000, 4099];

/// The blocks of `cuda` on the page, in order.
fn blocks() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/quick-reference.md");
    let text = std::fs::read_to_string(page).unwrap();
    text.split("```cuda\n").skip(1).map(|rest| rest.split("```").next().unwrap().to_string()).collect()
}

/// The kernel's name in a block.
fn name(block: &str) -> &str {
    block.split_once("__global__ void ").and_then(|(_, rest)| rest.split_once('(')).expect("a kernel").0
}

/// Small whole numbers, whose sums are exact in any order.
fn whole(n: usize, seed: u64) -> Vec<f32> {
    cpu::random_f32(n, seed).iter().map(|x| (x * 8.0).round()).collect()
}

fn transposed(a: &[f32], rows: usize, columns: usize) -> Vec<f32> {
    (0..a.len()).map(|at| a[at % rows * columns + at / rows]).collect()
}

/// Runs a kernel at one size, and compares.
fn run(gpu: &Gpu, kernel: &Kernel, name: &str, n: usize) -> Result<()> {
    let (a, count) = (whole(n, 1), n as i32);
    let on_a = gpu.to_device(&a)?;
    let each = LaunchConfig::for_elements(n, 256);
    let (rows, columns) = (n.div_ceil(7), 37);
    let table = whole(rows * columns, 2);
    let on_table = gpu.to_device(&table)?;
    let (m, k) = (rows.min(60), columns);
    match name {
        "scale" | "scale_stride" | "scale_four" => {
            let mut on_a = on_a;
            let config = match name {
                "scale" => each,
                "scale_stride" => LaunchConfig::new(2, 64),
                _ => LaunchConfig::for_elements(n.div_ceil(4), 256),
            };
            kernel.launch(config, (&mut on_a, 3.0_f32, count))?;
            assert_eq!(on_a.to_host()?, a.iter().map(|x| 3.0 * x).collect::<Vec<_>>());
        }
        "add_bias" => {
            let bias = whole(columns, 3);
            let (mut on_table, on_bias) = (on_table, gpu.to_device(&bias)?);
            let config = LaunchConfig::for_table(rows, columns, (32, 8));
            kernel.launch(config, (&mut on_table, &on_bias, rows as i32, columns as i32))?;
            let known: Vec<f32> = table.iter().enumerate().map(|(at, x)| x + bias[at % columns]).collect();
            assert_eq!(on_table.to_host()?, known);
        }
        "sum" => {
            let mut sum = gpu.zeros::<f32>(1)?;
            kernel.launch(LaunchConfig::new(3, 128), (&on_a, &mut sum, count))?;
            assert_eq!(sum.to_host()?, [a.iter().sum::<f32>()]);
        }
        "transpose" => {
            let mut out = gpu.poison::<f32>(table.len())?;
            let blocks = (columns.div_ceil(32) as u32, rows.div_ceil(32) as u32, 1);
            let config = LaunchConfig { grid: blocks, block: (32, 8, 1), shared_bytes: 0 };
            kernel.launch(config, (&on_table, &mut out, rows as i32, columns as i32))?;
            assert_eq!(out.to_host()?, transposed(&table, rows, columns));
        }
        "matmul" => {
            let (x, y) = (whole(m * k, 4), whole(k * 21, 5));
            let (on_x, on_y) = (gpu.to_device(&x)?, gpu.to_device(&y)?);
            let mut c = gpu.poison::<f32>(m * 21)?;
            let config = LaunchConfig::for_table(m, 21, (16, 16));
            kernel.launch(config, (&on_x, &on_y, &mut c, m as i32, 21_i32, k as i32))?;
            let one = |at: usize| (0..k).map(|i| x[at / 21 * k + i] * y[i * 21 + at % 21]).sum::<f32>();
            assert_eq!(c.to_host()?, (0..m * 21).map(one).collect::<Vec<_>>());
        }
        "mean_of_three" => {
            let mut out = gpu.poison::<f32>(n)?;
            kernel.launch(each, (&on_a, &mut out, count))?;
            let at = |i: i64| usize::try_from(i).ok().and_then(|i| a.get(i)).copied().unwrap_or(0.0);
            let known: Vec<f32> = (0..n as i64).map(|i| (at(i - 1) + at(i) + at(i + 1)) / 3.0).collect();
            let out = out.to_host()?;
            assert!(out.iter().zip(&known).all(|(x, y)| (x - y).abs() < 1e-5), "{out:?} {known:?}");
        }
        "histogram" => {
            let values: Vec<i32> = (0..count).map(|i| i * i % 251).collect();
            let mut counts = gpu.zeros::<i32>(256)?;
            kernel.launch(LaunchConfig::new(3, 256), (&gpu.to_device(&values)?, &mut counts, count))?;
            let known: Vec<i32> = (0..256).map(|v| values.iter().filter(|x| **x == v).count() as i32).collect();
            assert_eq!(counts.to_host()?, known);
        }
        "gather" => {
            let index: Vec<i32> = (0..count.min(50)).map(|i| i * 7 % (rows as i32 + 1) - i32::from(i == 3)).collect();
            let mut out = gpu.zeros::<f32>(index.len() * columns)?;
            let config = LaunchConfig::new(index.len() as u32, 32);
            kernel.launch(config, (&on_table, &gpu.to_device(&index)?, &mut out, rows as i32, columns as i32))?;
            for (at, value) in out.to_host()?.iter().enumerate() {
                let known =
                    usize::try_from(index[at / columns]).ok().and_then(|row| table.get(row * columns + at % columns));
                assert!(known.map_or(value.is_nan(), |known| known == value), "{at}");
            }
        }
        "softmax" => {
            let mut out = gpu.poison::<f32>(2 * n)?;
            let two: Vec<f32> =
                a.iter().chain(&a).enumerate().map(|(at, x)| x + if at < n { 0.0 } else { 200.0 }).collect();
            kernel.launch(LaunchConfig::new(2, 32), (&gpu.to_device(&two)?, &mut out, count))?;
            let largest = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f64 = a.iter().map(|x| f64::from(x - largest).exp()).sum();
            for (at, value) in out.to_host()?.iter().enumerate() {
                let known = f64::from(a[at % n] - largest).exp() / sum;
                assert!((f64::from(*value) - known).abs() <= 1e-5 * known, "{at}: {value} {known}");
            }
        }
        "keep_positive" => {
            let (mut kept, mut stays) = (gpu.poison::<f32>(n)?, gpu.zeros::<i32>(1)?);
            kernel.launch(each, (&on_a, &mut kept, &mut stays, count))?;
            let mut known: Vec<f32> = a.iter().copied().filter(|x| *x > 0.0).collect();
            let mut kept = kept.to_host()?[..stays.to_host()?[0] as usize].to_vec();
            kept.sort_by(f32::total_cmp);
            known.sort_by(f32::total_cmp);
            assert_eq!(kept, known);
        }
        _ => panic!("docs/quick-reference.md has a kernel `{name}` that this test does not run: add it here"),
    }
    Ok(())
}

#[test]
fn every_kernel_of_the_quick_reference_is_right() {
    let gpu = Gpu::simulated().unwrap();
    let blocks = blocks();
    assert!(blocks.len() >= 12, "{} blocks of cuda", blocks.len());
    for block in &blocks {
        let name = name(block);
        let kernel = gpu.compile(block.as_str()).and_then(|module| module.kernel(name));
        let kernel = kernel.unwrap_or_else(|error| panic!("{name}: {error}"));
        for n in SIZES {
            run(&gpu, &kernel, name, n).unwrap_or_else(|error| panic!("{name}, {n}: {error}"));
        }
    }
}

#[test]
fn the_page_on_an_own_crate_shows_the_template() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join("docs/own_crate.md")).unwrap();
    let files = [
        "Cargo.toml",
        "build.rs",
        "kernels/saxpy.cu",
        "src/lib.rs",
        "src/main.rs",
        "tests/gpu.rs",
        "tests/simulator.rs",
    ];
    let template = files.map(|file| std::fs::read_to_string(root.join("crates/template").join(file)).unwrap());
    let mut shown = 0;
    for part in page.split("```").skip(1).step_by(2) {
        let (language, code) = part.split_once('\n').unwrap();
        if ["rust", "cuda", "toml"].contains(&language) {
            shown += 1;
            // The manifest's tables stand apart, with comments between.
            let mut pieces = if language == "toml" { code.lines().collect() } else { vec![code] }.into_iter();
            assert!(
                pieces.all(|piece| template.iter().any(|file| file.contains(piece))),
                "docs/own_crate.md shows what is not in crates/template:\n{code}"
            );
        }
    }
    assert!(shown >= 5, "{shown} blocks");
    // Each whole statement of the table's last column, too.
    let rows = page.lines().filter(|line| line.starts_with("| ") && line.contains("cuda"));
    for statement in rows.flat_map(|row| row.rsplit(" | ").next().unwrap().split('`').skip(1).step_by(2)) {
        if statement.ends_with(';') {
            assert!(template[3].contains(statement), "`{statement}` of the table is not in src/lib.rs");
        }
    }
}

/// A kernel of docs/exam.md, how it is launched, and what is counted by the names of the counters.
struct Counted {
    kernel: String,
    blocks: u32,
    threads: u32,
    n: usize,
    counts: Vec<(String, u64)>,
}

/// The questions of docs/exam.md that show a kernel, with the line `*Counted: …*` behind it.
fn exam() -> Vec<Counted> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/exam.md");
    let text = std::fs::read_to_string(page).unwrap();
    let question = |rest: &str| {
        let (kernel, behind) = rest.split_once("```").unwrap();
        let line = behind.split("\n### ").next().unwrap().split_once("*Counted: ").expect("a line of counts").1;
        let (launch, counts) = line.split_once(".*").unwrap().0.split_once(": ").unwrap();
        let numbers: Vec<usize> =
            launch.split(|c: char| !c.is_ascii_digit()).filter_map(|one| one.parse().ok()).collect();
        let count = |one: &str| {
            let (name, value) = one.trim().trim_start_matches('`').split_once("` ").unwrap();
            (name.to_string(), value.parse().unwrap())
        };
        Counted {
            kernel: kernel.to_string(),
            blocks: numbers[0] as u32,
            threads: numbers[1] as u32,
            n: numbers[2],
            counts: counts.split(", ").map(count).collect(),
        }
    };
    text.split("```cuda\n").skip(1).map(question).collect()
}

#[test]
fn every_answer_of_the_exam_is_what_the_simulator_counts() {
    let gpu = Gpu::simulated().unwrap();
    let exam = exam();
    assert!(exam.len() >= 10, "{} kernels", exam.len());
    for one in &exam {
        let name = name(&one.kernel);
        let kernel = gpu.compile(one.kernel.as_str()).and_then(|module| module.kernel(name)).unwrap();
        // More than any of them reads; atomics begin at 0.
        let (x, mut y) = (gpu.to_device(&whole(8 * one.n, 1)).unwrap(), gpu.zeros::<f32>(one.n).unwrap());
        let config = LaunchConfig::new(one.blocks, one.threads);
        // With all checks: a question is about a kernel without mistakes.
        kernel.launch(config, (&x, &mut y, one.n as i32)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let seen = kernel.inspect(config, (&x, &mut y, one.n as i32));
        let counters = seen.unwrap_or_else(|error| panic!("{name}: {error}")).counters;
        for (counter, known) in &one.counts {
            let counted = match counter.as_str() {
                "divergent_branches" => counters.divergent_branches,
                "global_load_requests" => counters.global_load_requests,
                "global_load_sectors" => counters.global_load_sectors,
                "global_store_requests" => counters.global_store_requests,
                "shared_load_wavefronts" => counters.shared_load_wavefronts,
                "shared_store_wavefronts" => counters.shared_store_wavefronts,
                "global_atomics" => counters.global_atomics,
                "barriers" => counters.barriers,
                other => panic!("docs/exam.md counts `{other}`, which this test does not know: add it here"),
            };
            assert_eq!(counted, *known, "{name}: {counter}");
        }
    }
}
