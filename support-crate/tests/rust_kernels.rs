//! Kernels in Rust, from text to results in the simulator.

use gpulab::prelude::*;

#[test]
fn vector_add_in_rust() {
    let add = r#"
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn add(a: *const f32, b: *const f32, c: *mut f32, n: u32) {
    let n = n as usize;
    // SAFETY: a launch in one dimension with buffers of n elements.
    let (a, b, mut c) = unsafe { (Slice::new(a, n), Slice::new(b, n), DisjointSlice::new(c, n)) };
    let i = index_1d();
    if let Some(c) = c.own(i) {
        *c = a[i.get()] + b[i.get()];
    }
}"#;
    let gpu = Gpu::simulated().unwrap();
    let module = gpu.compile(Source::rust(add)).unwrap_or_else(|e| panic!("{e}"));
    let kernel = module.kernel("add").unwrap();
    let n = 1001;
    let a = gpu.to_device(&(0..n).map(|i| i as f32).collect::<Vec<_>>()).unwrap();
    let mut c = gpu.poison::<f32>(n).unwrap();
    let config = LaunchConfig::for_elements(n, 256);
    kernel.launch(config, (&a, &a, &mut c, n as u32)).unwrap();
    assert!(c.to_host().unwrap().iter().enumerate().all(|(i, &x)| x == 2.0 * i as f32));
}

fn gpu() -> Gpu {
    Gpu::simulated().unwrap()
}

/// The error that a text gives, as a reader sees it.
fn refused(source: Source) -> String {
    gpu().compile(source).unwrap_err().to_string()
}

fn run(text: &str, name: &str, blocks: u32, threads: u32, n: usize) -> Result<Vec<f32>> {
    run_source(Source::rust(text), name, blocks, threads, n)
}

fn run_source(source: Source, name: &str, blocks: u32, threads: u32, n: usize) -> Result<Vec<f32>> {
    let gpu = gpu();
    let kernel = gpu.compile(source)?.kernel(name)?;
    let mut x = gpu.to_device(&(0..n).map(|i| i as f32).collect::<Vec<_>>())?;
    kernel.launch(LaunchConfig::new(blocks, threads).shared(4096), (&mut x, n as u32))?;
    x.to_host()
}

const HEAD: &str = "use gpulab_device::*;
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn k(x: *mut f32, n: u32) {
";

#[test]
fn the_device_library_does_what_it_says() {
    let body = r#"
    let n = n as usize;
    let mut out = unsafe { DisjointSlice::new(x, n) };
    let t = thread_x() as usize;
    let tile = shared!(TILE: [f32; 128]);
    let other = shared!([f32]);
    tile.set(t, t as f32);
    other.set(t, 1.0);
    sync_threads();
    let mut y = tile.get(127 - t);
    y += 1000.0 * other.get((t + 1) % 128);
    y += 10_000.0 * (warp::shuffle_xor(warp::ALL, t as u32, 1) == (t as u32 ^ 1)) as u32 as f32;
    y += 100_000.0 * (warp::ballot(warp::ALL, t % 2 == 0) == 0x5555_5555) as u32 as f32;
    y += 1_000_000.0 * (sync_threads_count(t < 50) == 50) as u32 as f32;
    assert!(other.len() == 1024 && warp::lane() == thread_x() % 32);
    assert!(warp::all(warp::ALL, true) && !warp::any(warp::ALL, false));
    let half = F16::from_f32(0.5).to_f32() + Bf16::from_f32(0.5).to_f32();
    y *= half.fma(2.0, -1.0) * 16.0_f32.square_root() * 0.25;
    y *= (Bf16::pair_from_f32(0.5, 1.0) == 0x3f80_3f00) as u32 as f32;
    let (fours, four) = (shared!(FOURS: [Vec4<u32>; 128]), Vec4 { x: t as u32, y: 1, z: u32::MAX, w: 3 });
    fours.set(t, four);
    y *= (fours.get(t) == four) as u32 as f32;
    if let Some(out) = out.own(index_1d()) {
        *out = y;
    }
}"#;
    for checked in [false, true] {
        let source = Source::rust(&format!("{HEAD}{body}"));
        let source = if checked { source.checked() } else { source };
        let y = run_source(source, "k", 1, 128, 128).unwrap_or_else(|error| panic!("{error}"));
        let expected: Vec<f32> = (0..128).map(|t| 1_111_000.0 + 127.0 - t as f32).collect();
        assert_eq!(y, expected);
    }
}

