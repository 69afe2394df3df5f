//! Every kernel of the course runs in the simulator: right against a sum in f64, at awkward sizes, in any order of its
//! blocks, and without a mistake. No GPU is needed; without NVRTC the packed PTX runs.

use gpulab::cpu::{AttentionMask, AttentionShape};
use gpulab::prelude::*;
use gpulab::sim::BlockOrder;
use gpulab_kernels::ladder::{Leaves, RUNGS, Rung};
use gpulab_kernels::topics::{HostArray, Topic};
use gpulab_kernels::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// Sizes that fill neither a warp, a block, nor a tile.
const LENGTHS: [usize; 4] = [1, 31, 33, 100_003];
/// Rows, columns and the length of the sums.
const SHAPES: [(usize, usize, usize); 5] = [(1, 1, 1), (31, 33, 31), (33, 31, 33), (127, 65, 129), (129, 264, 0)];
/// Rows and columns; a block holds 8192 numbers of a row in registers.
const TABLES: [(usize, usize); 4] = [(1, 31), (33, 33), (2, 4099), (1, 20_003)];

/// Which of a rung's sizes run. `every_rung_is_right_on_the_shared_arrays` in the crate opens rungs with blocks in order,
/// where each compares itself with f64, at several blocks too: that is not run again here.
#[derive(Clone, Copy, PartialEq)]
enum Sizes {
    /// All but the one for other orders.
    InOrder,
    /// One that has several blocks, for other orders of blocks.
    One,
}

impl Sizes {
    fn of<T: Copy + PartialEq>(self, all: &[T], one: T) -> Vec<T> {
        match self {
            Sizes::InOrder => all.iter().copied().filter(|&size| size != one).collect(),
            Sizes::One => vec![one],
        }
    }
}

/// Blocks start in order, then in other orders at one size.
fn in_each_order(gpu: &Gpu, rung: &Rung, mut run: impl FnMut(Sizes)) {
    let Gpu::Simulated(simulated) = gpu else { panic!("the simulator was opened") };
    run(Sizes::InOrder);
    // With that seed a kernel that relies on order fails on the few blocks of the simulated GPU, too.
    for order in [BlockOrder::Reverse, BlockOrder::Random(1)] {
        println!("{}, blocks {order}", rung.path);
        simulated.set_block_order(order);
        run(Sizes::One);
    }
    simulated.set_block_order(BlockOrder::Forward);
}

