// idea: one thread computes one element of c = a × b, reading a whole row and a whole column from global memory.
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn matmul(a: *const f32, b: *const f32, c: *mut f32, m: i32, n: i32, k: i32) {
    let (m, n, k) = (m as usize, n as usize, k as usize);
    // SAFETY: the launch has two dimensions and passes matrices of these shapes; c is a buffer of its own.
    let (a, b, mut c) = unsafe { (Slice::new(a, m * k), Slice::new(b, k * n), DisjointSlice::new_2d(c, m, n)) };
    let at = index_2d();
    if let Some(c) = c.own_2d(at) {
        let mut sum = 0.0;
        for i in 0..k {
            sum = a[at.row() * k + i].fma(b[i * n + at.column()], sum);
        }
        *c = sum;
    }
}