#[test]
fn atomics_have_scopes() {
    let text = format!(
        "{HEAD}
    let x = unsafe {{ AtomicSlice::<u32>::new(x.cast(), n as usize) }};
    x.add(0, 1, Scope::Device);
    x.max(1, thread_x(), Scope::System);
    x.add(2, 1, Scope::Block);
    x.increment_below(3, 9, Scope::Device);
    x.compare_exchange(4, 0, block_x() + 7);
}}"
    );
    let gpu = gpu();
    let module = gpu.compile(Source::rust(&text)).unwrap();
    let ptx = module.ptx().unwrap();
    assert!(
        ptx.contains("atom.relaxed.gpu.global.add.u32") && ptx.contains("atom.relaxed.sys.global.max.u32"),
        "{ptx}"
    );
    let mut x = gpu.zeros::<f32>(5).unwrap();
    module.kernel("k").unwrap().launch(LaunchConfig::new(1, 64), (&mut x, 5_u32)).unwrap();
    let bits: Vec<u32> = x.to_host().unwrap().iter().map(|x| x.to_bits()).collect();
    assert_eq!(bits, [64, 63, 64, 64 % 10, 7]);
}

#[test]
fn a_mistake_names_the_line_of_the_rust_text() {
    // No guard: the last block writes past the end.
    let text = format!(
        "{HEAD}    let i = index_1d().get();
    unsafe {{ *x.add(i) += n as f32 }};
}}"
    );
    let message = run(&text, "k", 2, 64, 100).unwrap_err().to_string();
    assert!(
        message.contains("kernel.rs:5") && message.contains("out of bounds") && message.contains("`x`"),
        "{message}"
    );
}

#[test]
fn a_race_in_shared_memory_names_the_line() {
    let text = format!(
        "{HEAD}
    let tile = shared!(TILE: [f32; 64]);
    let t = thread_x() as usize;
    tile.set(t, t as f32);
    let y = tile.get(63 - t);
    unsafe {{ *x.add(t) = y + n as f32 }};
}}"
    );
    let message = run(&text, "k", 1, 64, 64).unwrap_err().to_string();
    assert!(message.contains("data race in shared memory") && message.contains("kernel.rs:7"), "{message}");
    assert!(message.contains("at line 8") && message.contains("put sync_threads() between"), "{message}");
}

#[test]
fn a_panic_names_its_line_and_checks_cost_nothing_when_off() {
    let text = format!(
        "{HEAD}    let x = unsafe {{ Slice::new(x, n as usize) }};
    let y = x[thread_x() as usize + 1];
    assert!(y != 5.0);
}}"
    );
    // Element 5 is 5.0: the assertion on line 6 fails in thread 4.
    let message = run(&text, "k", 1, 32, 100).unwrap_err().to_string();
    assert!(
        message.contains("kernel.rs:6") && message.contains("panic") && message.contains("thread (4, 0, 0)"),
        "{message}"
    );
    // With checks, the last thread's index is refused before it reads.
    let checked = Source::rust(&text.replace("5.0", "500.0")).checked();
    let message = run_source(checked.clone(), "k", 1, 32, 32).unwrap_err().to_string();
    assert!(message.contains("kernel.rs:5") && message.contains("panic"), "{message}");
    let traps = |source: Source| gpu().compile(source).unwrap().ptx().unwrap().matches("trap;").count();
    let plain = Source::rust(&text.replace("    assert!(y != 5.0);", "    unsafe { core::hint::black_box(y) };"));
    assert_eq!(traps(plain), 0);
    assert!(traps(checked) > 0);
}

#[test]
fn core_s_own_slices_are_always_checked() {
    let text = format!(
        "{HEAD}    let x = unsafe {{ core::slice::from_raw_parts_mut(x.add(0), n as usize) }};
    x[thread_x() as usize + 1] = 1.0;
}}"
    );
    let message = run(&text, "k", 1, 1, 1).unwrap_err().to_string();
    assert!(message.contains("kernel.rs:5") && message.contains("panic"), "{message}");
}

/// The kernel of rust-lang/rust#137086: what is read before the barrier decides what happens behind it.
const TRAP: &str = "
    let (n, i) = (n as usize, index_1d().get());
    let y = if i < n { unsafe { *x.add(i) } } else { 0.0 };
    sync_threads();
    if i < n { unsafe { *x.add(i) = 2.0 * y } }
}";

