//! Updates in two steps lose what others do between; protocols that look like them stay silent. And an access stays in
//! the shared variable that its address starts from.

mod common;

use common::{Random, download, module, upload};
use warpsim::{Arg, Device, Finding, Kind, Launch, PtxModule};

const BLOCKS: u32 = 5;
const THREADS: u32 = 64;

/// Findings of a kernel that adds up floats, and its sum. The last argument are words for locks and flags.
fn sum(kernel: &str, launch: Launch, words: bool, cores: usize) -> (Vec<Finding>, f32) {
    let mut device = Device::new();
    device.set_cores(cores);
    let numbers: Vec<f32> = (0..BLOCKS * THREADS).map(|i| (i % 7) as f32 + 1.0).collect();
    let mut args = [upload(&mut device, &[0f32; 512]), upload(&mut device, &numbers)].map(Arg::Pointer).to_vec();
    let Arg::Pointer(out) = args[0] else { unreachable!() };
    if words {
        args.push(Arg::Pointer(upload(&mut device, &[0i32; 64])));
    }
    let report = device.launch(&module("updates"), kernel, launch, &args).expect("the call is right");
    (report.findings, download::<f32>(&device, out, 1)[0])
}

#[test]
fn updates_in_two_steps_are_lost() {
    let (grid, block) = (Launch::linear(BLOCKS, THREADS), Launch::linear(1, THREADS));
    let lines = [
        ("across_blocks", grid, 5),
        ("across_lanes", block, 10),
        ("in_shared", block, 17),
        ("read_and_exchange", grid, 24),
        ("read_and_exchange", block, 24),
        ("looks_again", grid, 37),
    ];
    for (kernel, launch, line) in lines {
        let (findings, _) = sum(kernel, launch, false, 1);
        let finding = findings.iter().find(|f| f.kind == Kind::LostUpdate);
        let finding = finding.unwrap_or_else(|| panic!("{kernel}: {findings:?}"));
        let other = finding.other.as_ref().expect("there are two");
        let at = |source: &Option<warpsim::SourceLine>| source.as_ref().map_or(0, |source| source.line);
        assert_eq!((at(&finding.source), at(&other.source)), (line, line), "{finding}");
        assert_ne!((finding.block, finding.thread), (other.block, other.thread), "{finding}");
        assert!(finding.message.contains("is lost") && finding.message.contains("; next: "), "{finding}");
        assert_eq!(findings, sum(kernel, launch, false, 4).0, "{kernel}: on four cores");
    }
}

#[test]
fn a_maximum_in_two_steps_is_lost() {
    let mut device = Device::new();
    let numbers: Vec<i32> = (0..128).collect();
    for kernel in ["largest_of", "if_larger"] {
        let args = [upload(&mut device, &[-1i32]), upload(&mut device, &numbers)].map(Arg::Pointer);
        let report = device.launch(&module("updates"), kernel, Launch::linear(2, 64), &args).expect("it runs");
        assert_eq!(report.findings.first().map(|f| f.kind), Some(Kind::LostUpdate), "{kernel}: {:?}", report.findings);
    }
    // A turn that is handed on is compared with a number, and another one is written.
    let args = [upload(&mut device, &[0i32]), upload(&mut device, &numbers)].map(Arg::Pointer);
    let report = device.launch(&module("updates"), "hands_on", Launch::linear(4, 64), &args).expect("it runs");
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
}

#[test]
fn locks_tickets_flags_and_barriers_are_right() {
    let (grid, block) = (Launch::linear(BLOCKS, THREADS), Launch::linear(1, THREADS));
    let right = [
        ("locked", grid, true),
        ("locked_by_exchange", grid, true),
        ("by_ticket", grid, true),
        ("look_back", grid, true),
        ("own_words", block, false),
        ("one_by_one", block, false),
        ("swapped", grid, false),
    ];
    for (kernel, launch, words) in right {
        for cores in [1, 4] {
            let (findings, _) = sum(kernel, launch, words, cores);
            assert!(findings.is_empty(), "{kernel}: {}", findings[0]);
        }
    }
}

#[test]
fn a_barrier_of_the_grid_is_right() {
    let mut device = Device::new();
    let args = [upload(&mut device, &[0f32; 512]), upload(&mut device, &[1f32; 64]), upload(&mut device, &[0i32; 2])];
    let args = args.map(Arg::Pointer);
    let launch = Launch::linear(4, THREADS);
    let report = device.launch_cooperative(&module("updates"), "all_meet", launch, &args).expect("it runs");
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
}

