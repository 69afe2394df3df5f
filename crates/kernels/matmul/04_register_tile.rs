// idea: a thread computes ROWS × COLUMNS elements: ROWS + COLUMNS reads serve ROWS · COLUMNS multiply-adds.
use gpulab_device::*;

const THREADS: usize = TILE_M * TILE_N / (ROWS * COLUMNS);

launch_bounds!(matmul, THREADS);

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn matmul(a: *const f32, b: *const f32, c: *mut f32, m: i32, n: i32, k: i32) {
    let (m, n, k) = (m as usize, n as usize, k as usize);
    // SAFETY: the launch passes matrices of these shapes; c is a buffer of its own.
    let (a, b, mut c) = unsafe { (Slice::new(a, m * k), Slice::new(b, k * n), DisjointSlice::new(c, m * n)) };
    let a_tile = shared!(A_TILE: [f32; TILE_M * TILE_K]);
    let b_tile = shared!(B_TILE: [f32; TILE_K * TILE_N]);
    let (row0, column0) = (block_y() as usize * TILE_M, block_x() as usize * TILE_N);
    let thread = thread_x() as usize;
    let thread_row = thread / (TILE_N / COLUMNS) * ROWS;
    let thread_column = thread % (TILE_N / COLUMNS) * COLUMNS;
    let mut sum = [[0.0; COLUMNS]; ROWS];
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
            let x: [f32; ROWS] = core::array::from_fn(|r| a_tile.get((thread_row + r) * TILE_K + i));
            let y: [f32; COLUMNS] = core::array::from_fn(|s| b_tile.get(i * TILE_N + thread_column + s));
            for r in 0..ROWS {
                for s in 0..COLUMNS {
                    sum[r][s] = x[r].fma(y[s], sum[r][s]);
                }
            }
        }
        sync_threads();
    }
    for r in 0..ROWS {
        for s in 0..COLUMNS {
            let (row, column) = (row0 + thread_row + r, column0 + thread_column + s);
            if row < m && column < n {
                // SAFETY: inside of c; tiles of blocks, and tiles of threads in them, do not overlap.
                unsafe { *c.own_at(row * n + column) = sum[r][s] };
            }
        }
    }
}
