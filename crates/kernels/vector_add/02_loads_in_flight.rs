// idea: a thread asks for all its elements before it uses the first, so that many loads are in flight.
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn vector_add(a: *const f32, b: *const f32, c: *mut f32, n: i32) {
    let n = n as usize;
    // SAFETY: the launch has one dimension and passes buffers of n elements; c is a buffer of its own.
    let (a, b, mut c) = unsafe { (Slice::new(a, n), Slice::new(b, n), DisjointSlice::new(c, n)) };
    // Neighbouring threads still touch neighbouring elements; a thread's own lie THREADS apart.
    let first = block_x() as usize * (EACH * THREADS) + thread_x() as usize;
    if first + (EACH - 1) * THREADS < n {
        let x: [f32; EACH] = core::array::from_fn(|v| a[first + v * THREADS]);
        let y: [f32; EACH] = core::array::from_fn(|v| b[first + v * THREADS]);
        for v in 0..EACH {
            // SAFETY: below n, as was just asked; a thread's elements lie THREADS apart, and its block is THREADS long.
            unsafe { *c.own_at(first + v * THREADS) = x[v] + y[v] };
        }
    } else {
        // The last tile is not full.
        for i in (first..n).step_by(THREADS) {
            // SAFETY: as above.
            unsafe { *c.own_at(i) = a[i] + b[i] };
        }
    }
}
