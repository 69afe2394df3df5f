// idea: every thread adds its element to one number in memory; the atomic addition makes the threads take turns.
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn reduce(a: *const f32, partial: *mut f32, n: i32) {
    // SAFETY: the launch passes a buffer of n elements, and one that holds a number at least.
    let (a, sum) = unsafe { (Slice::new(a, n as usize), AtomicSlice::new(partial, 1)) };
    if let Some(x) = a.get(index_1d().get()) {
        sum.add(0, *x, Scope::Device);
    }
}
