// idea: a's tile lies transposed in shared memory, so a thread reads its values of a, too, 16 bytes at a time.
use gpulab_device::*;

const THREADS: usize = TILE_M * TILE_N / (ROWS * COLUMNS);
/// A row of the transposed tile: 4 longer, so that its writes fall into different banks.
const LONG: usize = TILE_M + 4;

launch_bounds!(matmul, THREADS);

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn matmul(a: *const f32, b: *const f32, c: *mut f32, m: i32, n: i32, k: i32) {
    // A row or a column is a u32, and only the index of an element a usize, which takes two registers: were all of them usize,
    // LLVM would keep so many in registers that none is left to load the next x and y while these are multiplied.
    let (m, n, k) = (m as u32, n as u32, k as u32);
    let at = |row: u32, width: u32, column: u32| row as usize * width as usize + column as usize;
    // SAFETY: the launch passes matrices of these shapes (row m would begin behind a's last element); c is a buffer of its own.
    let (a, b, mut c) =
        unsafe { (Slice::new(a, at(m, k, 0)), Slice::new(b, at(k, n, 0)), DisjointSlice::new(c, at(m, n, 0))) };
    let a_tile = shared!(A_TILE: [f32; TILE_K * LONG]);
    let b_tile = shared!(B_TILE: [f32; TILE_K * TILE_N]);
    let (row0, column0) = (block_y() * TILE_M as u32, block_x() * TILE_N as u32);
    // SAFETY: shared arrays begin at multiples of 16 bytes, and all threads write floats.
    let (a_fours, b_fours) = unsafe { (a_tile.view::<Vec4<f32>>(), b_tile.view::<Vec4<f32>>()) };
    let thread = thread_x() as usize;
    let thread_row = thread / (TILE_N / COLUMNS) * ROWS;
    let thread_column = thread % (TILE_N / COLUMNS) * COLUMNS;
    let mut sum = [[0.0; COLUMNS]; ROWS];
    for k0 in (0..k).step_by(TILE_K) {
        for iteration in 0..TILE_M * TILE_K / THREADS {
            let i = thread + iteration * THREADS;
            let (row, k_a) = (row0 + (i / TILE_K) as u32, k0 + (i % TILE_K) as u32);
            // Beyond the matrix stand zeros, which add nothing.
            a_tile.set(i % TILE_K * LONG + i / TILE_K, if row < m && k_a < k { a[at(row, k, k_a)] } else { 0.0 });
        }
        for iteration in 0..TILE_K * TILE_N / THREADS {
            let i = thread + iteration * THREADS;
            let (k_b, column) = (k0 + (i / TILE_N) as u32, column0 + (i % TILE_N) as u32);
            b_tile.set(i, if k_b < k && column < n { b[at(k_b, n, column)] } else { 0.0 });
        }
        sync_threads();
        for i in 0..TILE_K {
            let x: [Vec4<f32>; ROWS / 4] = core::array::from_fn(|r| a_fours.get((i * LONG + thread_row) / 4 + r));
            let y: [Vec4<f32>; COLUMNS / 4] = core::array::from_fn(|s| b_fours.get((i * TILE_N + thread_column) / 4 + s));
            for r in 0..ROWS {
                for s in 0..COLUMNS {
                    sum[r][s] = x[r / 4][r % 4].fma(y[s / 4][s % 4], sum[r][s]);
                }
            }
        }
        sync_threads();
    }
    for r in 0..ROWS {
        for s in 0..COLUMNS {
            let (row, column) = (row0 + (thread_row + r) as u32, column0 + (thread_column + s) as u32);
            if row < m && column < n {
                // SAFETY: inside of c; tiles of blocks, and tiles of threads in them, do not overlap.
                unsafe { *c.own_at(at(row, n, column)) = sum[r][s] };
            }
        }
    }
}