#[test]
fn every_kernel_is_right_in_every_order_of_blocks_and_makes_no_mistake() {
    let gpu = &Gpu::simulated().unwrap();
    let (of_f32, of_bf16) = (Products::default(), Products::default());
    for rung in RUNGS {
        // One rung alone: RUNG=06_tma.
        if std::env::var("RUNG").is_ok_and(|name| !rung.path.contains(&name)) {
            continue;
        }
        let kernel = || {
            let kernel = gpu.compile(rung.source().unwrap()).and_then(|module| module.kernel(rung.kernel));
            kernel.unwrap_or_else(|error| panic!("{}: {error}", rung.path))
        };
        let each = |run: &mut dyn FnMut(Sizes)| in_each_order(gpu, rung, run);
        let shapes = |sizes: Sizes| sizes.of(&SHAPES, SHAPES[3]).into_iter();
        let lengths = |sizes: Sizes| sizes.of(&LENGTHS, 100_001).into_iter();
        // A rung that compares itself with f64 when it is opened: in order that is done elsewhere, but for those that run
        // on one kind of GPU alone.
        let opened = |open: &dyn Fn() -> Result<(), Error>| {
            in_each_order(gpu, rung, |sizes| {
                if sizes == Sizes::One || rung.only {
                    open().unwrap_or_else(|error| panic!("{error}"));
                }
            });
        };
        match rung.kernel {
            "matmul" => {
                let kernel = kernel();
                each(&mut |sizes| shapes(sizes).for_each(|shape| matmul(gpu, rung, &kernel, shape, &of_f32)));
            }
            "matmul_bf16" => {
                // Checks itself at two awkward sizes, in f64.
                let matmul = MatmulBf16::new(gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
                each(&mut |sizes| shapes(sizes).for_each(|shape| matmul_bf16(rung, &matmul, shape, &of_bf16)));
            }
            // Checks itself at eight awkward shapes, with indices of no row: a copy is exact.
            "embedding" => {
                let lookup = Embedding::new(gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
                let lengths = [1, 31, 33, 100_003];
                each(&mut |sizes| sizes.of(&lengths, 3001).into_iter().for_each(|n| embedding(rung, &lookup, n)));
            }
            "vector_add" | "vector_multiply" => {
                let exact = if rung.kernel == "vector_add" { |a, b| a + b } else { |a, b| a * b };
                let kernel = kernel();
                each(&mut |sizes| lengths(sizes).for_each(|n| elements(gpu, rung, &kernel, n, exact)));
            }
            // Again at the sizes and with the data of the topic: `Reduction::new` compares with the exact sum.
            "reduce" => {
                let sum = Reduction::new(gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
                each(&mut |sizes| lengths(sizes).for_each(|n| reduction(rung, &sum, n)));
            }
            "softmax" | "layer_norm" | "rms_norm" => {
                let topic = Ladder::of(rung.kernel).and_then(|ladder| ladder.open(gpu, rung.path));
                let topic = topic.unwrap_or_else(|error| panic!("{error}"));
                each(&mut |sizes| {
                    sizes.of(&TABLES, TABLES[1]).into_iter().for_each(|table| rows(rung, &*topic, table))
                });
            }
            "flash_attention" => [false, true].into_iter().for_each(|causal| {
                let flash = FlashAttention::new(gpu, rung.path, causal).unwrap_or_else(|error| panic!("{error}"));
                let (all, one) = if causal {
                    ([(31, 128), (127, 64), (129, 64)], (129, 64))
                } else {
                    ([(31, 64), (200, 64), (129, 128)], (129, 64))
                };
                each(&mut |sizes| {
                    sizes.of(&all, one).into_iter().for_each(|shape| flash_attention(rung, &flash, causal, shape));
                });
            }),
            // Compares itself with f64 at 1, 33 and 129 tokens, with heads that share k and v. More lengths are in its own tests.
            "flash_backward" => each(&mut |sizes| {
                let masks: &[bool] = match sizes {
                    Sizes::One => &[true],
                    Sizes::InOrder if rung.only => &[false, true],
                    Sizes::InOrder => &[],
                };
                for &causal in masks {
                    FlashBackward::new(gpu, rung.path, causal).unwrap_or_else(|error| panic!("{error}"));
                }
            }),
            // All these compare themselves with f64 at awkward sizes.
            "rope" => opened(&|| Rope::new(gpu, rung.path).map(drop)),
            "residual_rms_norm" => opened(&|| ResidualNorm::new(gpu, rung.path).map(drop)),
            // In order their own tests open all of them, with all kinds of codes.
            "quantized_gemv" => each(&mut |sizes| {
                if sizes == Sizes::One {
                    QuantizedGemv::new(gpu, rung.path, Codes::INT4).unwrap_or_else(|error| panic!("{error}"));
                }
            }),
            "quantized_matmul" => each(&mut |sizes| {
                if sizes == Sizes::One {
                    QuantizedMatmul::new(gpu, rung.path, Codes::INT4).unwrap_or_else(|error| panic!("{error}"));
                }
            }),
            // With rows of all patterns, blocks, and groups of four.
            "spmv" => opened(&|| Spmv::new(gpu, rung.path, sparse::Pattern::Uniform).map(drop)),
            "spmm" => opened(&|| Spmm::new(gpu, rung.path).map(drop)),
            "block_sparse" => opened(&|| BlockSparse::new(gpu, rung.path).map(drop)),
            "two_four" => opened(&|| TwoFourProduct::new(gpu, rung.path).map(drop)),
            other => panic!("nobody holds `{other}` against a reference\nnext: add it here"),
        }
    }
}

/// `FlashAttention` compares itself with f64 at 1 and 33 tokens, with heads that share k and v; heads of 64 numbers
/// when they are first asked for. More lengths here, each with one width and one mask.
fn flash_attention(rung: &Rung, flash: &FlashAttention, causal: bool, (length, width): (usize, usize)) {
    let mask = if causal { AttentionMask::causal() } else { AttentionMask::default() };
    let number = |bits: &[u16], at: usize| f64::from(cpu::f32_from_bf16(bits[at]));
    let shape = AttentionShape { batch: 1, q_heads: 1, kv_heads: 1, length, width };
    let [q, k, v] =
        cpu::attention_inputs(shape, 9, 4.0).map(|x| x.into_iter().map(cpu::bf16_from_f32).collect::<Vec<_>>());
    let o = flash.attend(&q, &k, &v, shape).unwrap_or_else(|error| panic!("{error}"));
    let (of_q, of_k, of_v) = (|at| number(&q, at), |at| number(&k, at), |at| number(&v, at));
    let inputs = (&of_q as _, &of_k as _, &of_v as _);
    let rows: Vec<usize> = (0..length).collect();
    let off = cpu::attention_wrong(&|at| number(&o, at), inputs, shape, &mask, &rows, cpu::Rounding::Bf16);
    assert_eq!(off, None, "{}", rung.path);
}

/// Products in f64 by their sides: each is worked out once for all rungs and orders.
type Products = RefCell<HashMap<(usize, usize, usize), Rc<Vec<f64>>>>;

fn product(
    known: &Products,
    (m, n, k): (usize, usize, usize),
    a: impl Fn(usize) -> f64,
    b: impl Fn(usize) -> f64,
) -> Rc<Vec<f64>> {
    let sums = || {
        let sum = |at: usize| (0..k).map(|i| a(at / n * k + i) * b(i * n + at % n)).sum();
        Rc::new((0..m * n).map(sum).collect())
    };
    Rc::clone(known.borrow_mut().entry((m, n, k)).or_insert_with(sums))
}

/// Rounding to bf16 is off by 2⁻⁸ of the result at most; the sums, of factors in [-1, 1), by k · k · 2⁻²³.
fn matmul_bf16(rung: &Rung, matmul: &MatmulBf16, (m, n, k): (usize, usize, usize), known: &Products) {
    let (a, b) = (cpu::random_bf16(m * k, 5), cpu::random_bf16(k * n, 6));
    let given = matmul
        .multiply(&a, &b, Shape { m, n, k })
        .unwrap_or_else(|error| panic!("{} at {m}, {n}, {k}: {error}", rung.path));
    let number = |bits: u16| f64::from(cpu::f32_from_bf16(bits));
    let exact = product(known, (m, n, k), |at| number(a[at]), |at| number(b[at]));
    for (at, (&bits, exact)) in given.iter().zip(&*exact).enumerate() {
        let error = (number(bits) - exact).abs();
        let most = exact.abs() * 2.0_f64.powi(-8) + (k * k) as f64 * 2.0_f64.powi(-23);
        assert!(error <= most, "{} at {m}, {n}, {k}, element {at}: {error}", rung.path);
    }
}

/// Each row against the table's; rows of 4 and of 5 elements are copied in different ways.
fn embedding(rung: &Rung, lookup: &Embedding, n: usize) {
    for width in [4, 5] {
        let (table, index) = (cpu::random_f32(1000 * width, 7), cpu::random_f32(n, 8));
        let index: Vec<i32> = index.into_iter().map(|x| ((x + 1.0) * 500.0) as i32).collect();
        let given =
            lookup.lookup(&table, width, &index).unwrap_or_else(|error| panic!("{} at {n}: {error}", rung.path));
        let rows = index.iter().flat_map(|&row| &table[row as usize * width..][..width]);
        assert!(given.iter().eq(rows), "{} at n = {n}, width {width}", rung.path);
    }
}

/// One operation is rounded once: within half a unit in the last place of the exact result.
fn elements(gpu: &Gpu, rung: &Rung, kernel: &Kernel, n: usize, exact: fn(f64, f64) -> f64) {
    let (a, b) = (cpu::random_f32(n, 1), cpu::random_f32(n, 2));
    let (on_a, on_b) = (gpu.to_device(&a).unwrap(), gpu.to_device(&b).unwrap());
    let mut c = gpu.poison::<f32>(n).unwrap();
    let config = rung.launch(n, 1, gpu.multiprocessors());
    let launched = kernel.launch(config, (&on_a, &on_b, &mut c, n as i32));
    launched.unwrap_or_else(|error| panic!("{} at n = {n}: {error}", rung.path));
    for (at, given) in c.to_host().unwrap().into_iter().enumerate() {
        let expected = exact(a[at].into(), b[at].into());
        let error = (f64::from(given) - expected).abs();
        assert!(error <= expected.abs() * 2.0_f64.powi(-24), "{} at n = {n}, element {at}: {given}", rung.path);
    }
}

/// Each addition is off by at most 2⁻²⁴ of its result. The longest chain of additions that a rung makes is the bound:
/// one after the other for atomics, a tree for the others (below 64 for all sizes here).
fn reduction(rung: &Rung, sum: &Reduction, n: usize) {
    let a = cpu::random_f32(n, 6);
    let exact: f64 = a.iter().copied().map(f64::from).sum();
    let magnitudes: f64 = a.iter().map(|x| f64::from(x.abs())).sum();
    let chain = if rung.leaves == Leaves::Added { n } else { n.min(64) };
    let given = sum.sum(&a).unwrap_or_else(|error| panic!("{} at n = {n}: {error}", rung.path));
    let error = (f64::from(given) - exact).abs();
    assert!(error <= chain as f64 * 2.0_f64.powi(-24) * magnitudes, "{} at n = {n}: {given}, not {exact}", rung.path);
}

/// Partial sums of numbers in [-1, 1) stay below k, so k roundings are off by at most k · k · 2⁻²⁴.
fn matmul(gpu: &Gpu, rung: &Rung, kernel: &Kernel, (m, n, k): (usize, usize, usize), known: &Products) {
    let (a, b) = (cpu::random_f32(m * k, 3), cpu::random_f32(k * n, 4));
    let (on_a, on_b) = (gpu.to_device(&a).unwrap(), gpu.to_device(&b).unwrap());
    let mut c = gpu.poison::<f32>(m * n).unwrap();
    let config = rung.launch(n, m, gpu.multiprocessors());
    let launched = kernel.launch(config, (&on_a, &on_b, &mut c, m as i32, n as i32, k as i32));
    launched.unwrap_or_else(|error| panic!("{} at {m} × {n} × {k}: {error}", rung.path));
    let exact = product(known, (m, n, k), |at| a[at].into(), |at| b[at].into());
    for (at, (given, exact)) in c.to_host().unwrap().into_iter().zip(&*exact).enumerate() {
        let error = (f64::from(given) - exact).abs();
        assert!(error <= (k * k) as f64 * 2.0_f64.powi(-24), "{} {m} × {n} × {k}, {at}: {error}", rung.path);
    }
}

/// Of numbers in [-1, 1), the result is rounded to bf16, off by 2⁻⁸ of it at most, and the sums in f32 by far less.
fn rows(rung: &Rung, topic: &dyn Topic, (rows, columns): (usize, usize)) {
    let (x, weight) = (cpu::random_bf16(rows * columns, 7), cpu::random_bf16(columns, 8));
    let bias = if rung.kernel == "layer_norm" { cpu::random_bf16(columns, 9) } else { vec![0; columns] };
    let arrays = match rung.kernel {
        "softmax" => 1,
        "rms_norm" => 2,
        _ => 3,
    };
    let inputs = [&x, &weight, &bias].map(|numbers| HostArray::Bf16(numbers.clone()));
    let given = topic.results(&inputs[..arrays], Size::Two(rows, columns));
    let given = given.unwrap_or_else(|error| panic!("{} at {rows} × {columns}: {error}", rung.path));
    let HostArray::Bf16(given) = &given[0] else { panic!("{}: {given:?}", rung.path) };
    rows_agree(rung, given, [&x, &weight, &bias], columns);
}

fn rows_agree(rung: &Rung, given: &[u16], [x, weight, bias]: [&[u16]; 3], columns: usize) {
    let [given, x, weight, bias] = [given, x, weight, bias]
        .map(|bits| bits.iter().map(|&bits| f64::from(cpu::f32_from_bf16(bits))).collect::<Vec<f64>>());
    let mean = |row: &[f64], of: &dyn Fn(f64) -> f64| row.iter().map(|&x| of(x)).sum::<f64>() / columns as f64;
    for (row, (given, x)) in given.chunks(columns).zip(x.chunks(columns)).enumerate() {
        let centre = if rung.kernel == "layer_norm" { mean(x, &|x| x) } else { 0.0 };
        let scale = (mean(x, &|x| (x - centre).powi(2)) + 1e-5).sqrt().recip();
        let sum = mean(x, &f64::exp) * columns as f64;
        for column in 0..columns {
            let (x, weight, bias) = (x[column], weight[column], bias[column]);
            let exact = match rung.kernel {
                "softmax" => x.exp() / sum,
                _ => (x - centre) * scale * weight + bias,
            };
            let (given, error) = (given[column], (given[column] - exact).abs());
            // Weighted, and added to the bias, the rest may nearly be 0.
            let slack = if rung.kernel == "softmax" { 0.0 } else { 1e-6 };
            let place = format!("{}, {columns} columns, row {row}, column {column}", rung.path);
            assert!(error <= exact.abs() * 2.0_f64.powi(-8) + slack, "{place}: {given}, not {exact}");
        }
    }
}
