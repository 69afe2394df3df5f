//! Barriers that count bytes, and what is said of waits that never end.

use warpsim::{Arg, Device, Kind, Launch, Module, Report};

/// A kernel of one block whose first thread copies 16 bytes to shared memory and all then write what arrived.
fn run(announce: &str, parity: u32) -> (Report, [u8; 16]) {
    let ptx = format!(
        ".version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 from, .param .u64 to)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    .shared .align 128 .b8 tile[128];
    .shared .align 8 .b64 full;
    ld.param.u64 %rd1, [from];
    ld.param.u64 %rd2, [to];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, tile;
    mov.u32 %r3, full;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra READY;
    mbarrier.init.shared::cta.b64 [%r3], 1;
READY:
    bar.sync 0;
    @%p1 bra WAIT;
    {announce}
    cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 16, [%r3];
WAIT:
    mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], {parity};
    @!%p2 bra WAIT;
    setp.gt.u32 %p1, %r1, 3;
    @%p1 ret;
    shl.b32 %r4, %r1, 2;
    add.u32 %r2, %r2, %r4;
    ld.shared.u32 %r5, [%r2];
    cvt.u64.u32 %rd3, %r4;
    add.u64 %rd2, %rd2, %rd3;
    st.global.u32 [%rd2], %r5;
    ret;
}}"
    );
    let module = Module::load(&ptx).unwrap();
    let mut device = Device::new();
    let (from, to) = (device.alloc(16).unwrap(), device.alloc(16).unwrap());
    device.write(from, &std::array::from_fn::<u8, 16, _>(|i| i as u8 + 1)).unwrap();
    let args = [Arg::Pointer(from), Arg::Pointer(to)];
    let report = device.launch(&module, "copy", Launch::linear(1, 64), &args).unwrap();
    let mut out = [0; 16];
    device.read(to, &mut out).unwrap();
    (report, out)
}

const ANNOUNCE: &str = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 16;";

#[test]
fn a_phase_ends_when_its_bytes_are_here() {
    let (report, out) = run(ANNOUNCE, 0);
    assert!(report.findings.is_empty(), "{:?}", report.findings);
    assert_eq!(out, std::array::from_fn(|i| i as u8 + 1));
}

#[test]
fn a_wait_that_never_ends_names_its_barrier() {
    let cases = [
        ("", 0, "1 of 1 arrivals and -16 bytes"),
        ("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 32;", 0, "0 of 1 arrivals and 16 bytes"),
    ];
    for (announce, parity, text) in cases {
        let (report, _) = run(announce, parity);
        let found = report.findings.iter().find(|f| f.kind == Kind::Deadlock).expect("a deadlock");
        assert!(found.message.contains("phase 0") && found.message.contains(text), "{found}");
    }
}