#[test]
fn jump_threading_is_off_and_the_simulator_shows_why() {
    let text = format!("{HEAD}{TRAP}");
    let barriers = |source: Source| {
        let ptx = gpu().compile(source).unwrap().ptx().unwrap().to_string();
        (ptx.matches("bar.sync").count() + ptx.matches("barrier.sync").count(), ptx)
    };
    assert_eq!(barriers(Source::rust(&text)).0, 1);
    assert!(run(&text, "k", 2, 64, 100).is_ok());
    let threaded = Source::rust(&text).option("-Zmir-enable-passes=+JumpThreading");
    let (two, ptx) = barriers(threaded.clone());
    assert_eq!(two, 2, "{ptx}");
    let message = run_source(threaded, "k", 2, 64, 100).unwrap_err().to_string();
    assert!(message.contains("barrier that not all threads reach") && message.contains("kernel.rs:7"), "{message}");
}

#[test]
fn arguments_are_held_against_the_rust_declaration() {
    let gpu = gpu();
    let text = format!("{HEAD}}}");
    let kernel = gpu.compile(Source::rust(&text)).unwrap().kernel("k").unwrap();
    let mut x = gpu.zeros::<f32>(4).unwrap();
    let mut whole = gpu.zeros::<u32>(4).unwrap();
    let one = LaunchConfig::new(1, 1);
    let error = kernel.launch(one, (&mut x, 1_u64)).unwrap_err().to_string();
    assert!(error.contains("n: u32"), "{error}");
    assert!(matches!(kernel.launch(one, (&mut whole, 1_u32)), Err(Error::ArgumentType { position: 1, .. })));
    assert!(matches!(kernel.launch(one, (&x, 1_u32)), Err(Error::ArgumentType { position: 1, .. })));
    assert!(matches!(kernel.launch(one, (&mut x,)), Err(Error::ArgumentCount { .. })));
    assert!(kernel.launch(one, (&mut x, 1_u32)).is_ok());
}

#[test]
fn bad_texts_are_told_with_their_lines() {
    let print = refused(Source::rust(&format!("{HEAD}    println!(\"{{n}}\");\n}}")));
    assert!(print.contains("kernel.rs:4") && print.contains("println") && print.contains("`core`"), "{print}");
    let std = refused(Source::rust(&format!("{HEAD}    let v = std::vec::Vec::from([x]);\n}}")));
    assert!(std.contains("kernel.rs:4") && std.contains("std"), "{std}");
    let typed = refused(Source::rust(&format!("{HEAD}    let y: u32 = 1.0;\n}}")));
    assert!(typed.contains("kernel.rs:4") && typed.contains("mismatched types"), "{typed}");
    let layout = refused(Source::rust(
        "pub struct Line { slope: f32, n: u8 }
#[unsafe(no_mangle)]
pub extern \"ptx-kernel\" fn k(line: Line) { core::hint::black_box(line.slope); }",
    ));
    assert!(layout.contains("repr(C)") && layout.contains("kernel.rs:3"), "{layout}");
    let other = refused(Source::rust(&format!("{HEAD}    core::arch::x86_64::_mm_pause();\n}}")));
    assert!(other.contains("kernel.rs:4") && other.contains("x86_64"), "{other}");
    let host = refused(Source::rust("pub fn main() {}"));
    assert!(host.contains("no kernel") && host.contains("ptx-kernel"), "{host}");
    let mangled = refused(Source::rust("pub extern \"ptx-kernel\" fn k() {}"));
    assert!(mangled.contains("no_mangle"), "{mangled}");
    let library = refused(Source::rust(&format!("{HEAD}    unsafe {{ *x.cast::<u128>() = *x as u128 }};\n}}")));
    assert!(library.contains("128-bit"), "{library}");
    for text in [print, std, typed, layout, other, host, mangled, library] {
        assert!(text.contains("\nnext: "), "{text}");
    }
}

#[test]
fn constants_are_the_hosts() {
    let text = format!("{HEAD}    unsafe {{ *x.add(thread_x() as usize) = SCALE * TILE as f32 * n as f32 }};\n}}");
    let source = Source::rust(&text).define("TILE", 3).define("SCALE", "0.5");
    assert_eq!(run_source(source, "k", 1, 2, 2).unwrap(), [3.0, 3.0]);
    let error = refused(Source::rust(&text).define("TILE", "float")).to_string();
    assert!(error.contains("TILE") && error.contains("next: "), "{error}");
}

