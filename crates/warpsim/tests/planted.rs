//! Mistakes that only Hopper's kernels can make, planted in the course's own: each is found and named, and the kernels as
//! they are have none.

#[path = "common/course.rs"]
mod course;

mod common;

use common::{Random, download, upload};
use course::COURSE;
use warpsim::{Arg, Attributes, Device, Finding, Kind, Launch, PtxModule, Report, Swizzle, TmaDescriptor};

/// Columns of the result, and the length of the sums: six stages, of which four lie in shared memory.
const N: usize = 256;
const K: usize = 6 * 64;
/// Four stages of 48 KiB, two barriers for each, four tiles for the result.
const SHARED: u32 = 4 * (128 + 256) * 64 * 2 + 4 * 2 * 8 + 2 * 2 * 64 * 64 * 2;

fn narrow(x: f32) -> u16 {
    (x.to_bits() >> 16) as u16
}

fn wide(x: u16) -> f32 {
    f32::from_bits(u32::from(x) << 16)
}

/// A row-major matrix as the course describes it to the TMA.
fn map(base: u64, rows: usize, columns: usize, box_rows: u32) -> Arg {
    let map = TmaDescriptor {
        base,
        element: 2,
        sizes: vec![columns as u64, rows as u64],
        strides: vec![2 * columns as u64],
        box_sizes: vec![64, box_rows],
        swizzle: Swizzle::Bytes128,
    };
    Arg::Bytes(map.bytes().expect("a map").to_vec())
}

/// How a rung takes its matrices.
#[derive(Clone, Copy)]
enum Maps {
    None,
    Inputs,
    All,
}

/// Runs a rung of `matmul_bf16` on small whole numbers; how much of the result is wrong.
fn run(ptx: &str, maps: Maps, blocks: u32, shared_bytes: u32) -> (Report, usize) {
    let module = PtxModule::load(ptx).unwrap_or_else(|e| panic!("{e}"));
    let mut device = Device::new();
    // More than any of them takes that ends: the loop without an end is told in a few seconds.
    device.set_step_budget(1 << 23);
    let (m, mut random) = (128 * blocks as usize, Random(1));
    let mut whole = |count: usize| (0..count).map(|_| narrow((random.bits() % 5) as f32 - 2.0)).collect::<Vec<u16>>();
    let (a, b) = (whole(m * K), whole(K * N));
    let (on_a, on_b) = (upload(&mut device, &a), upload(&mut device, &b));
    let c = device.alloc(m * N * 2).expect("memory");
    let matrices = match maps {
        Maps::None => [on_a, on_b, c].map(Arg::Pointer),
        Maps::Inputs => [map(on_a, m, K, 128), map(on_b, K, N, 64), Arg::Pointer(c)],
        Maps::All => [map(on_a, m, K, 128), map(on_b, K, N, 64), map(c, m, N, 64)],
    };
    let sizes = [m, N, K].map(|size| Arg::I32(size as i32));
    let block = if matches!(maps, Maps::All) { 384 } else { 256 };
    let grid = if matches!(maps, Maps::All) { [blocks, 1, 1] } else { [1, blocks, 1] };
    let launch = Launch { grid, block: [block, 1, 1], shared_bytes };
    let args = [&matrices[..], &sizes[..]].concat();
    let report = device.launch(&module, "matmul_bf16", launch, &args).unwrap_or_else(|e| panic!("{e}"));
    let given = download::<u16>(&device, c, m * N);
    let wrong = (0..m * N).step_by(61).filter(|&at| {
        let (row, column) = (at / N, at % N);
        let exact: f32 = (0..K).map(|i| wide(a[row * K + i]) * wide(b[i * N + column])).sum();
        (wide(given[at]) - exact).abs() > exact.abs() / 256.0
    });
    (report, wrong.count())
}

fn course(rung: &str) -> String {
    COURSE[&format!("course/matmul_bf16/{rung}")].clone()
}

