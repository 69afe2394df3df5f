// idea: a block loads TILE × TILE pieces of a and of b into shared memory, where each value is used TILE times.
use gpulab_device::*;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn matmul(a: *const f32, b: *const f32, c: *mut f32, m: i32, n: i32, k: i32) {
    let (m, n, k) = (m as usize, n as usize, k as usize);
    // SAFETY: the launch has two dimensions and passes matrices of these shapes; c is a buffer of its own.
    let (a, b, mut c) = unsafe { (Slice::new(a, m * k), Slice::new(b, k * n), DisjointSlice::new_2d(c, m, n)) };
    let a_tile = shared!(A_TILE: [f32; TILE * TILE]);
    let b_tile = shared!(B_TILE: [f32; TILE * TILE]);
    let (x, y) = (thread_x() as usize, thread_y() as usize);
    let at = index_2d();
    let mut sum = 0.0;
    for k0 in (0..k).step_by(TILE) {
        let (k_a, k_b) = (k0 + x, k0 + y);
        // Beyond the matrix stand zeros, which add nothing.
        a_tile.set(y * TILE + x, if at.row() < m && k_a < k { a[at.row() * k + k_a] } else { 0.0 });
        b_tile.set(y * TILE + x, if k_b < k && at.column() < n { b[k_b * n + at.column()] } else { 0.0 });
        sync_threads();
        for i in 0..TILE {
            sum = a_tile.get(y * TILE + i).fma(b_tile.get(i * TILE + x), sum);
        }
        sync_threads();
    }
    if let Some(c) = c.own_2d(at) {
        *c = sum;
    }
}
