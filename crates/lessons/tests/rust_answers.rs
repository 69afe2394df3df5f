//! Exercises that ask for a kernel take one in Rust, too: judged by the same checks, and told with its lines.

use gpulab_lessons::check::{self, Verdict};

fn passes(verdict: &Verdict) {
    assert!(verdict.passed(), "{}", verdict.text());
}

fn fails(verdict: &Verdict, words: &[&str]) {
    let text = verdict.text();
    assert!(!verdict.passed() && words.iter().all(|word| text.contains(word)), "{text}");
}

const SCALE: &str = r#"
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn scale(x: *const f32, y: *mut f32, n: i32) {
    // SAFETY: the launch has one dimension and passes buffers of n elements.
    let (x, mut y) = unsafe { (Slice::new(x, n as usize), DisjointSlice::new(y, n as usize)) };
    for i in grid_stride(n as usize) {
        if let Some(y) = y.own(i) {
            *y = 2.0 * x[i.get()];
        }
    }
}"#;

#[test]
fn scale_in_rust() {
    passes(&check::scale(SCALE));
    fails(&check::scale(&SCALE.replace("2.0 *", "3.0 *")), &["scale"]);
    fails(&check::scale(&SCALE.replace("x[i.get()]", "x[i.get() + 1]")), &["kernel.rs", "out of bounds"]);
    fails(&check::scale(&SCALE.replace("let (x,", "let (z,")), &["kernel.rs:10", "cannot index"]);
}

const ROW_SUMS: &str = r#"
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn row_sums(a: *const f32, sums: *mut f32, rows: i32) {
    let rows = rows as usize;
    // SAFETY: the launch has one dimension and passes rows of 32 elements, and a sum for each.
    let (a, mut sums) = unsafe { (Slice::new(a, rows * 32), DisjointSlice::new(sums, rows)) };
    let tile = shared!(TILE: [f32; 32 * 33]);
    let (lane, first) = (thread_x() as usize, block_x() as usize * 32);
    for row in 0..32 {
        if first + row < rows {
            tile.set(row * 33 + lane, a[(first + row) * 32 + lane]);
        }
    }
    sync_threads();
    if let Some(sums) = sums.own(index_1d()) {
        *sums = (0..32).map(|column| tile.get(lane * 33 + column)).sum();
    }
}"#;

#[test]
fn row_sums_in_rust() {
    passes(&check::row_sums(ROW_SUMS));
    fails(&check::row_sums(&ROW_SUMS.replace("33", "32")), &["conflict"]);
    fails(
        &check::row_sums(&ROW_SUMS.replace("    sync_threads();\n", "")),
        &["data race in shared memory", "kernel.rs"],
    );
}

const DOT: &str = r#"
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn dot(a: *const f32, b: *const f32, result: *mut f32, n: i32) {
    let n = n as usize;
    // SAFETY: the launch passes two buffers of n elements, and one that holds a number.
    let (a, b, result) = unsafe { (Slice::new(a, n), Slice::new(b, n), AtomicSlice::new(result, 1)) };
    let mut sum = 0.0_f32;
    for i in grid_stride(n) {
        sum = a[i.get()].fma(b[i.get()], sum);
    }
    sum = warp::sum(sum);
    if warp::lane() == 0 {
        result.add(0, sum, Scope::Device);
    }
}"#;

#[test]
fn dot_in_rust() {
    passes(&check::dot(DOT));
    let lost = DOT.replace(
        "result.add(0, sum, Scope::Device);",
        "let old = result.load(0); result.exchange(0, old + sum, Scope::Device);",
    );
    fails(&check::dot(&lost), &["kernel.rs"]);
}
