//! Data races in global and shared memory against an oracle that looks at all pairs of accesses; and launches that are
//! repeated for a closer look.

mod common;

use common::{Random, download, module, upload};
use warpsim::{Arg, Device, Kind, Launch};

const BLOCKS: usize = 2;
const THREADS: usize = 64;
const STEPS: usize = 4;

/// What a thread does in a step: bytes from `at`, and how.
#[derive(Clone, Copy, PartialEq)]
enum Does {
    Read,
    Write,
    Atomic,
}

#[derive(Clone, Copy)]
struct Access {
    block: usize,
    thread: usize,
    step: usize,
    at: i32,
    len: i32,
    does: Does,
}

/// A random table of accesses, each value written once; and the accesses it stands for.
fn table(random: &mut Random, one_in: u64) -> (Vec<i32>, Vec<Access>) {
    let (mut entries, mut accesses, mut value) = (Vec::new(), Vec::new(), 0);
    for step in 0..STEPS {
        for (block, thread) in (0..BLOCKS).flat_map(|block| (0..THREADS).map(move |thread| (block, thread))) {
            if !random.bits().is_multiple_of(one_in) || value == 127 {
                entries.push(0);
                continue;
            }
            let (what, at) = (1 + (random.bits() % 5) as i32, (random.bits() % 32) as i32);
            // Values below 128: an atomic flips the bit above, so that no write leaves a value as it is.
            value += 1;
            entries.push(what | at << 3 | value << 8);
            let does = [Does::Read, Does::Write, Does::Read, Does::Write, Does::Atomic][what as usize - 1];
            let byte = matches!(what, 3 | 4);
            let (at, len) = if byte { (at, 1) } else { (at & !3, 4) };
            accesses.push(Access { block, thread, step, at, len, does });
        }
    }
    (entries, accesses)
}

fn race(x: &Access, y: &Access, barriers: &[i32], in_shared: bool) -> bool {
    let (first, last) = (x.step.min(y.step), x.step.max(y.step));
    let ordered = x.block == y.block && barriers[first..last].contains(&1);
    let meet = x.at < y.at + y.len && y.at < x.at + x.len && (x.block == y.block || !in_shared);
    let harmless = matches!((x.does, y.does), (Does::Read, Does::Read) | (Does::Atomic, Does::Atomic));
    (x.block, x.thread) != (y.block, y.thread) && meet && !ordered && !harmless
}

#[test]
fn races_are_those_of_all_pairs_of_accesses() {
    let module = module("steps");
    let mut random = Random(7);
    let mut racy = [0, 0];
    for case in 0..600 {
        let in_shared = case % 2 == 1;
        let (entries, accesses) = table(&mut random, [24, 48, 80, 128][case / 2 % 4]);
        let barriers: Vec<i32> = (0..STEPS).map(|_| (!random.bits().is_multiple_of(3)).into()).collect();
        let pairs = accesses.iter().enumerate().flat_map(|(at, x)| accesses[..at].iter().map(move |y| (x, y)));
        let expected = pairs.filter(|(x, y)| race(x, y, &barriers, in_shared)).count();
        let mut results = Vec::new();
        for cores in [1, 3] {
            let mut device = Device::new();
            device.set_cores(cores);
            let args = [upload(&mut device, &entries), upload(&mut device, &barriers), upload(&mut device, &[0u8; 32])];
            let memory = args[2];
            let mut args: Vec<Arg> = args.into_iter().map(Arg::Pointer).collect();
            args.extend([Arg::I32(STEPS as i32), Arg::I32(in_shared.into())]);
            let launch = Launch::linear(BLOCKS as u32, THREADS as u32);
            let findings = device.launch(&module, "steps", launch, &args).expect("it runs").findings;
            let kind = if in_shared { Kind::SharedRace } else { Kind::GlobalRace };
            assert!(findings.iter().all(|f| f.kind == kind), "case {case}: {findings:?}");
            assert_eq!(!findings.is_empty(), expected > 0, "case {case}: {expected} pairs race, {findings:?}");
            results.push((findings, download::<u8>(&device, memory, 32)));
        }
        assert_eq!(results[0], results[1], "case {case}: another number of cores");
        racy[usize::from(in_shared)] += usize::from(expected > 0);
    }
    // Both answers came often.
    assert!(racy.iter().all(|&n| (60..=240).contains(&n)), "{racy:?}");
}

#[test]
fn a_repeated_launch_starts_from_the_same_memory() {
    let n = 5000;
    let host: Vec<i32> = (0..n).collect();
    let mut all = Vec::new();
    for cores in [1, 2, 4] {
        let mut device = Device::new();
        device.set_cores(cores);
        let (a, sum) = (upload(&mut device, &host), upload(&mut device, &vec![0i32; 5120]));
        let args = [Arg::Pointer(a), Arg::Pointer(sum), Arg::I32(n)];
        let report = device.launch(&module("steps"), "twice", Launch::linear(40, 128), &args).expect("it runs");
        assert_eq!(report.findings[0].kind, Kind::GlobalRace);
        assert_eq!(report.findings[0].parameter, Some(0));
        assert_eq!(download::<i32>(&device, sum, 5120), vec![1; 5120]);
        all.push((report.findings, download::<i32>(&device, a, n as usize), report.counters));
    }
    assert!(all.iter().all(|one| *one == all[0]));
    // Blocks one after the other: the last thread of a block reads what the next block has not changed yet.
    assert!((0..n as usize - 1).all(|i| all[0].1[i] == 2 * i as i32 + 1));
}
