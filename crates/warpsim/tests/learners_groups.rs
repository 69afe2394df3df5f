//! Cooperative groups, pipelines and the barriers of libcu++, as their headers compile them.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Launch};

fn numbers(count: usize) -> Vec<i32> {
    let mut random = Random(11);
    (0..count).map(|_| (random.bits() % 9) as i32 - 3).collect()
}

#[test]
fn groups_of_threads() {
    let mut device = Device::new();
    let data = numbers(500);
    let (x, sum) = (upload(&mut device, &data), upload(&mut device, &[0i32]));
    let groups = module("learners/groups");
    let args = [Arg::Pointer(x), Arg::Pointer(sum), Arg::I32(500)];
    clean(&mut device, &groups, "cg_sum", Launch::linear(3, 96), &args);
    assert_eq!(download::<i32>(&device, sum, 1), [data.iter().sum::<i32>()]);

    let floats: Vec<f32> = data[..32].iter().map(|x| *x as f32).collect();
    let (x, out) = (upload(&mut device, &floats), upload(&mut device, &[0f32; 64]));
    clean(&mut device, &groups, "cg_tiles", Launch::linear(1, 32), &[Arg::Pointer(x), Arg::Pointer(out)]);
    let result = download::<f32>(&device, out, 64);
    let mut sums = vec![];
    for (tile, part) in floats.chunks(8).enumerate() {
        assert_eq!(result[tile], part.iter().sum::<f32>());
        sums.clear();
        sums.extend((1..=8).map(|n| part[..n].iter().sum::<f32>()));
        let any = sums.iter().any(|y| *y > 1.0) as usize;
        let positive = sums.iter().filter(|y| **y > 0.0).count();
        let expected: Vec<f32> = sums.iter().map(|y| y + (any + tile + positive) as f32).collect();
        assert_eq!(result[32 + 8 * tile..][..8], expected, "tile {tile}");
    }

    let words = upload(&mut device, &data[..32]);
    let (out, count) = (upload(&mut device, &[0i32; 32]), upload(&mut device, &[0i32]));
    let args = [words, out, count].map(Arg::Pointer);
    clean(&mut device, &groups, "cg_coalesced", Launch::linear(1, 32), &args);
    let kept: Vec<i32> = data[..32].iter().copied().filter(|x| *x > 0).collect();
    assert_eq!(download::<i32>(&device, count, 1)[0] as usize, kept.len());
    assert_eq!(download::<i32>(&device, out, kept.len()), kept);

    let shifted: Vec<i32> = data[..32].iter().map(|x| x + 3).collect();
    let words = upload(&mut device, &shifted);
    clean(&mut device, &groups, "cg_labels", Launch::linear(1, 32), &[words, out].map(Arg::Pointer));
    for (lane, got) in download::<i32>(&device, out, 32).into_iter().enumerate() {
        let x = shifted[lane];
        let same: Vec<usize> = (0..32).filter(|l| shifted[*l] % 4 == x % 4).collect();
        let rank = same.iter().position(|l| *l == lane).unwrap_or(0);
        let half = shifted.iter().filter(|y| (*y % 2 == 0) == (x % 2 == 0)).count();
        let most = same.iter().map(|l| shifted[*l]).max().unwrap_or(0);
        assert_eq!(got, (same.len() * 100 + rank + half * 10_000) as i32 + most * 1_000_000, "lane {lane}");
    }
}

#[test]
fn pipelines_of_tiles() {
    let data: Vec<f32> = numbers(320).into_iter().map(|x| x as f32).collect();
    let mut device = Device::new();
    let (x, out) = (upload(&mut device, &data), upload(&mut device, &[0f32; 64]));
    let args = [Arg::Pointer(x), Arg::Pointer(out), Arg::I32(5)];
    clean(&mut device, &module("learners/groups"), "pipelined", Launch::linear(1, 64), &args);
    let expected = (0..64).map(|i| (0..5).map(|t| data[64 * t + 63 - i]).sum::<f32>());
    assert_eq!(download::<f32>(&device, out, 64), expected.collect::<Vec<_>>());
}

#[test]
fn barriers_in_shared_memory() {
    let data = numbers(128);
    // `test_wait` and `try_wait`.
    for print in ["learners/barriers", "learners/90/barriers"] {
        let mut device = Device::new();
        let (x, out) = (upload(&mut device, &data), upload(&mut device, &[0i32; 64]));
        let mut run = |kernel: &str| {
            let args = [x, out].map(Arg::Pointer);
            clean(&mut device, &module(print), kernel, Launch::linear(1, 64), &args);
            download::<i32>(&device, out, 64)
        };
        let from = |f: &dyn Fn(usize) -> i32| (0..64).map(f).collect::<Vec<i32>>();
        assert_eq!(run("barriers"), from(&|i| 2 * data[63 - (i ^ 1)]), "{print}");
        assert_eq!(run("async_copy"), from(&|i| data[63 - i]), "{print}");
        assert_eq!(run("cg_async"), from(&|i| data[63 - i]), "{print}");
        assert_eq!(run("pipe"), from(&|i| data[i ^ 1] + data[64 + (i ^ 2)]), "{print}");
        let (count, sum) = (upload(&mut device, &[0i32]), upload(&mut device, &[0f32]));
        let args = [count, sum].map(Arg::Pointer);
        clean(&mut device, &module(print), "atomics_std", Launch::linear(1, 64), &args);
        assert_eq!(download::<i32>(&device, count, 1), [64], "{print}");
        assert_eq!(download::<f32>(&device, sum, 1), [64.0], "{print}");
    }
}
