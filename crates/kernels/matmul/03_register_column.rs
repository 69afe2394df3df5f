// idea: a thread computes ROWS elements of one column, so a value of b, once read, serves ROWS multiply-adds.
use gpulab_device::*;

const THREADS: usize = TILE_M * TILE_N / ROWS;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn matmul(a: *const f32, b: *const f32, c: *mut f32, m: i32, n: i32, k: i32) {
    let (m, n, k) = (m as usize, n as usize, k as usize);
    // SAFETY: the launch passes matrices of these shapes; c is a buffer of its own.
    let (a, b, mut c) = unsafe { (Slice::new(a, m * k), Slice::new(b, k * n), DisjointSlice::new(c, m * n)) };
    let a_tile = shared!(A_TILE: [f32; TILE_M * TILE_K]);
    let b_tile = shared!(B_TILE: [f32; TILE_K * TILE_N]);
    let (row0, column0) = (block_y() as usize * TILE_M, block_x() as usize * TILE_N);
    let thread = thread_x() as usize;
    let (thread_row, thread_column) = (thread / TILE_N * ROWS, thread % TILE_N);
    let mut sum = [0.0; ROWS];
    for k0 in (0..k).step_by(TILE_K) {
        for iteration in 0..TILE_M * TILE_K / THREADS {
            let i = thread + iteration * THREADS;
            let (row, k_a) = (row0 + i / TILE_K, k0 + i % TILE_K);
            // Beyond the matrix stand zeros, which add nothing.
            a_tile.set(i, if row < m && k_a < k { a[row * k + k_a] } else { 0.0 });
        }
        for iteration in 0..TILE_K * TILE_N / THREADS {
            let i = thread + iteration * THREADS;
            let (k_b, column) = (k0 + i / TILE_N, column0 + i % TILE_N);
            b_tile.set(i, if k_b < k && column < n { b[k_b * n + column] } else { 0.0 });
        }
        sync_threads();
        for i in 0..TILE_K {
            let y = b_tile.get(i * TILE_N + thread_column);
            for r in 0..ROWS {
                sum[r] = a_tile.get((thread_row + r) * TILE_K + i).fma(y, sum[r]);
            }
        }
        sync_threads();
    }
    for r in 0..ROWS {
        let (row, column) = (row0 + thread_row + r, column0 + thread_column);
        if row < m && column < n {
            // SAFETY: inside of c; tiles of blocks, and columns of threads in them, do not overlap.
            unsafe { *c.own_at(row * n + column) = sum[r] };
        }
    }
}
