// idea: a thread adds two elements as it loads them: half as many blocks, barriers and partial sums.
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn reduce(a: *const f32, partial: *mut f32, n: i32) {
    // SAFETY: the launch has one dimension and passes a buffer of n elements, and another with one for each block.
    let (a, mut partial) = unsafe { (Slice::new(a, n as usize), DisjointSlice::new(partial, blocks_x() as usize)) };
    let sums = shared!(SUMS: [f32; THREADS]);
    let thread = thread_x() as usize;
    let i = block_x() as usize * (2 * THREADS) + thread;
    // Beyond the array stand zeros, which add nothing.
    let element = |i| a.get(i).copied().unwrap_or(0.0);
    sums.set(thread, element(i) + element(i + THREADS));
    sync_threads();
    let mut distance = THREADS / 2;
    while distance > 0 {
        // Neighbouring threads read neighbouring words: each bank is asked once.
        if thread < distance {
            sums.set(thread, sums.get(thread) + sums.get(thread + distance));
        }
        sync_threads();
        distance /= 2;
    }
    if let Some(partial) = partial.own_of_block() {
        *partial = sums.get(0);
    }
}