/// One product of 16 × 16 and 16 × 8 by a warp: a from shared memory by `ldmatrix`, which a copy without registers filled.
#[test]
fn tensor_cores_multiply() {
    let text = r#"
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn product(a: *const Bf16, b: *const Bf16, c: *mut f32) {
    let (lane, tile) = (thread_x() as usize, shared!(A: [Bf16; 256]));
    // SAFETY: a has 256 numbers, b (as 8 columns of 16) 128, and the launch is one warp.
    let (b, mut c) = unsafe { (Slice::new(b, 128), DisjointSlice::new(c, 128)) };
    // SAFETY: eight numbers each, 16 bytes, from a buffer that begins at a multiple of 16.
    unsafe { tensor::copy_16_async(tile, lane * 8, a.add(lane * 8)) };
    tensor::commit_copies();
    tensor::copies_done::<0>();
    sync_warp(warp::ALL);
    // The quarters of a as `mma` wants them: rows 0 to 7 and 8 to 15 of the left half, then of the right half.
    let a = tensor::load_matrices(tile, lane % 16 * 16 + lane / 16 * 8);
    let (column, row) = (lane / 4, lane % 4 * 2);
    let pair = |k| u32::from(b[column * 16 + k].0) | u32::from(b[column * 16 + k + 1].0) << 16;
    let sums = tensor::mma(a, [pair(row), pair(row + 8)], [0.0; 4]);
    for (i, sum) in sums.into_iter().enumerate() {
        // SAFETY: lane l has two neighbours in row l / 4, and two in the row eight below.
        unsafe { *c.own_at((lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2) = sum };
    }
}"#;
    let gpu = gpu();
    let kernel = gpu.compile(text).unwrap_or_else(|error| panic!("{error}")).kernel("product").unwrap();
    let bf16 = |x: i32| ((x as f32).to_bits() >> 16) as u16;
    let (a, b) = (|row: i32, k: i32| (row * 3 + k * 5) % 7 - 3, |k: i32, column: i32| (k * 2 + column) % 5 - 2);
    let whole_a: Vec<u16> = (0..256).map(|i| bf16(a(i / 16, i % 16))).collect();
    let whole_b: Vec<u16> = (0..128).map(|i| bf16(b(i % 16, i / 16))).collect();
    let (on_a, on_b, mut c) =
        (gpu.to_device(&whole_a).unwrap(), gpu.to_device(&whole_b).unwrap(), gpu.poison::<f32>(128).unwrap());
    kernel.launch(LaunchConfig::new(1, 32), (&on_a, &on_b, &mut c)).unwrap_or_else(|error| panic!("{error}"));
    let exact: Vec<f32> = (0..128).map(|i| (0..16).map(|k| a(i / 8, k) * b(k, i % 8)).sum::<i32>() as f32).collect();
    assert_eq!(c.to_host().unwrap(), exact);
}

#[test]
fn launch_bounds_reach_the_driver() {
    let text = "use gpulab_device::*;
const THREADS: usize = 128;
launch_bounds!(one, THREADS);
launch_bounds!(two, 2 * THREADS, 3);
#[unsafe(no_mangle)]
pub extern \"ptx-kernel\" fn one() {}
#[unsafe(no_mangle)]
pub extern \"ptx-kernel\" fn two(x: u32) { core::hint::black_box(x); }
#[unsafe(no_mangle)]
pub extern \"ptx-kernel\" fn three() {}";
    let module = gpu().compile(text).unwrap();
    let words = |name: &str| {
        let ptx = module.ptx().unwrap();
        let entry = ptx.split(&format!(".entry {name}(")).nth(1).unwrap();
        entry.split("\n{").next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert!(words("one").ends_with(") .maxntid 128, 1, 1"), "{}", words("one"));
    assert!(words("two").ends_with(") .maxntid 256, 1, 1 .minnctapersm 3"), "{}", words("two"));
    assert!(words("three").ends_with(')'), "{}", words("three"));
}

/// Unrolled, eight iterations are eight stores in the PTX; in a loop there is one.
#[test]
fn a_rolled_loop_stays_a_loop() {
    let text = |range: &str| {
        format!(
            "{HEAD}    // SAFETY: the launch passes n elements, and has one thread.
    let mut x = unsafe {{ DisjointSlice::new(x, n as usize) }};
    for i in {range} {{
        // SAFETY: as above.
        unsafe {{ *x.own_at(i) = 2.0 * i as f32 }}
    }}
}}"
        )
    };
    for (range, stores) in [("0..8", 8), ("rolled(0..8, 1)", 1)] {
        let ptx = gpulab::rust::compile_to_ptx(&Source::rust(&text(range)), 90).unwrap();
        let found = ptx.lines().filter(|line| line.trim().starts_with("st.global")).count();
        assert_eq!(found, stores, "{range}:\n{ptx}");
        let x = run(&text(range), "k", 1, 1, 10).unwrap();
        assert_eq!(x, [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0, 14.0, 8.0, 9.0], "{range}");
    }
}

