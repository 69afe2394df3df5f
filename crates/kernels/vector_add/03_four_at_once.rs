// idea: one thread loads, adds and stores four neighbouring elements: one instruction of 16 bytes in place of four.
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn vector_add(a: *const f32, b: *const f32, c: *mut f32, n: i32) {
    let (n, fours) = (n as usize, n as usize / 4);
    // SAFETY: the launch has one dimension and passes buffers of n elements, which begin at multiples of 16 bytes; c is a
    // buffer of its own. Its fours and its last elements do not overlap.
    let (a4, b4, mut c4) = unsafe {
        (Slice::new(a.cast::<Vec4<f32>>(), fours), Slice::new(b.cast::<Vec4<f32>>(), fours), DisjointSlice::new(c.cast::<Vec4<f32>>(), fours))
    };
    let i = index_1d();
    if let Some(c) = c4.own(i) {
        let (x, y) = (a4[i.get()], b4[i.get()]);
        *c = Vec4 { x: x.x + y.x, y: x.y + y.y, z: x.z + y.z, w: x.w + y.w };
    } else if i.get() == fours {
        // SAFETY: as above, and one thread has this number.
        let (a, b, mut c) = unsafe { (Slice::new(a, n), Slice::new(b, n), DisjointSlice::new(c.add(4 * fours), n - 4 * fours)) };
        for left in 4 * fours..n {
            // SAFETY: this thread alone is here.
            unsafe { *c.own_at(left - 4 * fours) = a[left] + b[left] };
        }
    }
}