/// The text without the instructions that begin so.
fn without(ptx: &str, start: &str) -> String {
    assert!(ptx.contains(start), "{start}");
    ptx.lines()
        .map(|line| if line.trim_start().starts_with(start) { "\n" } else { line })
        .collect::<Vec<_>>()
        .join("\n")
}

/// The first finding of a kind, whose words have all these texts.
fn found<'r>(report: &'r Report, kind: Kind, texts: &[&str]) -> &'r Finding {
    let found = report.findings.iter().find(|f| f.kind == kind && texts.iter().all(|text| f.message.contains(text)));
    found.unwrap_or_else(|| panic!("no {kind:?} with {texts:?}: {:#?}", report.findings))
}

#[test]
fn the_kernels_as_they_are_have_none() {
    for (rung, maps, blocks) in [
        ("05_wgmma", Maps::None, 1),
        ("06_tma", Maps::Inputs, 1),
        ("09_tma_store", Maps::All, 1),
        ("10_cluster", Maps::All, 2),
    ] {
        let (report, wrong) = run(&course(rung), maps, blocks, SHARED);
        assert!(report.findings.is_empty() && wrong == 0, "{rung}: {wrong} wrong, {:#?}", report.findings);
    }
}

#[test]
fn copies_by_threads_that_nobody_waited_for() {
    let (report, _) = run(&without(&course("05_wgmma"), "cp.async.wait_group"), Maps::None, 1, SHARED);
    let finding = found(&report, Kind::Unfinished, &["a cp.async of thread", "cp.async.wait_group"]);
    assert!(finding.other.as_ref().is_some_and(|other| other.writes));
}

#[test]
fn stores_without_a_proxy_fence_before_a_product() {
    let (report, _) = run(&without(&course("05_wgmma"), "fence.proxy.async"), Maps::None, 1, SHARED);
    found(&report, Kind::MissingFence, &["no proxy fence is between", "fence.proxy.async"]);
}

#[test]
fn a_product_without_a_fence_of_its_registers() {
    let (report, _) = run(&without(&course("06_tma"), "wgmma.fence"), Maps::Inputs, 1, SHARED);
    found(&report, Kind::MissingFence, &["no wgmma.fence is before it"]);
}

#[test]
fn sums_that_are_read_before_their_product_is_waited_for() {
    let ptx = course("06_tma");
    for ptx in [without(&ptx, "wgmma.wait_group.sync.aligned 0;"), without(&ptx, "wgmma.commit_group")] {
        let (report, _) = run(&ptx, Maps::Inputs, 1, SHARED);
        found(&report, Kind::Unfinished, &["reads a register of the wgmma at line", "wgmma.wait_group"]);
    }
}

#[test]
fn tiles_that_are_overwritten_while_products_read_them() {
    // One more group may be unfinished when the stage is called free.
    let ptx = course("09_tma_store").replace("wgmma.wait_group.sync.aligned 1;", "wgmma.wait_group.sync.aligned 2;");
    let (report, _) = run(&ptx, Maps::All, 1, SHARED);
    found(&report, Kind::Unfinished, &["writes", "a wgmma of thread", "may still read"]);
}

#[test]
fn tiles_that_are_read_before_they_are_here() {
    let wait = "mbarrier.try_wait.parity.shared::cta.b64 done,";
    let ptx = course("09_tma_store");
    assert!(ptx.contains(wait));
    // Nobody waits for anything.
    let never: Vec<String> = ptx
        .lines()
        .map(|line| match line.find(wait) {
            Some(at) => format!("{}setp.eq.u32 done, 0, 0;", &line[..at]),
            None => line.to_owned(),
        })
        .collect();
    let (report, _) = run(&never.join("\n"), Maps::All, 1, SHARED);
    found(&report, Kind::Unfinished, &["the TMA may not have brought yet", "the phase of the mbarrier"]);
}

