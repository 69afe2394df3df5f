// idea: the order of 16-byte pieces in a row of shared memory depends on the row, so that no two fall into one bank.
use gpulab_device::tensor::*;
use gpulab_device::*;

/// Where 8 numbers of a tile lie: rows of 64 numbers, their eight pieces in an order that depends on the row.
fn swizzled(row: usize, piece: usize) -> usize {
    row * 64 + (piece ^ row % 8) * 8
}

/// Copies 8 numbers of every STEP-th of ROWS rows to shared memory, where rows are 64 apart. `rows` rows and `columns` columns
/// from here lie in the matrix: beyond stand zeros. Where all rows begin at multiples of 16 bytes, a copy is one instruction.
///
/// # Safety
/// So many rows of `length` numbers lie behind `from`, and the tile has room for ROWS rows from `to` on.
#[inline(always)]
unsafe fn copy_8<const ROWS: usize, const STEP: usize>(
    tile: SharedArray<Bf16>, to: usize, from: *const Bf16, length: usize, rows: i32, columns: i32,
) {
    if length % 8 == 0 {
        // The condition on columns once, and not in each copy: ptxas then makes a predicate of the copy's size.
        let rows = if columns > 0 { rows } else { 0 };
        for row in (0..ROWS).step_by(STEP) {
            let from = from.wrapping_add(row * length);
            // SAFETY: the caller's; rows of whole eights begin at multiples of 16 bytes.
            unsafe { copy_16_async_or_zeros(tile, to + row * 64, from, (row as i32) < rows) };
        }
    } else {
        // Unrolled, this would be most of the loop over steps, and where rows are whole eights nothing of it is executed.
        for row in rolled(0..ROWS, STEP) {
            for i in 0..8 {
                let there = (row as i32) < rows && (i as i32) < columns;
                // SAFETY: the caller's.
                let x = if there { unsafe { *from.wrapping_add(row * length).add(i) } } else { Bf16(0) };
                tile.set(to + row * 64 + i, x);
            }
        }
    }
}

/// Two neighbours of a row of c; one store where they are aligned.
///
/// # Safety
/// c has m rows of n, and they are this thread's alone.
#[inline(always)]
unsafe fn store_2(c: *mut Bf16, row: usize, column: usize, m: usize, n: usize, sums: [f32; 2]) {
    let (to, pair) = (c.wrapping_add(row * n + column), sums.map(Bf16::from_f32));
    if row < m && column + 1 < n && n % 2 == 0 {
        // SAFETY: both are in the row, and an even element begins at a multiple of 4 bytes.
        unsafe { *to.cast::<u32>() = u32::from(pair[0].0) | u32::from(pair[1].0) << 16 };
    } else if row < m && column < n {
        // SAFETY: in the row, as just asked.
        unsafe { *to = pair[0] };
        if column + 1 < n {
            // SAFETY: as above.
            unsafe { *to.add(1) = pair[1] };
        }
    }
}

const A_STAGE: usize = TILE_M * TILE_K;
const B_STAGE: usize = TILE_K * TILE_N;

launch_bounds!(matmul_bf16, 256, 1);

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn matmul_bf16(a: *const Bf16, b: *const Bf16, c: *mut Bf16, m: i32, n: i32, k: i32) {
    let (m, n, k) = (m as usize, n as usize, k as usize);
    // All stages of a, then those of b, each of them TILE_N / 64 panels of 64 columns.
    let tiles = shared!([Bf16]);
    let (row0, column0) = (block_y() as usize * TILE_M, block_x() as usize * TILE_N);
    let (thread, lane, warp) = (thread_x() as usize, thread_x() as usize % 32, thread_x() as usize / 32);
    let (warp_row, warp_column) = (warp / (TILE_N / WARP_N) * WARP_M, warp % (TILE_N / WARP_N) * WARP_N);
    let mut sum = [[[0.0_f32; 4]; WARP_N / 8]; WARP_M / 16];
    // The block copies 32 rows of a at once, 16 bytes per thread, and 2048 / TILE_N rows of b.
    let (a_row, a_piece) = (thread / 8, thread % 8);
    let (b_row, b_piece) = (thread / (TILE_N / 8), thread % (TILE_N / 8));
    let a_from = a.wrapping_add((row0 + a_row) * k + a_piece * 8);
    let b_from = b.wrapping_add(b_row * n + column0 + b_piece * 8);
    let a_at = |stage: usize| stage * A_STAGE;
    let b_at = |stage: usize, panel: usize| STAGES * A_STAGE + stage * B_STAGE + panel * (TILE_K * 64);
    let left = |whole: usize, before: usize| whole as i32 - before as i32;
    let load = |step: usize| {
        let (stage, k0) = (step % STAGES, step * TILE_K);
        if k0 < k {
            // SAFETY: the launch passes matrices of these shapes, and shared memory for all stages.
            unsafe {
                let (to, from) = (a_at(stage) + swizzled(a_row, a_piece), a_from.wrapping_add(k0));
                copy_8::<TILE_M, 32>(tiles, to, from, k, left(m, row0 + a_row), left(k, k0 + a_piece * 8));
                let (to, from) = (b_at(stage, b_piece / 8) + swizzled(b_row, b_piece % 8), b_from.wrapping_add(k0 * n));
                copy_8::<TILE_K, { 2048 / TILE_N }>(tiles, to, from, n, left(k, k0 + b_row), left(n, column0 + b_piece * 8));
            }
        }
        commit_copies();
    };
    for step in 0..STAGES - 1 {
        load(step);
    }
    for step in 0..k.div_ceil(TILE_K) {
        let stage = step % STAGES;
        copies_done::<{ STAGES as u32 - 2 }>();
        // This step's tiles are here, and everyone is done with the stage that is filled next.
        sync_threads();
        load(step + STAGES - 1);
        for part in (0..TILE_K).step_by(16) {
            let a_part: [[u32; 4]; WARP_M / 16] = core::array::from_fn(|y| {
                let row = warp_row + y * 16 + lane % 16;
                load_matrices(tiles, a_at(stage) + swizzled(row, part / 8 + lane / 16))
            });
            for x in 0..WARP_N / 16 {
                // b's rows lie along n, the instruction wants columns: ldmatrix transposes on the way.
                let piece = warp_column / 8 + x * 2 + lane / 16;
                let at = b_at(stage, piece / 8) + swizzled(part + lane % 16, piece % 8);
                let [b0, b1, b2, b3] = load_matrices_transposed(tiles, at);
                for y in 0..WARP_M / 16 {
                    sum[y][x * 2] = mma(a_part[y], [b0, b1], sum[y][x * 2]);
                    sum[y][x * 2 + 1] = mma(a_part[y], [b2, b3], sum[y][x * 2 + 1]);
                }
            }
        }
    }
    // A thread holds pairs of columns, of two rows eight apart.
    for y in 0..WARP_M / 16 {
        for x in 0..WARP_N / 8 {
            let row = row0 + warp_row + y * 16 + lane / 4;
            let column = column0 + warp_column + x * 8 + lane % 4 * 2;
            let [first, second, third, fourth] = sum[y][x];
            // SAFETY: c is of this shape, and no two threads have the same rows and columns.
            unsafe {
                store_2(c, row, column, m, n, [first, second]);
                store_2(c, row + 8, column, m, n, [third, fourth]);
            }
        }
    }
}
