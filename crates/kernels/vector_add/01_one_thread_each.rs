// idea: one thread adds one pair of elements, c[i] = a[i] + b[i].
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn vector_add(a: *const f32, b: *const f32, c: *mut f32, n: i32) {
    let n = n as usize;
    // SAFETY: the launch has one dimension and passes buffers of n elements; c is a buffer of its own.
    let (a, b, mut c) = unsafe { (Slice::new(a, n), Slice::new(b, n), DisjointSlice::new(c, n)) };
    let i = index_1d();
    // The last block has threads to spare.
    if let Some(c) = c.own(i) {
        *c = a[i.get()] + b[i.get()];
    }
}
