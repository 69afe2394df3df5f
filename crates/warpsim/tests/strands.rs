//! Lanes that meet from different places, and lanes that wait for each other.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Kind, Launch};

const ONE: Launch = Launch { grid: [1, 1, 1], block: [32, 1, 1], shared_bytes: 0 };

fn input() -> Vec<i32> {
    let mut random = Random(3);
    (0..32).map(|_| (random.bits() % 100) as i32).collect()
}

/// Runs a kernel of `in` and `out`, which has `count` words.
fn run(kernel: &str, count: usize) -> Vec<i32> {
    let mut device = Device::new();
    let (x, out) = (upload(&mut device, &input()), upload(&mut device, &vec![0i32; count]));
    clean(&mut device, &module("strands"), kernel, ONE, &[Arg::Pointer(x), Arg::Pointer(out)]);
    download(&device, out, count)
}

#[test]
fn arms_of_a_branch_exchange_with_each_other() {
    let x = input();
    // What each lane brings to the shuffle, the sum, the ballot and the match.
    let shuffled: Vec<i32> = (0..32).map(|l| x[l] * [1, 10, 100][l % 3]).collect();
    let sum: i32 = (0..32).map(|l| x[l] * [1, 2, 3][l % 3]).sum();
    let holds = |l: usize| [x[l] > 50, x[l] < 20, true][l % 3];
    let ballot = (0..32).filter(|&l| holds(l)).fold(0u32, |m, l| m | 1 << l);
    let key: Vec<i32> = (0..32).map(|l| if l % 3 == 2 { 7 } else { x[l] % 4 }).collect();
    let got = run("arms", 160);
    for (l, &value) in got.iter().take(32).enumerate() {
        let arm = (l % 3) as i32;
        assert_eq!(value, shuffled[l ^ 1] + arm, "shuffle, lane {l}");
        assert_eq!(got[32 + l], sum + arm, "sum, lane {l}");
        assert_eq!(got[64 + l] as u32, ballot, "ballot, lane {l}");
        let same = (0..32).filter(|&o| key[o] == key[l]).fold(0u32, |m, o| m | 1 << o);
        assert_eq!(got[96 + l], (same as i32).wrapping_add(arm), "match, lane {l}");
        assert_eq!(got[128 + l], got[(l + 5) % 32], "all together again, lane {l}");
    }
}

#[test]
fn lanes_that_return_late_are_not_waited_for() {
    let (x, got) = (input(), run("late_return", 32));
    for (l, value) in got.into_iter().enumerate() {
        let expected = match l {
            0..8 => x[..8].iter().sum(),
            _ => (0..l).map(|i| x[i] * i as i32).sum::<i32>(),
        };
        assert_eq!(value, expected, "lane {l}");
    }
}

#[test]
fn pairs_of_lanes_leave_a_loop_at_different_times() {
    let (x, got) = (input(), run("pairs", 32));
    for l in (0..32).step_by(2) {
        let (mut even, mut odd) = (x[l], x[l + 1]);
        (0..=l / 2).for_each(|_| (even, odd) = (even.wrapping_sub(odd), odd.wrapping_add(even)));
        assert_eq!((got[l], got[l + 1]), (even, odd), "lanes {l} and {}", l + 1);
    }
}

#[test]
fn lanes_take_a_lock_in_turn() {
    let mut device = Device::new();
    let (lock, count) = (upload(&mut device, &[0i32]), upload(&mut device, &[0i32]));
    let out = upload(&mut device, &[0i32; 128]);
    let args = [lock, count, out].map(Arg::Pointer);
    clean(&mut device, &module("strands"), "spin_lock", Launch::linear(2, 64), &args);
    assert_eq!(download::<i32>(&device, count, 1), [128]);
    let mut tickets = download::<i32>(&device, out, 128);
    tickets.sort_unstable();
    assert_eq!(tickets, (0..128).collect::<Vec<_>>());
}

#[test]
fn a_lane_waits_for_its_neighbour() {
    let mut device = Device::new();
    let out = upload(&mut device, &[0i32]);
    clean(&mut device, &module("strands"), "flag", ONE, &[Arg::Pointer(out)]);
    assert_eq!(download::<i32>(&device, out, 1), [7]);
}

#[test]
fn what_can_never_meet_is_a_finding() {
    for (kernel, line) in [("never", 77), ("masks", 83), ("outsider", 87)] {
        let mut device = Device::new();
        let out = upload(&mut device, &[0i32; 32]);
        let report = device.launch(&module("strands"), kernel, ONE, &[Arg::Pointer(out)]).expect("it runs");
        let found: Vec<_> = report.findings.iter().map(|f| (f.kind, f.source.as_ref().map(|s| s.line))).collect();
        assert_eq!(found, [(Kind::BarrierDivergence, Some(line))], "{kernel}: {:?}", report.findings);
        assert!(report.findings[0].message.contains("next: "), "{}", report.findings[0]);
    }
}