#[test]
fn a_function_that_is_called_may_wait_at_a_barrier_and_panic() {
    let text = format!(
        "{HEAD}    let tile = shared!(TILE: [f32; 2]);
    let mut y = 0.0;
    // Lanes part here, and meet again.
    for i in 0..thread_x() % 3 {{
        y += i as f32;
    }}
    y += of_block(tile, y) + of_block(tile, y + 1.0);
    unsafe {{ *x.add(thread_x() as usize) = y + n as f32 }};
}}
#[inline(never)]
fn of_block(tile: SharedArray<f32>, y: f32) -> f32 {{
    if thread_x() % 32 == 0 {{
        tile.set(thread_x() as usize / 32, y);
    }}
    sync_threads();
    let sum = tile.get(0) + tile.get(1);
    sync_threads();
    sum
}}"
    );
    for source in [Source::rust(&text), Source::rust(&text).checked()] {
        let ptx = gpu().compile(source.clone()).unwrap().ptx().unwrap().to_string();
        assert!(ptx.contains("call"), "{ptx}");
        run_source(source, "k", 1, 64, 64).unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Each checked index can end in a trap, on which the other lanes do not wait; here the last loop leads to the end alone.
#[test]
fn checks_do_not_keep_the_lanes_of_a_warp_apart() {
    let text = format!(
        "{HEAD}    let (t, n) = (thread_x() as usize, n as usize);
    let tile = shared!(TILE: [f32; 2]);
    if t % 32 == 0 {{
        tile.set(t / 32, 1.0);
    }}
    sync_threads();
    let mut x = unsafe {{ DisjointSlice::new(x, n) }};
    for i in (t..n).step_by(64) {{
        unsafe {{ *x.own_at(i) = tile.get(0) + tile.get(1) }};
    }}
}}"
    );
    let y = run_source(Source::rust(&text).checked(), "k", 1, 64, 100).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(y, [2.0; 100]);
}

/// A kernel with a `DisjointSlice` c of x's n elements.
fn with_slice(body: &str) -> String {
    format!("{HEAD}    let mut c = unsafe {{ DisjointSlice::new(x, n as usize) }};\n{body}\n}}")
}

/// Each text is refused with these words, on that line.
fn all_refused(texts: &[(&str, usize, &[&str])]) {
    for (text, line, words) in texts {
        let said = refused(Source::rust(text));
        assert!(said.contains(&format!("kernel.rs:{line}:")), "{text}\n{said}");
        for word in *words {
            assert!(said.contains(word), "`{word}` is missing:\n{text}\n{said}");
        }
    }
}

