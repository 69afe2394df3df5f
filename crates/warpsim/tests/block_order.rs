//! Blocks in any order: right kernels are right in each, and a wait that depends on it is named.

mod common;

use common::{clean, download, module, upload};
use warpsim::{Arg, BlockOrder, Device, Finding, Kind, Launch, PtxModule};

const ORDERS: [BlockOrder; 3] = [BlockOrder::Forward, BlockOrder::Reverse, BlockOrder::Random(5)];
/// Blocks and threads of most launches.
const SHAPE: (u32, u32) = (9, 64);

fn device(order: BlockOrder) -> Device {
    let mut device = Device::new();
    device.set_block_order(order);
    device
}

/// Adds 0, 1, 2, … up, launch after launch; gives the findings of the first launch that has some.
fn sum(kernel: &str, order: BlockOrder, checks: bool, cores: usize) -> Vec<Finding> {
    let (module, (blocks, threads)) = (module("waits"), SHAPE);
    let mut device = device(order);
    device.set_checks(checks);
    device.set_cores(cores);
    let numbers: Vec<i32> = (0..(blocks * threads) as i32).collect();
    let (numbers_at, out) = (upload(&mut device, &numbers), upload(&mut device, &[0i32]));
    for _ in 0..2 {
        let args = [Arg::Pointer(numbers_at), Arg::Pointer(out)];
        let report = device.launch(&module, kernel, Launch::linear(blocks, threads), &args).expect("the call is right");
        if !report.findings.is_empty() {
            return report.findings;
        }
        assert_eq!(download::<i32>(&device, out, 1), [numbers.iter().sum()], "{kernel} {order}");
    }
    Vec::new()
}

fn only(findings: Vec<Finding>) -> Finding {
    let [finding] = findings.try_into().unwrap_or_else(|found| panic!("not one finding: {found:#?}"));
    finding
}

fn line(finding: &Finding) -> u32 {
    finding.source.as_ref().map_or(0, |source| source.line)
}

#[test]
fn a_wait_for_a_block_that_has_not_started_is_named() {
    assert!(sum("last_waits", BlockOrder::Forward, true, 2).is_empty());
    for (checks, cores) in [(true, 1), (true, 4), (false, 1), (false, 4)] {
        let finding = only(sum("last_waits", BlockOrder::Reverse, checks, cores));
        assert_eq!((finding.kind, finding.block, line(&finding)), (Kind::BlockOrder, [8, 0, 0], 20), "{finding}");
        assert_eq!(finding.variable.as_deref(), Some("words"));
        let text = finding.to_string();
        for word in ["waits.cu:20", "block_order", "block (8, 0, 0)", "`last_waits`", "until block (7, 0, 0)", "ticket"]
        {
            assert!(text.contains(word), "`{word}` is not in: {text}");
        }
        assert!(text.contains("; next: launch it cooperatively"), "{text}");
    }
    // One of many seeds that does not start the last block last.
    assert_eq!(only(sum("last_waits", BlockOrder::Random(5), true, 2)).kind, Kind::BlockOrder);
}

#[test]
fn a_ticket_makes_every_order_right() {
    for order in ORDERS.into_iter().chain((0..20).map(BlockOrder::Random)) {
        assert_eq!(sum("last_ticket_waits", order, true, 2), [], "{order}");
    }
}

#[test]
fn a_chain_of_blocks_is_right_in_order_alone() {
    let module = module("waits");
    for order in ORDERS {
        let mut device = device(order);
        let out = upload(&mut device, &[0i32; 64]);
        let report = device.launch(&module, "chain", Launch::linear(9, 64), &[Arg::Pointer(out)]);
        let findings = report.expect("the call is right").findings;
        if order == BlockOrder::Forward {
            assert_eq!(findings, []);
            let expected = (0..9).fold(0, |sum, block| 2 * sum + block);
            assert_eq!(download::<i32>(&device, out, 64), [expected; 64]);
            continue;
        }
        // It waits for the block before it, which in turn waits for the one before.
        let finding = only(findings);
        assert_eq!((finding.kind, line(&finding)), (Kind::BlockOrder, 57), "{finding}");
        let before = format!("until block ({}, 0, 0)", finding.block[0] - 1);
        assert!(finding.message.contains(&before), "{finding}");
    }
}

