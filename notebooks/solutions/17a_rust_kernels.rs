// Solutions of lesson 17a: each section replaces the exercise cell of that name.

// exercise: transpose
const TRANSPOSE: &str = r#"use gpulab_device::*;

/// A row of the tile: 33 numbers, so that a column's words lie in 32 different banks.
const WIDE: usize = 33;

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn transpose(a: *const f32, out: *mut f32, rows: u32, columns: u32) {
    let (rows, columns) = (rows as usize, columns as usize);
    // SAFETY: the launch passes two different buffers of rows × columns numbers.
    let (a, mut out) = unsafe { (Slice::new(a, rows * columns), DisjointSlice::new(out, rows * columns)) };
    let tile = shared!(TILE: [f32; 32 * WIDE]);
    let (x, y) = (thread_x() as usize, thread_y() as usize);
    let (row0, column0) = (block_y() as usize * 32, block_x() as usize * 32);
    for step in (0..32).step_by(8) {
        let (row, column) = (row0 + y + step, column0 + x);
        if row < rows && column < columns {
            tile.set((y + step) * WIDE + x, a[row * columns + column]);
        }
    }
    sync_threads();
    // x runs along the rows of `out`, which are columns of `a`.
    for step in (0..32).step_by(8) {
        let (row, column) = (row0 + x, column0 + y + step);
        if row < rows && column < columns {
            // SAFETY: inside of out; no two blocks have one tile, and no two threads of a block one element of it.
            unsafe { *out.own_at(column * rows + row) = tile.get(x * WIDE + y + step) };
        }
    }
}"#;
fn transpose_launch(rows: usize, columns: usize) -> LaunchConfig {
    let (x, y) = (columns.div_ceil(32) as u32, rows.div_ceil(32) as u32);
    LaunchConfig { grid: (x, y, 1), block: (32, 8, 1), ..LaunchConfig::new(1, 1) }
}

// exercise: particle_sectors
// id at byte 0, mass at 8, charge at 16, 24 bytes in all: 32 of them are 768 bytes, and each of these 24 sectors holds a mass.
// With mass first 16 bytes and 16 sectors; with an array of masses alone 8.
let my_particle_sectors: Option<f64> = Some(24.0);

// exercise: diagnose_count
// Wrong counts are 256 too small for each thread that has counted 256: its count is one byte. Thread 0 meets its 256th element
// after 255 strides of 4 × 256, with element 255 × 1024 + 1.
let my_count_diagnosis: Option<(check::CountFault, f64)> = Some((check::CountFault::Overflow, 261_121.0));
