//! Every rung at awkward shapes, in the simulator; and what a lookup refuses.

use super::*;
use crate::Ladder;
use crate::ladder::{RUNGS, Rung};

fn rungs() -> impl Iterator<Item = &'static Rung> {
    RUNGS.iter().filter(|rung| rung.kernel == "embedding")
}

#[test]
fn every_rung_looks_up_any_shape_and_refuses_what_is_none() {
    let gpu = Gpu::simulated().unwrap();
    for rung in rungs() {
        let embedding = Embedding::new(&gpu, rung.path).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(embedding.lookup(&[1.0, 2.0, 3.0, 4.0], 2, &[1, 0, 1]).unwrap(), [3.0, 4.0, 1.0, 2.0, 3.0, 4.0]);
        assert!(embedding.lookup(&[], 2, &[]).unwrap().is_empty());
        for (table, width, index, text) in [
            (&[1.0; 4][..], 2, &[0, 1, 2][..], "the index at position 2 is 2: the table has rows 0 to 1"),
            (&[1.0; 4], 2, &[-1, 5], "the index at position 0 is -1"),
            (&[], 2, &[0], "the index at position 0 is 0: the table has no rows"),
            (&[1.0; 4], 0, &[0], "0 elements"),
            (&[1.0; 4], 3, &[0], "a table of rows of 3"),
        ] {
            let error = embedding.lookup(table, width, index).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("\nnext: "), "{error}");
        }
        let error = embedding.time(Size::Three(10, 8, 33), &Bench::default()).unwrap_err().to_string();
        assert!(error.contains("next: "), "{error}");
        let given = [HostArray::F32(vec![1.0; 8]), HostArray::Index(vec![0, 1])];
        let error = embedding.results(&given, Size::Three(2, 4, 3)).unwrap_err().to_string();
        assert!(error.contains("a lookup's `index`"), "{error}");
    }
    assert!(Embedding::new(&gpu, "embedding/99").unwrap_err().to_string().contains("embedding/01_"));
}

#[test]
fn a_size_of_two_numbers_is_one_of_three() {
    let size = Ladder::Embedding.size((131_072, 4096)).unwrap();
    assert_eq!(size, Size::Three(131_072, 4096, 32_768));
    assert!(Ladder::Embedding.size(7).unwrap_err().to_string().contains("next: give three numbers"));
    let rung = Embedding::new(&Gpu::simulated().unwrap(), "embedding/02_one_warp_a_row").unwrap();
    let work = rung.work(size).unwrap();
    // Rows of 16 KiB in and out, and their indices; 2 GiB of a table.
    assert_eq!((work.bytes, work.held - work.bytes), ((1 << 30) + (1 << 17), 1 << 31));
    assert!(rung.work(Size::Three(4, 4096, 1 << 20)).unwrap_err().to_string().contains("split the array"));
    assert!(rung.work(Size::Three(0, 4, 1)).unwrap_err().to_string().contains("0 rows"));
}

#[test]
fn a_wrong_row_and_a_number_where_nan_belongs_are_found() {
    let embedding = Embedding::new(&Gpu::simulated().unwrap(), "embedding/01_one_thread_each").unwrap();
    let inputs = [HostArray::F32(vec![1.0, 2.0, 3.0, 4.0]), HostArray::Index(vec![1, -1])];
    let exact = embedding.exact(&inputs, Size::Three(2, 2, 2)).unwrap();
    let wrong = |given: [f32; 4]| exact.iter().find_map(|piece| piece.wrong_in(&[HostArray::F32(given.to_vec())]));
    let (good, nan) = ([3.0, 4.0, f32::NAN, f32::NAN], f32::from_bits(u32::MAX));
    assert_eq!(wrong(good), None);
    for (at, value, text) in [
        (0, 1.0, "number 0 of output 0: 1 on the GPU, 3 exactly"),
        (1, f32::NAN, "number 1 of output 0: NaN on the GPU, 4 exactly"),
        (2, 7.0, "number 0 of output 0: 7 on the GPU, NaN exactly"),
        // Poison that was never written.
        (3, nan, "number 1 of output 0: NaN on the GPU, NaN exactly"),
    ] {
        let mut given = good;
        given[at] = value;
        assert_eq!(wrong(given).as_deref(), Some(text));
    }
}

#[test]
fn random_rows_fill_the_table_evenly() {
    let index = random_rows(1 << 16, 16, 3);
    let mut bins = [0_usize; 16];
    index.iter().for_each(|&row| bins[row as usize] += 1);
    // 4096 each; the standard deviation is 62.
    assert!(bins.iter().all(|n| n.abs_diff(4096) < 400), "{bins:?}");
    assert_eq!(random_rows(1 << 16, 16, 3), index);
    assert_ne!(random_rows(1 << 16, 16, 4), index);
    // Odd rows are chosen too, where there are more rows than `random_f32` has numbers.
    let odd = random_rows(1 << 16, 1 << 25, 5).iter().filter(|&row| row % 2 == 1).count();
    assert!(odd.abs_diff(1 << 15) < 1000, "{odd}");
}