#[test]
fn a_slice_has_one_rule_of_ownership() {
    let next = "\nnext: keep to one `own` method for each slice";
    let own = "    if let Some(c) = c.own(index_1d()) { *c = 1.0 }";
    let of_block = "    if let Some(c) = c.own_of_block() { *c = 0.0 }";
    let at = "    unsafe { *c.own_at(0) = 0.0 };";
    let two = |first: &str, second: &str| with_slice(&format!("{first}\n{second}"));
    let matrix = |body: &str| {
        format!("{HEAD}    let mut c = unsafe {{ DisjointSlice::new_2d(x, n as usize / 8, 8) }};\n{body}\n}}")
    };
    let width = "    if let Some(c) = c.own_2d(index_2d(), 4) { *c = 0.0 }";
    let rows = "    if let Some(c) = c.own_2d(index_2d()) { *c = 0.0 }";
    all_refused(&[
        (&two(own, of_block), 6, &["no method named `own_of_block`", "DisjointSlice<'_, T, PerBlock>", next]),
        (&two(of_block, own), 6, &["no method named `own` found", "DisjointSlice<'_, f32, PerBlock>", next]),
        (&two(own, at), 6, &["no method named `own_at`", "DisjointSlice<'_, f32>", next]),
        (&two(at, own), 6, &["no method named `own` found", "DisjointSlice<'_, f32, Unchecked>", next]),
        (&two(at, of_block), 6, &["no method named `own_of_block`", "DisjointSlice<'_, f32, Unchecked>", next]),
        (&matrix(own), 5, &["no method named `own` found", "DisjointSlice<'_, f32, PerThread2d>", next]),
        (&matrix(of_block), 5, &["no method named `own_of_block`", "DisjointSlice<'_, f32, PerThread2d>", next]),
        // A matrix has the width that it was made with.
        (&matrix(width), 5, &["this method takes 1 argument but 2 arguments were supplied"]),
        (
            &with_slice(rows),
            4,
            &["no slice with the rule `PerThread2d`", "`DisjointSlice::new_2d`, which takes the width"],
        ),
        // In a helper the rule stands in its type; left out, it is one element a thread.
        (
            &two(
                "    fn fill(c: &mut DisjointSlice<f32>) { if let Some(c) = c.own(index_1d()) { *c = 1.0 } }",
                of_block,
            )
            .replace("\n}", "\n    fill(&mut c);\n}"),
            7,
            &["mismatched types", "DisjointSlice<'_, f32, PerBlock>"],
        ),
    ]);
    // Without an `own` nothing says by which rule.
    let unused = refused(Source::rust(&with_slice("    let _ = c.len();")));
    assert!(unused.contains("kernel.rs:4:") && unused.contains("type annotations needed"), "{unused}");
    assert!(unused.contains("\nnext: write through the slice"), "{unused}");
    let named = with_slice("    let _ = c.len();").replace("let mut c =", "let c: DisjointSlice<f32> =");
    assert!(gpu().compile(Source::rust(&named)).is_ok());
}

#[test]
fn a_thread_has_one_reference_to_an_element() {
    all_refused(&[
        (
            &with_slice("    let (a, b) = (c.own(index_1d()), c.own(index_1d()));\n    drop((a, b));"),
            5,
            &["cannot borrow `c` as mutable more than once"],
        ),
        (
            &with_slice("    let mut d = c.clone();\n    drop((c.own(index_1d()), d.own(index_1d())));"),
            5,
            &["no method named `clone`"],
        ),
        (
            &with_slice("    let mut d = c;\n    drop((c.own(index_1d()), d.own(index_1d())));"),
            6,
            &["borrow of moved value: `c`"],
        ),
    ]);
}

#[test]
fn indices_and_rules_are_not_made_by_hand() {
    let matrix = |body: &str| {
        with_slice(body).replace("DisjointSlice::new(x, n as usize)", "DisjointSlice::new_2d(x, n as usize / 8, 8)")
    };
    all_refused(&[
        (&with_slice("    drop(c.own(Index1d(0)));"), 5, &["private"]),
        (&with_slice("    drop(c.own(Index1d { 0: 7, ..index_1d() }));"), 5, &["private"]),
        (&matrix("    drop(c.own_2d(Index2d { row: 0, ..index_2d() }));"), 5, &["private"]),
        (&matrix("    let mut at = index_2d();\n    at.row = 0;\n    drop(c.own_2d(at));"), 6, &["private"]),
        (&matrix("    c.rule.width = 3;\n    drop(c.own_2d(index_2d()));"), 5, &["private"]),
        (&matrix("    let rule = PerThread2d { width: 3 };"), 5, &["private"]),
        (
            &with_slice(
                "    struct Own;\n    impl gpulab_device::slice::Ownership for Own {}\n    drop(c.own(index_1d()));",
            ),
            6,
            &["`Own", "sealed::Ownership` is not"],
        ),
    ]);
}

