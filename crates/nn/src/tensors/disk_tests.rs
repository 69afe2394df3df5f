use super::*;

/// Writes them in pieces of that length, and reads them back.
fn round_trip(path: &Path, length: usize, piece: usize, shifted: bool) {
    let bytes: Vec<u8> = (0..length as u64).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut disk = Disk::create(path).unwrap();
    disk.start += usize::from(shifted);
    bytes.chunks(piece).for_each(|piece| disk.write_all(piece).unwrap());
    disk.finish().unwrap();
    assert!(std::fs::read(path).unwrap() == bytes, "{length} by {piece} to {}", path.display());
    std::fs::remove_file(path).unwrap();
}

fn path(folder: &Path, name: &str) -> PathBuf {
    folder.join(format!("gpulab-disk-{name}-{}", std::process::id()))
}

#[test]
fn bytes_come_back_whatever_their_count_and_pieces() {
    let path = path(&std::env::temp_dir(), "pieces");
    for length in [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 12_345] {
        for piece in [1000, BLOCK - 1, 3 * BLOCK] {
            round_trip(&path, length, piece, false);
        }
    }
}

#[test]
fn where_a_block_is_refused_the_cache_takes_it() {
    // Memory on an odd place is what disks refuse.
    round_trip(&path(&std::env::temp_dir(), "odd"), 2 * BLOCK + 1, BLOCK, true);
    // A file system in memory has nothing but the cache.
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        round_trip(&path(memory, "memory"), 2 * BLOCK + 1, BLOCK, false);
    }
}
