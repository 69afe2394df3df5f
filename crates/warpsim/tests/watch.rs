//! The accesses of one watched warp.

mod common;

use common::{clean, module, upload};
use warpsim::{AccessKind, Arg, Device, Kind, Launch, Report, Space, WatchedWarp};

fn transposed(kernel: &str, watch: Option<WatchedWarp>, cores: usize) -> (Report, [u64; 2]) {
    let mut device = Device::new();
    device.set_cores(cores);
    device.set_watch(watch);
    let (x, out) = (upload(&mut device, &vec![1f32; 64 * 64]), upload(&mut device, &vec![0f32; 64 * 64]));
    let args = [Arg::Pointer(x), Arg::Pointer(out), Arg::I32(64), Arg::I32(64)];
    let launch = Launch { grid: [2, 2, 1], block: [32, 32, 1], shared_bytes: 0 };
    (clean(&mut device, &module("transpose"), kernel, launch, &args), [x, out])
}

#[test]
fn accesses_come_in_program_order_with_their_addresses() {
    let watch = WatchedWarp { block: [1, 0, 0], warp: 3 };
    let (report, [x, out]) = transposed("transpose_plain", Some(watch), 2);
    let seen: Vec<_> = report.accesses.iter().map(|a| (a.space, a.kind)).collect();
    use AccessKind::{Load, Store};
    assert_eq!(seen, [(Space::Global, Load), (Space::Shared, Store), (Space::Shared, Load), (Space::Global, Store)]);
    let [load, put, get, store] = &report.accesses[..] else { panic!("four") };
    for (lane, address) in load.addresses.iter().enumerate() {
        // Block 1 starts at column 32; warp 3 is row 3.
        assert_eq!(*address, x + 4 * (3 * 64 + 32 + lane as u64));
        assert_eq!(get.addresses[lane], 4 * (32 * lane as u64 + 3));
    }
    assert_eq!((load.mask, load.bytes, load.sectors, load.wavefronts), (u32::MAX, 4, 4, 0));
    assert_eq!((load.base, load.variable.as_deref()), (Some(x), Some("parameter 0")));
    assert_eq!((store.base, store.variable.as_deref()), (Some(out), Some("parameter 1")));
    assert_eq!((put.sectors, put.wavefronts, put.conflicts), (0, 1, 0));
    assert_eq!((get.sectors, get.wavefronts, get.conflicts), (0, 32, 31));
    assert_eq!(get.base, Some(0));
    assert!(get.variable.as_ref().is_some_and(|name| name.contains("tile")), "{:?}", get.variable);
    let line = load.source.as_ref().expect("the fixture has lines");
    assert!(line.file.ends_with("transpose.cu"), "{line}");
}

#[test]
fn watching_changes_neither_counts_nor_results() {
    let quiet = transposed("transpose_plain", None, 1).0;
    assert!(quiet.accesses.is_empty());
    for warp in [0, 31] {
        let watch = WatchedWarp { block: [1, 1, 0], warp };
        let watched = transposed("transpose_plain", Some(watch), 2).0;
        assert_eq!((watched.counters, &watched.lines), (quiet.counters, &quiet.lines));
        assert_eq!(watched.accesses.len(), 4);
    }
    // No such warp, no such block.
    for watch in [WatchedWarp { block: [0; 3], warp: 32 }, WatchedWarp { block: [2, 0, 0], warp: 0 }] {
        assert!(transposed("transpose_plain", Some(watch), 2).0.accesses.is_empty());
    }
}

#[test]
fn lanes_that_take_no_part_have_no_address() {
    let mut device = Device::new();
    device.set_watch(Some(WatchedWarp { block: [0; 3], warp: 0 }));
    let (x, out) = (upload(&mut device, &[0f32; 2048]), upload(&mut device, &[0f32; 64]));
    let at = upload(&mut device, &[0i32; 32]);
    let args = [Arg::Pointer(x), Arg::Pointer(at), Arg::Pointer(out), Arg::I32(5)];
    let report = clean(&mut device, &module("patterns"), "gather", Launch::linear(1, 32), &args);
    assert_eq!(report.accesses.len(), 3);
    for access in &report.accesses {
        assert_eq!(access.mask, 0b11111);
        assert!(access.addresses[5..].iter().all(|&a| a == 0) && access.addresses[..5].iter().all(|&a| a != 0));
    }
    // All five read element 0.
    assert_eq!(report.accesses[1].sectors, 1);
}

#[test]
fn a_long_loop_keeps_the_first_4096() {
    let mut device = Device::new();
    device.set_watch(Some(WatchedWarp::default()));
    let n = 2048u64;
    let out = upload(&mut device, &[0u32; 32]);
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{{\n\
         .reg .b32 %r<4>; .reg .b64 %rd<4>; .reg .pred %p<2>;\n ld.param.u64 %rd1, [p]; mov.u32 %r1, 0;\n\
         mov.u32 %r2, %tid.x; mul.wide.u32 %rd2, %r2, 4; add.s64 %rd1, %rd1, %rd2;\n$L:\n\
         ld.global.u32 %r3, [%rd1]; add.u32 %r3, %r3, 2; st.global.u32 [%rd1], %r3; ld.global.u32 %r2, [%rd1];\n\
         add.u32 %r1, %r1, 1; setp.lt.u32 %p1, %r1, {n}; @%p1 bra $L;\n ret;\n}}\n"
    );
    let module = warpsim::PtxModule::load(&ptx).unwrap_or_else(|e| panic!("{e}"));
    let report = clean(&mut device, &module, "k", Launch::linear(1, 32), &[Arg::Pointer(out)]);
    assert_eq!(report.accesses.len(), 4096);
    assert_eq!(report.counters.global_load_requests, 2 * n);
    assert_eq!(common::download::<u32>(&device, out, 32), [2 * n as u32; 32]);
}

#[test]
fn poisoned_memory_counts_as_never_written() {
    let mut device = Device::new();
    let module = module("patterns");
    let (x, out) = (upload(&mut device, &[1f32; 2048]), upload(&mut device, &[0f32; 64]));
    let args = [Arg::Pointer(x), Arg::Pointer(out), Arg::I32(1)];
    clean(&mut device, &module, "strided", Launch::linear(1, 32), &args);
    device.poison(x + 4, 9, 0xff).expect("inside");
    assert_eq!(common::download::<u32>(&device, x, 4)[1..], [u32::MAX, u32::MAX, 0x3f80_00ff]);
    let report = device.launch(&module, "strided", Launch::linear(1, 32), &args).expect("it runs");
    let [finding] = &report.findings[..] else { panic!("{:?}", report.findings) };
    assert_eq!((finding.kind, finding.thread, finding.times), (Kind::UninitialisedRead, [1, 0, 0], 3));
    assert!(device.poison(x, 4 * 2048 + 1, 0).is_err());
}
