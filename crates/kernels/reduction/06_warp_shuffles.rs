// idea: the threads of a warp hand their sums over in registers, with no shared memory and no barrier.
use gpulab_device::*;

/// The sum over the block, in its first thread.
fn block_sum(sum: f32) -> f32 {
    let sums = shared!(SUMS: [f32; THREADS / 32]);
    let thread = thread_x() as usize;
    let sum = warp::sum(sum);
    if thread % 32 == 0 {
        sums.set(thread / 32, sum);
    }
    sync_threads();
    if thread < 32 {
        return warp::sum(if thread < THREADS / 32 { sums.get(thread) } else { 0.0 });
    }
    sum
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn reduce(a: *const f32, partial: *mut f32, n: i32) {
    // SAFETY: the launch has one dimension and passes a buffer of n elements, and another with one for each block.
    let (a, mut partial) = unsafe { (Slice::new(a, n as usize), DisjointSlice::new(partial, blocks_x() as usize)) };
    let i = block_x() as usize * (2 * THREADS) + thread_x() as usize;
    // Beyond the array stand zeros, which add nothing.
    let element = |i| a.get(i).copied().unwrap_or(0.0);
    let sum = block_sum(element(i) + element(i + THREADS));
    if let Some(partial) = partial.own_of_block() {
        *partial = sum;
    }
}
