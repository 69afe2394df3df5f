//! Races in shared memory and reads of what nobody wrote: found when planted, silent on the right twin.

mod common;

use common::{clean, download, module, upload};
use warpsim::{Arg, Device, Finding, Kind, Launch};

/// Runs a kernel of `races`, with its switch for right or wrong.
fn run(kernel: &str, threads: u32, right: bool) -> Vec<Finding> {
    let mut device = Device::new();
    let out = upload(&mut device, &[0i32; 64]);
    let args = [Arg::Pointer(out), Arg::I32(right.into())];
    device.launch(&module("races"), kernel, Launch::linear(3, threads), &args).expect("the call is right").findings
}

#[test]
fn planted_races_are_found_and_their_right_twins_are_silent() {
    // Kernel, threads, lines of the access found and of the other one.
    let planted = [
        ("reverse", 64, 4, 6),
        ("second_barrier", 64, 15, 13),
        ("within_a_warp", 32, 24, 22),
        ("one_word", 64, 29, 29),
        ("counting", 64, 45, 45),
    ];
    for (kernel, threads, line, other) in planted {
        assert_eq!(run(kernel, threads, true), [], "{kernel}, right");
        let findings = run(kernel, threads, false);
        let finding = findings.first().unwrap_or_else(|| panic!("{kernel} has a race"));
        assert!(findings.iter().all(|f| f.kind == Kind::SharedRace), "{kernel}: {findings:?}");
        assert_eq!(finding.source.as_ref().map(|s| s.line), Some(line), "{finding}");
        assert!(finding.message.contains(&format!("at line {other},")), "{finding}");
        assert!(finding.variable.is_some() && finding.message.contains("next: "), "{finding}");
        assert_eq!(finding.block, [0, 0, 0]);
    }
    assert_eq!(run("bytes", 64, false), []);
}

#[test]
fn shared_memory_without_a_value() {
    assert_eq!(run("half_written", 64, true), []);
    let findings = run("half_written", 64, false);
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = &findings[0];
    assert_eq!((finding.kind, finding.thread), (Kind::UninitialisedRead, [0, 0, 0]));
    assert_eq!((finding.source.as_ref().map(|s| s.line), finding.times), (Some(54), 3 * 32));
}

#[test]
fn global_memory_without_a_value() {
    let module = module("races");
    for cores in [1, 4] {
        for written in [0usize, 1, 7, 99, 100] {
            let mut device = Device::new();
            device.set_cores(cores);
            let (a, b) = (device.alloc(200).expect("memory"), device.alloc(200).expect("memory"));
            device.write(a, &vec![1; 2 * written]).expect("inside");
            let args = [Arg::Pointer(a), Arg::Pointer(b), Arg::I32(100)];
            let report = device.launch(&module, "copy", Launch::linear(4, 32), &args).expect("it runs");
            if written == 100 {
                assert_eq!(report.findings, []);
                // What a kernel wrote has a value.
                clean(
                    &mut device,
                    &module,
                    "copy",
                    Launch::linear(4, 32),
                    &[Arg::Pointer(b), Arg::Pointer(a), Arg::I32(100)],
                );
                assert_eq!(download::<u8>(&device, a, 200), [1u8; 200]);
                continue;
            }
            let finding = &report.findings[0];
            assert_eq!((finding.kind, finding.times), (Kind::UninitialisedRead, 100 - written as u64));
            let first = written as u32;
            assert_eq!((finding.block, finding.thread), ([first / 32, 0, 0], [first % 32, 0, 0]));
            assert_eq!(finding.variable.as_deref(), Some("parameter 0"));
        }
    }
}

#[test]
fn checks_can_be_left_out() {
    let mut device = Device::new();
    device.set_checks(false);
    let out = upload(&mut device, &[0i32; 64]);
    let args = [Arg::Pointer(out), Arg::I32(0)];
    clean(&mut device, &module("races"), "reverse", Launch::linear(1, 64), &args);
}
