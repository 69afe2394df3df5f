//! The table against the folder, and what follows from it.

use super::*;
use gpulab::launch::signatures;
use std::collections::BTreeSet;

#[test]
fn the_table_and_the_folder_agree() {
    let paths = RUNGS.iter().map(|rung| rung.path).chain(OPERATORS.iter().map(|operator| operator.path));
    let table: BTreeSet<String> = paths.map(str::to_string).collect();
    assert_eq!(table, files("cu"));
}

/// Paths of the files with this extension, without it.
fn files(wanted: &str) -> BTreeSet<String> {
    let mut files = BTreeSet::new();
    for topic in std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(topic).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|extension| extension == wanted) {
                let topic = path.parent().unwrap().file_name().unwrap().to_string_lossy().into_owned();
                files.insert(format!("{topic}/{}", path.file_stem().unwrap().to_string_lossy()));
            }
        }
    }
    files
}

#[test]
fn a_launch_covers_all_elements_and_old_gpus_are_refused() {
    let tiles = Rung { tile: (1024, 1), ..PLAIN };
    assert_eq!([0, 1, 1024, 1025].map(|n| tiles.launch(n, 1, 132).grid), [1, 1, 1, 2].map(|blocks| (blocks, 1, 1)));
    let walking = Rung { blocks_per_sm: 2, ..tiles };
    assert_eq!([1, 1 << 20].map(|n| walking.launch(n, 1, 132).grid.0), [1, 264]);
    // Where nobody knows how many multiprocessors there are, blocks walk all the same.
    assert_eq!(walking.launch(1 << 20, 1, 0).grid.0, 64);
    let clusters = Rung { tile: (256, 128), cluster: 2, ..PLAIN };
    assert_eq!([(1, 1), (512, 384)].map(|(n, m)| clusters.launch(n, m, 132).grid), [(1, 2, 1), (2, 4, 1)]);
    let walking = Rung { blocks_per_sm: 1, ..clusters };
    assert_eq!([1, 5].map(|sms| walking.launch(512, 384, sms).grid), [(2, 1, 1), (4, 1, 1)]);
    let row = Rung { tile: (WHOLE_ROW, 1), ..PLAIN };
    assert_eq!([(0, 0), (1, 3), (8192, 100_000)].map(|(n, m)| row.launch(n, m, 132).grid.0), [1, 3, 100_000]);
    let long = Rung { each_thread: 32, block: (1024, 1), ..row };
    let threads = [0, 1, 1024, 1025, 8192, 1 << 30].map(|n| long.launch(n, 3, 132).block.0);
    assert_eq!((threads, long.launch(1, 3, 132).grid.0), ([32, 32, 32, 64, 256, 1024], 3));
    let only = Rung { path: "a/b", needs: (9, 0), only: true, ..PLAIN };
    assert_eq!(only.runs_on((9, 0)), Ok(()));
    assert!(only.runs_on((10, 0)).unwrap_err().to_string().contains("9.0 and no other, this one has 10.0"));
    let hopper = Rung { path: "a/b", needs: (9, 0), ..PLAIN };
    assert_eq!((hopper.runs_on((9, 0)), hopper.runs_on((10, 0))), (Ok(()), Ok(())));
    let text = hopper.runs_on((8, 9)).unwrap_err().to_string();
    assert!(text.contains("`a/b` needs a GPU of compute capability 9.0, this one has 8.9"), "{text}");
    // No thread of a full tile is idle.
    let product = |(x, y): (u32, u32)| u64::from(x) * u64::from(y);
    assert!(RUNGS.iter().all(|rung| product(rung.tile) >= product(rung.block)));
}

#[test]
fn every_file_declares_its_kernel_and_begins_with_its_three_lines() {
    for rung in RUNGS {
        let text = rung.source().unwrap().text;
        assert!(signatures(&text).iter().any(|signature| signature.name == rung.kernel), "{}", rung.path);
        let heads: Vec<&str> = text.lines().take(3).filter_map(|line| line.split(':').next()).collect();
        assert_eq!(heads, ["// idea", "// changed", "// constants"], "{}", rung.path);
    }
}

#[test]
fn operators_declare_their_kernels_and_begin_with_their_two_lines() {
    for operator in OPERATORS {
        let text = operator.source().unwrap().text;
        let declared: Vec<String> = signatures(&text).into_iter().map(|signature| signature.name).collect();
        assert!(!operator.kernels.is_empty(), "{}", operator.path);
        for kernel in operator.kernels {
            assert!(declared.iter().any(|name| name == kernel), "{}: no kernel {kernel}: {declared:?}", operator.path);
        }
        let heads: Vec<&str> = text.lines().take(2).filter_map(|line| line.split(':').next()).collect();
        assert_eq!(heads, ["// idea", "// constants"], "{}", operator.path);
        // A number stands for a place on a ladder, and warpsim's hardware table asks for a launch of each rung.
        assert!(!operator.path.split('/').next_back().unwrap().starts_with(|c: char| c.is_ascii_digit()));
    }
    assert!(operator("table/none").unwrap_err().to_string().contains("no operators `table/none`"));
}