#[test]
fn a_shared_variable_has_bounds() {
    let run = |kernel: &str, number: i32| {
        let mut device = Device::new();
        let out = upload(&mut device, &[0f32; 32]);
        let args = [Arg::Pointer(out), Arg::I32(number)];
        let report = device.launch(&module("updates"), kernel, Launch::linear(1, 32), &args).expect("it runs");
        (report.findings, download::<f32>(&device, out, 32))
    };
    let (findings, given) = run("neighbours", 8);
    assert_eq!((findings, given), (Vec::new(), vec![3.0; 32]));
    let (findings, given) = run("neighbours", 16);
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert_eq!((finding.kind, finding.variable.as_deref()), (Kind::OutOfBounds, Some("tile")), "{finding}");
    assert!(
        finding.message.contains("past the end of `tile`, at index 256: it has 256 elements of 4 bytes"),
        "{finding}"
    );
    // The neighbour keeps what it holds.
    assert_eq!((given, finding.times), (vec![3.0; 32], 256));

    assert!(run("before_its_start", 0).0.is_empty());
    let (findings, _) = run("before_its_start", 1);
    let [finding] = findings.as_slice() else { panic!("{findings:?}") };
    assert!(finding.message.contains("before the start of `words`, at index -1"), "{finding}");
}

#[test]
fn the_longest_warp_is_counted() {
    let mut device = Device::new();
    let mut random = Random(3);
    let numbers = random.floats(4096);
    let data = upload(&mut device, &numbers);
    let args = [Arg::Pointer(data), Arg::Pointer(data), Arg::Pointer(data), Arg::I32(4096)];
    let report = device.launch(&module("vector_add"), "vector_add", Launch::linear(32, 128), &args).expect("it runs");
    let warps = 4096 / 32;
    assert_eq!(report.longest_warp * warps, report.counters.warp_instructions);
}

/// `lanes` threads sum every `lanes`th of `n` numbers; the loop is not unrolled.
const STRIDED: &str = r#"
.version 8.0
.target sm_80
.address_size 64
.file 1 "strided.cu"
.visible .entry strided(.param .u64 in, .param .u64 out, .param .u32 n)
{
    .reg .pred %p<3>; .reg .b32 %r<6>; .reg .b64 %d<6>; .reg .f32 %f<3>;
    ld.param.u64 %d1, [in];
    ld.param.u64 %d2, [out];
    ld.param.u32 %r1, [n];
    cvta.to.global.u64 %d1, %d1;
    cvta.to.global.u64 %d2, %d2;
    mov.u32 %r2, %tid.x;
    mov.u32 %r3, %r2;
    mov.f32 %f1, 0f00000000;
LOOP:
    .loc 1 5 1
    mul.wide.u32 %d3, %r3, 4;
    add.s64 %d3, %d1, %d3;
    ld.global.f32 %f2, [%d3];
    add.f32 %f1, %f1, %f2;
    .loc 1 4 1
    add.s32 %r3, %r3, 32;
    setp.lt.u32 %p1, %r3, %r1;
    @%p1 bra LOOP;
    .loc 1 7 1
    mul.wide.u32 %d4, %r2, 4;
    add.s64 %d4, %d2, %d4;
    st.global.f32 [%d4], %f1;
    ret;
}
"#;

#[test]
fn a_loop_that_lanes_leave_unevenly_is_told() {
    let module = PtxModule::load(STRIDED).expect("it is PTX");
    let run = |n: usize| {
        let mut device = Device::new();
        let data = upload(&mut device, &vec![1.0; n]);
        let out = upload(&mut device, &[0.0; 32]);
        let args = [Arg::Pointer(data), Arg::Pointer(out), Arg::I32(n as i32)];
        device.launch(&module, "strided", Launch::linear(1, 32), &args).expect("it runs")
    };
    assert_eq!(run(4 * 32).uneven_loops, [], "all lanes make 4 rounds");
    let report = run(4 * 32 + 7);
    let [found] = report.uneven_loops.as_slice() else { panic!("{:?}", report.uneven_loops) };
    assert_eq!(found.source.as_ref().map(|at| at.line), Some(4));
    assert_eq!(found.accesses.iter().map(|at| at.line).collect::<Vec<_>>(), [5]);
}
