//! The bytes that each rung on rows of bf16 asks memory for, as the simulator counts them (sectors of 32 bytes), are
//! those that its idea says: so many passes over the table, or over a weight for each number.

use gpulab_kernels::*;

/// A rung of that ladder: passes over the table that it reads, and writes; each of a weight and a bias, once a row, is a
/// pass that reads as well.
struct Passes {
    ladder: &'static str,
    rung: &'static str,
    reads: u64,
    writes: u64,
}

const fn passes(ladder: &'static str, rung: &'static str, reads: u64, writes: u64) -> Passes {
    Passes { ladder, rung, reads, writes }
}

/// Bytes of a bf16.
const NUMBER: u64 = 2;
/// Rows for each thread of two warps, of whole sectors, and for each thread of a block some numbers.
const SIZE: (usize, usize) = (64, 2048);

#[test]
fn every_rung_asks_for_as_many_bytes_as_its_idea_says() {
    // A thread a row: each lane's two bytes lie in a sector of their own.
    let apart = 32 / NUMBER;
    let table = [
        passes("softmax", "01_thread_a_row", 3 * apart, apart),
        passes("softmax", "02_block_a_row", 3, 1),
        passes("softmax", "03_online", 2, 1),
        passes("softmax", "04_eight_at_once", 2, 1),
        passes("softmax", "05_registers", 1, 1),
        passes("softmax", "06_block_as_long_as_row", 1, 1),
        passes("layer_norm", "01_two_passes", 3 + 2, 1),
        passes("layer_norm", "02_welford", 2 + 2, 1),
        passes("layer_norm", "03_eight_at_once", 2 + 2, 1),
        passes("layer_norm", "04_registers", 1 + 2, 1),
        passes("layer_norm", "05_block_as_long_as_row", 1 + 2, 1),
        passes("rms_norm", "01_block_a_row", 2 + 1, 1),
        passes("rms_norm", "02_eight_at_once", 2 + 1, 1),
        passes("rms_norm", "03_registers", 1 + 1, 1),
        passes("rms_norm", "04_block_as_long_as_row", 1 + 1, 1),
    ];
    for Passes { ladder, rung, reads, writes } in &table {
        let counters = Ladder::of(ladder).unwrap().inspect(rung, SIZE).unwrap().counters;
        let pass = (SIZE.0 * SIZE.1) as u64 * NUMBER;
        let bytes = [counters.global_load_sectors * 32, counters.global_store_sectors * 32];
        assert_eq!(bytes, [reads * pass, writes * pass], "{ladder}/{rung}: bytes read, and written");
    }
    for ladder in ["softmax", "layer_norm", "rms_norm"] {
        let known = table.iter().filter(|passes| passes.ladder == ladder).count();
        assert_eq!(known, Ladder::of(ladder).unwrap().rungs().len(), "each rung of {ladder} stands in the table");
    }
}