#[test]
fn a_grid_barrier_needs_a_cooperative_launch() {
    let module = module("waits");
    let (blocks, threads) = SHAPE;
    let launch = Launch::linear(blocks, threads);
    let words = (blocks * threads) as usize;
    for order in ORDERS {
        for cooperative in [false, true] {
            let mut device = device(order);
            let [arrived, values, out] =
                [1, words, words].map(|words| upload(&mut device, &vec![0i32; words])).map(Arg::Pointer);
            let args = [arrived, values, out.clone()];
            if cooperative {
                let report = device.launch_cooperative(&module, "grid_barrier", launch, &args).expect("it fits");
                assert_eq!(report.findings, [], "{order}");
                let Arg::Pointer(out) = out else { unreachable!() };
                let expected: Vec<i32> = (0..words as i32).rev().map(|i| 3 * i).collect();
                assert_eq!(download::<i32>(&device, out, words), expected);
            } else {
                let report = device.launch(&module, "grid_barrier", launch, &args).expect("the call is right");
                let finding = only(report.findings);
                assert_eq!((finding.kind, line(&finding)), (Kind::BlockOrder, 78), "{finding}");
            }
        }
    }
}

#[test]
fn a_cooperative_launch_hides_no_race() {
    let (module, (blocks, threads)) = (module("waits"), SHAPE);
    let words = (blocks * threads) as usize;
    let mut device = device(BlockOrder::Forward);
    let args = [words, words].map(|words| Arg::Pointer(upload(&mut device, &vec![0i32; words])));
    let report = device.launch_cooperative(&module, "no_barrier", Launch::linear(blocks, threads), &args);
    let findings = report.expect("it fits").findings;
    assert!(findings.iter().all(|f| f.kind == Kind::GlobalRace) && !findings.is_empty(), "{findings:#?}");
}

#[test]
fn a_cooperative_grid_that_does_not_fit_says_how_many_blocks_do() {
    let module = module("waits");
    let mut device = device(BlockOrder::Forward);
    let out = Arg::Pointer(upload(&mut device, &[0i32; 1024]));
    for (threads, shared_bytes, fit) in [(64, 0, 64), (1024, 0, 4), (96, 0, 42), (64, 100 << 10, 4), (64, 200 << 10, 2)]
    {
        let launch = Launch { shared_bytes, ..Launch::linear(fit + 1, threads) };
        assert_eq!(device.blocks_at_a_time(&module, "chain", launch), Ok(fit));
        let refused = device.launch_cooperative(&module, "chain", launch, std::slice::from_ref(&out)).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(&format!("{fit} of `chain` run at a time")) && text.contains("\nnext: "), "{text}");
    }
}

#[test]
fn locks_and_slow_loops_are_no_waits_for_the_order() {
    let module = module("waits");
    for order in ORDERS {
        let mut device = device(order);
        let (lock, count) = (upload(&mut device, &[0i32]), upload(&mut device, &[0i32; 64]));
        let [lock_arg, count_arg] = [lock, count].map(Arg::Pointer);
        clean(&mut device, &module, "lock", Launch::linear(9, 64), &[lock_arg.clone(), count_arg.clone()]);
        assert_eq!(download::<i32>(&device, count, 1), [9]);
        clean(&mut device, &module, "bounded", Launch::linear(1, 32), &[lock_arg.clone(), count_arg]);
        assert_eq!(download::<i32>(&device, count, 32), [30000; 32]);
        // Who keeps a lock keeps it from all, whatever the order: nobody who has not started would give it back.
        let report =
            device.launch(&module, "kept_lock", Launch::linear(9, 64), &[lock_arg]).expect("the call is right");
        let finding = only(report.findings);
        assert_eq!(finding.kind, Kind::StepBudget, "{finding}");
        assert!(finding.message.contains("no other block of the launch changes them; next: "), "{finding}");
    }
}

/// What a kernel of independent blocks counts and finds does not depend on their order; the first block to make a mistake
/// does.
#[test]
fn the_order_shows_in_the_first_block_alone() {
    let ptx = "
        .version 8.0
        .target sm_80
        .address_size 64
        .visible .entry outside(.param .u64 out)
        {
            .reg .b32 %r<3>;
            .reg .b64 %rd<4>;
            ld.param.u64 %rd1, [out];
            mov.u32 %r1, %ctaid.x;
            mul.wide.u32 %rd2, %r1, 4;
            add.s64 %rd3, %rd1, %rd2;
            st.global.u32 [%rd3], %r1;
            ret;
        }";
    let module = PtxModule::load(ptx).expect("it loads");
    let run = |order, cores| {
        let mut device = device(order);
        device.set_cores(cores);
        let out = upload(&mut device, &[0u32; 50]);
        let launch = Launch::linear(100, 32);
        let report = device.launch(&module, "outside", launch, &[Arg::Pointer(out)]).expect("the call is right");
        assert!(download::<u32>(&device, out, 50).into_iter().eq(0..50));
        let finding = only(report.findings);
        (report.counters, finding.times, finding.block[0])
    };
    let first: Vec<_> = ORDERS.iter().map(|&order| run(order, 4)).collect();
    assert_eq!((first[0].2, first[1].2), (50, 99));
    assert!(first.iter().all(|(counters, times, _)| (counters, *times) == (&first[0].0, 50 * 32)));
    assert_eq!(first, ORDERS.iter().map(|&order| run(order, 1)).collect::<Vec<_>>());
}
