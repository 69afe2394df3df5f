//! Planted mistakes are found, with their place; kernels that are right stay silent.

mod common;

use common::{clean, download, module, upload};
use warpsim::{Arg, Device, Finding, Kind, Launch, PtxModule, SimulatorError};

/// Runs a kernel of `mistakes` on one output buffer of 64 words; gives its findings.
fn run(kernel: &str, launch: Launch, buffers: &[Vec<i32>]) -> Vec<Finding> {
    let mut device = Device::new();
    device.set_step_budget(200_000);
    let args: Vec<Arg> = buffers.iter().map(|b| Arg::Pointer(upload(&mut device, b))).collect();
    device.launch(&module("mistakes"), kernel, launch, &args).expect("the call is right").findings
}

fn only(findings: Vec<Finding>) -> Finding {
    assert_eq!(findings.len(), 1, "{findings:?}");
    let finding = findings.into_iter().next().expect("one");
    assert!(finding.message.contains("next: "), "{finding}");
    assert_eq!(finding.source.as_ref().map(|s| s.file.as_str()), Some("mistakes.cu"));
    finding
}

fn line(finding: &Finding) -> u32 {
    finding.source.as_ref().map_or(0, |s| s.line)
}

#[test]
fn a_missing_bounds_guard() {
    for cores in [1, 4] {
        let mut device = Device::new();
        device.set_cores(cores);
        let a = upload(&mut device, &[1f32; 100]);
        let b = upload(&mut device, &[0f32; 128]);
        let args = [Arg::Pointer(a), Arg::Pointer(b)];
        let report = device.launch(&module("patterns"), "unguarded", Launch::linear(2, 64), &args).expect("it runs");
        let finding = &report.findings[0];
        assert_eq!(report.findings.len(), 1);
        assert_eq!((finding.kind, line(finding)), (Kind::OutOfBounds, 44));
        assert_eq!((finding.block, finding.thread, finding.times), ([1, 0, 0], [36, 0, 0], 28));
        assert_eq!(finding.address, Some(a + 400));
        assert_eq!(finding.variable.as_deref(), Some("parameter 0"));
        assert!(
            finding.message.contains("past the end of parameter 0, at index 100: it has 100 elements of 4 bytes"),
            "{finding}"
        );
        // The others are served.
        assert_eq!(download::<f32>(&device, b, 100), [2f32; 100]);
    }
}

#[test]
fn accesses_outside_and_misaligned() {
    let one = Launch::linear(1, 32);
    let zeros = || vec![0; 64];
    // The first word is never written, and read all the same.
    let mut findings = run("shared_overrun", one, &[zeros()]);
    let unwritten = findings.remove(1);
    assert_eq!((unwritten.kind, line(&unwritten), unwritten.thread), (Kind::UninitialisedRead, 6, [0, 0, 0]));
    let finding = only(findings);
    assert_eq!((finding.kind, line(&finding), finding.thread), (Kind::OutOfBounds, 4, [31, 0, 0]));
    assert!(finding.variable.as_deref().is_some_and(|v| v.contains("words")), "{finding}");

    let finding = only(run("misaligned", one, &[zeros(), zeros()]));
    assert_eq!((finding.kind, line(&finding), finding.times), (Kind::Misaligned, 9, 32));

    let finding = only(run("negative_index", one, &[zeros(), zeros()]));
    assert_eq!((finding.kind, line(&finding), finding.thread), (Kind::OutOfBounds, 12, [0, 0, 0]));
    assert!(finding.message.contains("before the start of parameter 0, at index -1"), "{finding}");

    let finding = only(run("null_pointer", one, &[zeros()]));
    assert_eq!((finding.kind, line(&finding), finding.thread), (Kind::OutOfBounds, 15, [7, 0, 0]));
    assert_eq!(finding.address, Some(0));
}

#[test]
fn barriers_that_not_all_reach() {
    let out = || [vec![0; 64]];
    let finding = only(run("half_a_barrier", Launch::linear(1, 32), &out()));
    assert_eq!((finding.kind, line(&finding)), (Kind::BarrierDivergence, 19));
    let finding = only(run("half_a_shuffle", Launch::linear(1, 32), &out()));
    assert_eq!((finding.kind, line(&finding)), (Kind::BarrierDivergence, 29));
    for n in [20, 8] {
        let mut device = Device::new();
        let out = upload(&mut device, &[0i32; 64]);
        let arguments = [Arg::Pointer(out), Arg::I32(n)];
        let report = device.launch(&module("mistakes"), "ended_shuffle", Launch::linear(1, 32), &arguments);
        let finding = only(report.expect("the call is right").findings);
        assert_eq!((finding.kind, line(&finding)), (Kind::BarrierDivergence, 86), "{finding}");
    }
    let finding = only(run("crossed_barriers", Launch::linear(1, 64), &out()));
    assert_eq!(finding.kind, Kind::Deadlock);
    // With one warp, one barrier is reached by all.
    assert!(run("crossed_barriers", Launch::linear(1, 32), &out()).is_empty());
}

#[test]
fn loops_without_an_end_and_traps() {
    let finding = only(run("endless", Launch::linear(3, 32), &[vec![0; 64]]));
    assert_eq!((finding.kind, finding.block), (Kind::StepBudget, [0, 0, 0]));
    let mut device = Device::new();
    let out = upload(&mut device, &[0i32]);
    let report = device.launch(&module("mistakes"), "trapped", Launch::linear(8, 32), &[Arg::Pointer(out)]);
    let finding = &report.expect("the call is right").findings[0];
    assert_eq!((finding.kind, finding.block, finding.thread), (Kind::Trap, [2, 0, 0], [3, 0, 0]));
}

