// idea: a block adds its elements in shared memory, pair by pair, then pairs of pairs: log2(THREADS) steps, no atomics.
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn reduce(a: *const f32, partial: *mut f32, n: i32) {
    // SAFETY: the launch has one dimension and passes a buffer of n elements, and another with one for each block.
    let (a, mut partial) = unsafe { (Slice::new(a, n as usize), DisjointSlice::new(partial, blocks_x() as usize)) };
    let sums = shared!(SUMS: [f32; THREADS]);
    let thread = thread_x() as usize;
    let i = block_x() as usize * THREADS + thread;
    // Beyond the array stand zeros, which add nothing.
    sums.set(thread, a.get(i).copied().unwrap_or(0.0));
    sync_threads();
    let mut distance = 1;
    while distance < THREADS {
        // Every second thread of a warp works, then every fourth: the others wait in the same warp.
        if thread % (2 * distance) == 0 {
            sums.set(thread, sums.get(thread) + sums.get(thread + distance));
        }
        sync_threads();
        distance *= 2;
    }
    if let Some(partial) = partial.own_of_block() {
        *partial = sums.get(0);
    }
}