/// The text with another parity in each wait.
fn waiting_for(ptx: &str, parity: impl Fn(&str) -> (String, String)) -> String {
    let wait = "mbarrier.try_wait.parity.shared::cta.b64 done,";
    assert!(ptx.contains(wait));
    let line = |line: &str| match line.find(wait) {
        Some(_) => {
            let comma = line.rfind(',').expect("a parity") + 1;
            let (before, operand) = parity(line[comma..].trim().trim_end_matches(';'));
            format!("{before} {} {operand};", &line[..comma])
        }
        None => line.to_owned(),
    };
    ptx.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn waits_for_another_phase() {
    let ptx = course("06_tma");
    let turned = |parity: &str| (format!("xor.b32 {parity}, {parity}, 1;"), parity.to_owned());
    let always_0 = |_: &str| (String::new(), "0".to_owned());
    for ptx in [waiting_for(&ptx, turned), waiting_for(&ptx, always_0)] {
        let (report, _) = run(&ptx, Maps::Inputs, 1, SHARED);
        found(&report, Kind::Deadlock, &["waits for ever for the mbarrier", "for a wait with the wrong parity"]);
    }
}

#[test]
fn a_tile_that_is_overwritten_while_the_copy_engine_reads_it() {
    let (report, _) = run(&without(&course("09_tma_store"), "cp.async.bulk.wait_group.read 1"), Maps::All, 1, SHARED);
    found(&report, Kind::Unfinished, &["writes", "the TMA may still read for a store"]);
}

#[test]
fn stores_without_a_proxy_fence_before_the_copy_engine_reads() {
    let (report, _) = run(&without(&course("09_tma_store"), "fence.proxy.async"), Maps::All, 1, SHARED);
    let finding = found(&report, Kind::MissingFence, &["reads 8 bytes asynchronously", "fence.proxy.async"]);
    assert!(finding.other.is_some());
}

#[test]
fn an_arrival_that_is_missing_names_who_waits() {
    let (report, _) = run(&without(&course("09_tma_store"), "mbarrier.arrive.shared::cta.b64 _"), Maps::All, 1, SHARED);
    let finding = found(&report, Kind::Deadlock, &["waits for ever for the mbarrier", "2 of 2 arrivals"]);
    assert_eq!(finding.thread, [0, 0, 0], "the producer");
}

#[test]
fn blocks_of_a_cluster_that_have_not_started() {
    let ptx = course("10_cluster");
    let meeting = "barrier.cluster.arrive.relaxed; barrier.cluster.wait;";
    let first = ptx.find(meeting).expect("one");
    let apart = format!("{}{}", &ptx[..first], &ptx[first + meeting.len()..]);
    let (report, _) = run(&apart, Maps::All, 2, SHARED);
    found(&report, Kind::OutOfBounds, &["the shared memory of block", "which need not have started"]);
    // Half of the grid is no cluster.
    let module = PtxModule::load(&ptx).expect("it loads");
    assert_eq!(module.kernels()[0].cluster, Some([2, 1, 1]));
    let mut device = Device::new();
    let args = [Arg::Bytes(vec![0; 128]), Arg::Bytes(vec![0; 128]), Arg::Bytes(vec![0; 128])];
    let args = [&args[..], &[Arg::I32(0), Arg::I32(0), Arg::I32(0)]].concat();
    let refused = |device: &mut Device, blocks, attributes| {
        let launch = Launch { grid: [blocks, 1, 1], block: [384, 1, 1], shared_bytes: SHARED };
        device.launch_with(&module, "matmul_bf16", launch, attributes, &args).expect_err("refused").to_string()
    };
    assert!(refused(&mut device, 3, Attributes::NONE).contains("no whole clusters"));
    let four = Attributes { cluster: Some([4, 1, 1]), ..Attributes::NONE };
    assert!(refused(&mut device, 4, four).contains("is compiled for [2, 1, 1]"));
}

#[test]
fn a_box_that_is_larger_than_shared_memory() {
    // The stages of b lie behind those of a.
    let (report, _) = run(&course("06_tma"), Maps::Inputs, 1, 1 << 16);
    found(&report, Kind::OutOfBounds, &["a box of [64, 64] elements has 8192 bytes", "are left from"]);
}
