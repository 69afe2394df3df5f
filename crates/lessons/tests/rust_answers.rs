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

const GATHER_FOUR: &str = r#"
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn gather(table: *const f32, index: *const i32, out: *mut f32, count: i32, width: i32) {
    let (count, width) = (count as usize, width as usize);
    let (place, lane) = (index_1d().get() / 32, warp::lane() as usize);
    if place >= count {
        return;
    }
    // SAFETY: the launch passes an index for each place, rows of that width that the indices name, and room for a row in each place.
    unsafe {
        let (from, to) = (table.add(*index.add(place) as usize * width), out.add(place * width));
        if width % 4 == 0 {
            for k in (lane..width / 4).step_by(32) {
                // Number by number: copied as a whole it would be moved as two 64-bit words.
                let Vec4 { x, y, z, w } = *from.cast::<Vec4<f32>>().add(k);
                *to.cast::<Vec4<f32>>().add(k) = Vec4 { x, y, z, w };
            }
        } else {
            for k in (lane..width).step_by(32) {
                *to.add(k) = *from.add(k);
            }
        }
    }
}"#;

#[test]
fn gather_four_in_rust() {
    passes(&check::gather_four(GATHER_FOUR));
    fails(&check::gather_four(&GATHER_FOUR.replace("width % 4 == 0", "width % 2 == 0")), &["was never written"]);
    fails(&check::gather_four(&GATHER_FOUR.replace("width % 4 == 0", "false")), &["4.0 store instructions"]);
}

const SCATTER_ADD: &str = r#"
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn scatter_add(
    row: *const i32, position: *const i32, grad_out: *const f32, grad_table: *mut f32, count: i32, width: i32,
) {
    let (count, width) = (count as usize, width as usize);
    // SAFETY: the launch passes `count` entries; their rows and positions exist.
    let (row, position) = unsafe { (Slice::new(row, count), Slice::new(position, count)) };
    // A warp an entry; the first entry of a row adds up all of them, in the order of the list.
    let (e, lane) = (index_1d().get() / 32, warp::lane() as usize);
    if e >= count || e > 0 && row[e - 1] == row[e] {
        return;
    }
    for column in (lane..width).step_by(32) {
        // SAFETY: this warp alone has the row, and this lane the column.
        let own = unsafe { &mut *grad_table.add(row[e] as usize * width + column) };
        let mut sum = *own;
        for k in (e..count).take_while(|&k| row[k] == row[e]) {
            // SAFETY: the position exists.
            sum += unsafe { *grad_out.add(position[k] as usize * width + column) };
        }
        *own = sum;
    }
}"#;

#[test]
fn scatter_add_in_rust() {
    let launch = |count: usize, _| gpulab::launch::LaunchConfig::for_elements(32 * count, 128);
    passes(&check::scatter_add(SCATTER_ADD, launch));
    let all = SCATTER_ADD.replace(" || e > 0 && row[e - 1] == row[e]", "");
    fails(&check::scatter_add(&all, launch), &["kernel.rs", "race"]);
}

const LOG_SUM_EXP: &str = r#"
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn log_sum_exp(x: *const f32, y: *mut f32, rows: i32, columns: i32) {
    let (rows, columns) = (rows as usize, columns as usize);
    // SAFETY: the launch has one dimension and passes a table of that shape, and a number for each row.
    let (x, mut y) = unsafe { (Slice::new(x, rows * columns), DisjointSlice::new(y, rows)) };
    let exp = |x: f32| (x * core::f32::consts::LOG2_E).exp2_approx();
    let row = index_1d();
    if let Some(y) = y.own(row) {
        let (mut most, mut sum) = (f32::MIN, 0.0);
        for column in 0..columns {
            let own = x[column * rows + row.get()];
            let larger = most.max(own);
            sum = sum * exp(most - larger) + exp(own - larger);
            most = larger;
        }
        *y = most + sum.log2_approx() * core::f32::consts::LN_2;
    }
}"#;

const ADD_RMS_NORM: &str = r#"
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn add_rms_norm(
    x: *const f32, r: *const f32, weight: *const f32, s: *mut f32, y: *mut f32, columns: i32, eps: f32,
) {
    let (t, columns) = (thread_x() as usize, columns as usize);
    let (row, all) = (block_x() as usize * columns, blocks_x() as usize * columns);
    // SAFETY: the launch passes four tables of a row for each block, and a weight for each column.
    let (x, r, weight) = unsafe { (Slice::new(x, all), Slice::new(r, all), Slice::new(weight, columns)) };
    // SAFETY: as above.
    let (mut s, mut y) = unsafe { (DisjointSlice::new(s, all), DisjointSlice::new(y, all)) };
    let squares = shared!(SQUARES: [f32; 8]);
    let mut kept = [0.0_f32; 16];
    let mut sum = 0.0;
    for k in 0..16 {
        let c = k * 256 + t;
        if c < columns {
            kept[k] = x[row + c] + r[row + c];
            // SAFETY: of this block's row, every 256-th number is this thread's.
            unsafe { *s.own_at(row + c) = kept[k] };
        }
        sum += kept[k] * kept[k];
    }
    sum = warp::sum(sum);
    if t % 32 == 0 {
        squares.set(t / 32, sum);
    }
    sync_threads();
    let sum: f32 = (0..8).map(|warp| squares.get(warp)).sum();
    let scale = (sum / columns as f32 + eps).rsqrt_approx();
    for k in 0..16 {
        let c = k * 256 + t;
        if c < columns {
            // SAFETY: as above.
            unsafe { *y.own_at(row + c) = kept[k] * scale * weight[c] };
        }
    }
}"#;

#[test]
fn the_exercises_of_lesson_14_in_rust() {
    passes(&check::log_sum_exp(LOG_SUM_EXP));
    fails(&check::log_sum_exp(&LOG_SUM_EXP.replace("f32::MIN", "0.0_f32")), &["numbers around"]);
    passes(&check::add_rms_norm(ADD_RMS_NORM));
    fails(&check::add_rms_norm(&ADD_RMS_NORM.replace("    sync_threads();\n", "")), &["data race", "kernel.rs"]);
}
