// idea: the same additions are made by the first threads of the block, so whole warps work and whole warps are done.
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
        // Thread 0 adds the first pair, thread 1 the second: neighbours in a warp, far apart in memory (bank conflicts).
        let first = 2 * distance * thread;
        if first < THREADS {
            sums.set(first, sums.get(first) + sums.get(first + distance));
        }
        sync_threads();
        distance *= 2;
    }
    if let Some(partial) = partial.own_of_block() {
        *partial = sums.get(0);
    }
}