/// What passes from thread to thread is `Send` or `Sync`, as on a CPU, and an index is neither.
#[test]
fn an_index_stays_in_its_thread() {
    let kernel = |items: &str, parameter: &str, body: &str| {
        format!(
            "use gpulab_device::*;\n{items}\n#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn k({parameter}, c: *mut f32, n: u32) {{
    let mut c = unsafe {{ DisjointSlice::new(c, n as usize) }};
{body}
    drop(c.own(index_1d()));
}}"
        )
    };
    let send = "cannot be sent between threads safely";
    let sync = "cannot be shared between threads safely";
    let own = "#[derive(Clone, Copy)] struct Kept(Index1d);
impl Shared for Kept {
    unsafe fn load(at: u32) -> Kept { unsafe { core::mem::transmute(u64::load(at)) } }
    unsafe fn store(at: u32, kept: Kept) { unsafe { u64::store(at, core::mem::transmute(kept)) } }
}";
    let keep = "    let mut kept = unsafe { DisjointSlice::new(kept, 32) };
    if let Some(kept) = kept.own(index_1d()) { *kept = index_1d() }";
    let take = "    let kept = unsafe { Slice::new(kept, 32) };\n    drop(c.own(kept[0]));";
    let in_shared = "    let kept = shared!(KEPT: [Index1d; 32]);\n    drop(c.own(kept.get(0)));";
    let kept_static = "static KEPT: core::cell::OnceCell<Index1d> = core::cell::OnceCell::new();";
    let sent = "    fn send<T: Send>(_: T) {}\n    send(grid_stride(32));";
    let matrix = "    fn send<T: Send>(_: T) {}\n    send(index_2d());";
    all_refused(&[
        // Through a buffer, from one launch to the next.
        (&kernel("", "kept: *mut Index1d", keep), 6, &[send, "Index1d"]),
        (&kernel("", "kept: *const Index1d", take), 6, &[sync, "Index1d"]),
        // Through shared memory, also by a type that says how it is read and written.
        (&kernel("", "_x: u32", in_shared), 6, &["SharedArray<gpulab_device::Index1d>", "doesn't satisfy"]),
        (&kernel(own, "_x: u32", ""), 3, &[send, "Kept"]),
        // Through a static.
        (&kernel(kept_static, "_x: u32", ""), 2, &[sync, "OnceCell<gpulab_device::Index1d>"]),
        // From the host, as a kernel's parameter: all threads would get the same.
        (&kernel("", "own: Index1d", "    drop(c.own(own));"), 4, &["not FFI-safe"]),
        (&kernel("", "d: DisjointSlice<'static, f32, PerBlock>", ""), 4, &["not FFI-safe"]),
        // What makes indices is not for others, either.
        (&kernel("", "_x: u32", sent), 7, &[send, "grid_stride"]),
        (&kernel("", "_x: u32", matrix), 7, &[send, "Index2d"]),
    ]);
}

#[test]
fn what_all_threads_read_cannot_be_written() {
    let text = "use gpulab_device::*;
#[unsafe(no_mangle)]
pub unsafe extern \"ptx-kernel\" fn k(x: *const core::cell::Cell<f32>, n: u32) {
    let x = unsafe { Slice::new(x, n as usize) };
    x[0].set(thread_x() as f32);
}";
    all_refused(&[(text, 4, &["`Cell<f32>` cannot be shared between threads safely"])]);
    for reference in ["&mut f32", "&'static mut [f32; 4]", "& mut f32"] {
        let text = format!(
            "#[unsafe(no_mangle)]\npub extern \"ptx-kernel\" fn k(n: u32, x: {reference}) {{ let _ = (n, x); }}"
        );
        let said = refused(Source::rust(&text));
        assert!(
            said.contains(&format!("`x: {reference}` of the kernel `k` is the same `&mut` in all threads")),
            "{said}"
        );
    }
    let read = "#[unsafe(no_mangle)]\npub extern \"ptx-kernel\" fn k(x: &f32) { core::hint::black_box(*x); }";
    assert!(gpu().compile(Source::rust(read)).is_ok());
}

