// idea: the threads of a block share one row, so neighbouring threads read neighbouring numbers.
use gpulab_device::*;

const WARPS: usize = THREADS / 32;

/// exp(x) is 2 to the power of x · log2(e), which the hardware computes.
fn exp(x: f32) -> f32 {
    (x * core::f32::consts::LOG2_E).exp2_approx()
}

/// What `join` makes of the numbers of all threads of the block, in every thread. `place` is for one call alone: nobody waits
/// until all have read it.
fn of_block(own: f32, place: SharedArray<f32>, join: impl Fn(f32, f32) -> f32) -> f32 {
    let mut joined = own;
    let mut lanes = 16;
    while lanes > 0 {
        joined = join(joined, warp::shuffle_xor(warp::ALL, joined, lanes));
        lanes /= 2;
    }
    let thread = thread_x() as usize;
    if thread % 32 == 0 {
        place.set(thread / 32, joined);
    }
    sync_threads();
    let mut joined = place.get(0);
    for warp in 1..WARPS {
        joined = join(joined, place.get(warp));
    }
    joined
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn softmax(x: *const Bf16, y: *mut Bf16, rows: i32, columns: i32) {
    let (rows, columns) = (rows as usize, columns as usize);
    // SAFETY: the launch has one dimension and passes two tables of that shape, with a block for each row.
    let (x, mut y) = unsafe { (Slice::new(x, rows * columns), DisjointSlice::new(y, rows * columns)) };
    let (mosts, sums) = (shared!(MOSTS: [f32; WARPS]), shared!(SUMS: [f32; WARPS]));
    let row = block_x() as usize * columns;
    let own = || (row + thread_x() as usize..row + columns).step_by(THREADS);
    // Below every bf16, and finite: exp(-infinity - f32::MIN) is 0, where -infinity - -infinity were no number.
    let mut most = f32::MIN;
    for i in own() {
        most = most.max(x[i].to_f32());
    }
    let most = of_block(most, mosts, f32::max);
    // Without `most`, exp of a number above 88 is infinite. With it the largest number adds exp(0) = 1.
    let mut sum = 0.0;
    for i in own() {
        sum += exp(x[i].to_f32() - most);
    }
    let scale = 1.0 / of_block(sum, sums, |a, b| a + b);
    for i in own() {
        // SAFETY: of this block's row, every THREADS-th number is this thread's.
        unsafe { *y.own_at(i) = Bf16::from_f32(exp(x[i].to_f32() - most) * scale) };
    }
}