#[test]
fn right_kernels_stay_silent() {
    let module = module("mistakes");
    let mut device = Device::new();
    let out = upload(&mut device, &[0i32; 64]);
    clean(&mut device, &module, "early_return", Launch::linear(1, 64), &[Arg::Pointer(out), Arg::I32(20)]);
    let result = download::<i32>(&device, out, 64);
    assert_eq!((result[5], result[25], result[45]), (4, 0, 45));

    clean(&mut device, &module, "halves_shuffle", Launch::linear(1, 32), &[Arg::Pointer(out)]);
    let expected: Vec<i32> = (0..32).map(|i| if i < 16 { i ^ 1 } else { i ^ 2 }).collect();
    assert_eq!(download::<i32>(&device, out, 32), expected);

    let flag = upload(&mut device, &[0i32; 2]);
    clean(&mut device, &module, "spinning", Launch::linear(1, 64), &[Arg::Pointer(flag), Arg::Pointer(out)]);
    assert_eq!(download::<i32>(&device, out, 1), [5]);

    clean(&mut device, &module, "producer_consumer", Launch::linear(1, 64), &[Arg::Pointer(out)]);
    assert_eq!(download::<i32>(&device, out, 32), (0..32).map(|i| (31 - i) * 3).collect::<Vec<_>>());
}

#[test]
fn wrong_calls_say_what_to_do() {
    let module = module("vector_add");
    let mut device = Device::new();
    let a = device.alloc(16).expect("memory");
    let p = || Arg::Pointer(a);
    let good = [p(), p(), p(), Arg::I32(4)];
    let one = Launch::linear(1, 32);
    let mut fails = |kernel: &str, launch: Launch, args: &[Arg], words: &str| {
        let error = device.launch(&module, kernel, launch, args).expect_err(words);
        assert!(error.to_string().contains(words) && error.to_string().contains("\nnext: "), "{error}");
    };
    fails("no_such", one, &good, "name one of: vector_add");
    fails("vector_add", one, &good[..3], "has 4 parameters, 3 were given");
    fails("vector_add", one, &[p(), p(), p(), p()], "parameter 3 of `vector_add` has 4 bytes, the argument 8");
    fails("vector_add", Launch::linear(1, 1025), &good, "1 to 1024");
    fails("vector_add", Launch::linear(0, 32), &good, "grid");
    fails("vector_add", Launch { block: [8, 8, 65], ..one }, &good, "[1024, 1024, 64]");
    fails("vector_add", Launch { shared_bytes: 1 << 20, ..one }, &good, "shared memory");
    assert!(device.write(a + 8, &[0; 9]).is_err());
    assert!(device.free(a + 8).is_err() && device.free(a).is_ok() && device.free(a).is_err());
}

#[test]
fn unknown_instructions_are_errors_at_load() {
    let ptx = |line: &str| {
        format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{{\n.reg .f32 %f<3>;\n\
             .reg .b32 %r<4>; .reg .b64 %rd<2>;\n.reg .pred %p<2>;\n.loc 1 12 3\n{line}\nret;\n}}\n.file 1 \"mine.cu\"\n"
        )
    };
    let unknown = [
        "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f1, %f1, %f1}, %rd1, %rd1, %r1, 0, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f1, %f1, %f1, %f1}, %rd1, %rd1, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n12k16.f32.bf16.bf16 {%f1, %f1, %f1, %f1}, %rd1, %rd1, 1, 1, 1, 0, 0;",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f1, %f1, %f1}, %rd1, %rd1, 1, 2, 1, 0, 0;",
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;",
        "add.rn.ftz.odd.f32 %f1, %f2, %f2;",
        "add.s32 %r1, %r2, %f9;",
        "sin.approx.f64 %f1, %f2;",
        "shl.s17 %r1, %r2, 3;",
        "setp.lt.rn.f32 %p1, %f1, %f2;",
        "vote.all.pred %p1, %p1;",
        "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1}], [%r2];",
        "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1, %r1, %r1, %r1}], [%r2], {%r1};",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r1], 16;",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%r1}, {%r2}, {%r3}, {%r1};",
    ];
    for line in unknown {
        let error = PtxModule::load(&ptx(line)).expect_err(line);
        let SimulatorError::Unsupported { line: 10, source: Some(source), message } = &error else {
            panic!("{line}: {error:?}")
        };
        assert_eq!((source.file.as_str(), source.line), ("mine.cu", 12));
        assert!(message.contains(line.split([' ', ';']).next().expect("an opcode")), "{error}");
    }
    assert!(PtxModule::load(&ptx("add.s32 %r1, %r2, %r3;")).is_ok());
    assert!(matches!(PtxModule::load(&ptx("bra $nowhere;")), Err(SimulatorError::Syntax { line: 10, .. })));
    assert!(PtxModule::load("not PTX").is_err());
}

#[test]
fn a_block_that_ends_is_no_endless_loop() {
    let mut device = Device::new();
    device.set_step_budget(1);
    let data = upload(&mut device, &[1f32; 64]);
    let args = [Arg::Pointer(data), Arg::Pointer(data), Arg::Pointer(data), Arg::I32(64)];
    clean(&mut device, &module("vector_add"), "vector_add", Launch::linear(1, 64), &args);
    assert_eq!(download::<f32>(&device, data, 64), [2f32; 64]);
}