#[test]
fn each_rule_reaches_its_elements() {
    let gpu = gpu();
    let launch = |text: &str, config: LaunchConfig, n: usize| {
        let kernel = gpu.compile(Source::rust(text)).unwrap_or_else(|error| panic!("{error}")).kernel("k").unwrap();
        let mut x = gpu.zeros::<f32>(n).unwrap();
        kernel.launch(config, (&mut x, n as u32)).unwrap_or_else(|error| panic!("{error}"));
        x.to_host().unwrap()
    };
    let one = LaunchConfig::new(3, 32);
    // Own elements, and those one grid further.
    let own = "    for i in grid_stride(n as usize) { if let Some(c) = c.own(i) { *c += 1.0 } }";
    assert_eq!(launch(&with_slice(own), one, 250), [1.0; 250]);
    let of_block = "    if let Some(c) = c.own_of_block() { *c += 1.0 }";
    assert_eq!(launch(&with_slice(of_block), one, 5), [1.0, 1.0, 1.0, 0.0, 0.0]);
    // Five rows of seven: what lies outside of the matrix has no element, though there is one of that number.
    let matrix = format!(
        "{HEAD}    let mut c = unsafe {{ DisjointSlice::new_2d(x, n as usize / 7, 7) }};
    let at = index_2d();
    if let Some(c) = c.own_2d(at) {{ *c += (10 * at.row() + at.column() + 1) as f32 }}
}}"
    );
    let plane = LaunchConfig { grid: (2, 2, 1), block: (8, 4, 1), ..LaunchConfig::new(1, 1) };
    let expected: Vec<f32> = (0..35).map(|at| (10 * (at / 7) + at % 7 + 1) as f32).collect();
    assert_eq!(launch(&matrix, plane, 35), expected);
    let at = "    if index_2d().row() < 2 { unsafe { *c.own_at(2 * thread_x() as usize + index_2d().row()) = 1.0 } }";
    let block = LaunchConfig { grid: (1, 1, 1), block: (4, 4, 1), ..LaunchConfig::new(1, 1) };
    assert_eq!(launch(&with_slice(at), block, 8), [1.0; 8]);
}

/// What no type sees is promised. Where the promise is broken the simulator names the race, and some of it a checked build.
#[test]
fn a_broken_promise_is_found_when_it_runs() {
    let race = |text: &str, config: LaunchConfig| {
        let gpu = gpu();
        let kernel = gpu.compile(Source::rust(text)).unwrap_or_else(|error| panic!("{error}")).kernel("k").unwrap();
        let mut x = gpu.zeros::<f32>(64).unwrap();
        kernel.launch(config, (&mut x, 64_u32)).unwrap_err().to_string()
    };
    let own = with_slice("    if let Some(c) = c.own(index_1d()) { *c = thread_y() as f32 }");
    let of_block = with_slice("    if let Some(c) = c.own_of_block() { *c = thread_y() as f32 }");
    // Threads along y have the same indices along x.
    let plane = LaunchConfig { grid: (2, 1, 1), block: (16, 2, 1), ..LaunchConfig::new(1, 1) };
    for text in [&own, &of_block] {
        let said = race(text, plane);
        assert!(said.contains("data race in global memory") && said.contains("kernel.rs:5"), "{said}");
        let gpu = gpu();
        let checked = gpu.compile(Source::rust(text).checked()).unwrap().kernel("k").unwrap();
        let mut x = gpu.zeros::<f32>(64).unwrap();
        let said = checked.launch(plane, (&mut x, 64_u32)).unwrap_err().to_string();
        assert!(said.contains("panic") && said.contains("kernel.rs:5"), "{said}");
    }
    // Two slices of one buffer, each with its rule.
    let two = with_slice(
        "    if let Some(c) = c.own(index_1d()) { *c = 1.0 }
    let mut d = unsafe { DisjointSlice::new(x, n as usize) };
    if let Some(d) = d.own_of_block() { *d = 2.0 }",
    );
    let said = race(&two, LaunchConfig::new(2, 32));
    assert!(said.contains("data race in global memory") && said.contains("kernel.rs:7"), "{said}");
}

/// The declaration stands outside of the function, where a name may mean less.
#[test]
fn a_shared_array_is_as_long_as_it_was_declared() {
    let text = format!(
        "{HEAD}    const LEN: usize = 4096;
    type Number = f64;
    let tile = shared!(TILE: [Number; LEN]);
    let _: SharedArray<f32> = tile;
    unsafe {{ *x = tile.len() as f32 + n as f32 }};
}}
const LEN: usize = 4;
type Number = f32;"
    );
    let module = gpu().compile(Source::rust(&text)).unwrap_or_else(|error| panic!("{error}"));
    let ptx = module.ptx().unwrap();
    assert!(ptx.contains(".shared .align 16 .b8 TILE[16];"), "{ptx}");
    assert_eq!(run(&text, "k", 1, 1, 1).unwrap(), [5.0]);
}
