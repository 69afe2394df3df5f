//! Barriers that count bytes, waits that never end, early reads, clusters of blocks, and descriptors of products.

use warpsim::{Arg, Device, Kind, Launch, PtxModule, Report};

/// A kernel of one block whose first thread copies 16 bytes to shared memory and all then write what arrived.
fn run(announce: &str, parity: u32) -> (Report, [u8; 16]) {
    changed(announce, parity, |text| text.to_owned())
}

/// The same, with a change of the text.
fn changed(announce: &str, parity: u32, change: impl Fn(&str) -> String) -> (Report, [u8; 16]) {
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
    let module = PtxModule::load(&change(&ptx)).unwrap();
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
fn a_barrier_is_not_to_be_used_before_the_others_know_of_it() {
    let (report, _) = changed(ANNOUNCE, 0, |text| text.replace("bar.sync 0;", ""));
    let found = report.findings.iter().find(|f| f.kind == Kind::SharedRace).expect("a race");
    assert!(found.message.contains("uses the mbarrier that thread 0 initialises"), "{found}");
    // A thread of the second warp: those of the first see what thread 0 did before.
    assert_eq!(found.thread[0], 32);
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

/// A cluster of two blocks: each thread writes its number, plus 100 for the second block, into the other block's `words`,
/// and then its own `words` to `out`.
fn exchange(before: &str, between: &str, after: &str, spin: u32) -> (Report, Vec<u32>) {
    let ptx = format!(
        ".version 8.0
.target sm_90
.address_size 64
.visible .entry swap(.param .u64 out)
.explicitcluster
.reqnctapercluster 2, 1, 1
{{
    .reg .pred %p<3>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<4>;
    .shared .align 4 .b8 words[256];
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %cluster_ctarank;
    mov.u32 %r11, %cluster_nctarank;
    {before}
    mad.lo.u32 %r3, %r2, 100, %r1;
    xor.b32 %r4, %r2, 1;
    mov.u32 %r5, words;
    shl.b32 %r6, %r1, 2;
    add.u32 %r5, %r5, %r6;
    mapa.shared::cluster.u32 %r7, %r5, %r4;
    // The second block takes its time.
    setp.eq.u32 %p1, %r2, 0;
    @%p1 bra WRITE;
    mov.u32 %r8, {spin};
LATER:
    sub.u32 %r8, %r8, 1;
    setp.ne.u32 %p2, %r8, 0;
    @%p2 bra LATER;
WRITE:
    st.shared::cluster.u32 [%r7], %r3;
    {between}
    ld.shared.u32 %r9, [%r5];
    mov.u32 %r10, %ctaid.x;
    mad.lo.u32 %r10, %r10, 64, %r1;
    mul.wide.u32 %rd2, %r10, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r9;
    {after}
    ret;
}}"
    );
    let module = PtxModule::load(&ptx).unwrap();
    let mut device = Device::new();
    let out = device.alloc(4 * 64 * 4).unwrap();
    let report = device.launch(&module, "swap", Launch::linear(4, 64), &[Arg::Pointer(out)]).unwrap();
    let mut bytes = [0; 4 * 64 * 4];
    device.read(out, &mut bytes).unwrap();
    (report, bytes.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect())
}

const MEET: &str = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;";

#[test]
fn blocks_of_a_cluster_write_into_each_other() {
    for spin in [1, 100_000] {
        let (report, out) = exchange(MEET, MEET, "", spin);
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        let expected = (0..256).map(|i| i % 64 + if i / 64 % 2 == 0 { 100 } else { 0 });
        assert_eq!(out, expected.collect::<Vec<u32>>());
    }
}

#[test]
fn mistakes_with_a_clusters_barrier() {
    let says = |report: &Report, kind, text: &str| {
        let found = report.findings.iter().any(|f| f.kind == kind && f.message.contains(text));
        assert!(found, "{kind:?}, {text}: {:#?}", report.findings);
    };
    let (report, _) = exchange("", MEET, "", 1);
    says(&report, Kind::OutOfBounds, "which need not have started");
    // The first block ends while the second is still on its way.
    let (report, _) = exchange(MEET, "setp.eq.u32 %p1, %r2, 0; @%p1 ret;", MEET, 100_000);
    says(&report, Kind::OutOfBounds, "which has ended");
    let (report, _) = exchange(MEET, "", "", 1);
    says(&report, Kind::UninitialisedRead, "words");
    let (report, _) = exchange("barrier.cluster.wait;", MEET, "", 1);
    says(&report, Kind::BarrierDivergence, "without having arrived");
    let (report, _) = exchange("barrier.cluster.arrive; barrier.cluster.arrive;", MEET, "", 1);
    says(&report, Kind::BarrierDivergence, "arrives at the cluster's barrier again");
    let alone =
        "setp.eq.u32 %p1, %r2, 0; @%p1 barrier.cluster.arrive; @%p1 barrier.cluster.wait; @!%p1 bar.sync 1, 96;";
    let (report, _) = exchange(alone, MEET, "", 1);
    says(&report, Kind::Deadlock, "barrier");
    let (report, _) = exchange(&format!("{MEET} mov.u32 %r2, 7;"), MEET, "", 1);
    says(&report, Kind::OutOfBounds, "which the cluster does not have");
}

#[test]
fn a_tile_that_is_read_before_its_phase() {
    let wait = "mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;";
    let ptx = |text: &str| text.replace(wait, "setp.eq.u32 %p2, 0, 0;");
    let (report, _) = changed(ANNOUNCE, 0, ptx);
    let found = report.findings.iter().find(|f| f.kind == Kind::Unfinished).expect("an early read");
    let text = &found.message;
    assert!(
        text.contains("the TMA may not have brought yet") && text.contains("byte 0 from the start of full"),
        "{found}"
    );
    // Its other side is the copy.
    assert!(found.other.as_ref().is_some_and(|other| other.writes && other.thread == [0, 0, 0]));
    // The parity of the phase that is still to come is that of a phase before the first, which is over.
    let (report, _) =
        changed(ANNOUNCE, 1, |text| text.replace("bar.sync 0;", "bar.sync 0; @%p1 bra WAIT; nanosleep.u32 1;"));
    assert!(
        report.findings.iter().any(|f| matches!(f.kind, Kind::Deadlock | Kind::Unfinished)),
        "{:?}",
        report.findings
    );
}

/// A product of zeros whose descriptor names a place of shared memory, in units of 16 bytes.
fn product(start: u32, launch: Launch) -> Report {
    let ptx = format!(
        ".version 8.0
.target sm_90a
.address_size 64
.extern .shared .align 128 .b8 tile[];
.visible .entry product()
{{
    .reg .f32 %f<5>;
    .reg .b64 %rd<2>;
    .reg .b32 %r<4>;
    mov.u32 %r1, %tid.x;
    shl.b32 %r1, %r1, 4;
    mov.u32 %r2, 0;
    st.shared.v4.u32 [%r1], {{%r2, %r2, %r2, %r2}};
    st.shared.v4.u32 [%r1+2048], {{%r2, %r2, %r2, %r2}};
    fence.proxy.async;
    bar.sync 0;
    mov.u64 %rd1, {start};
    or.b64 %rd1, %rd1, 0x0000000800080000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {{%f1, %f2, %f3, %f4}}, %rd1, %rd1, 0, 1, 1, 0, 0;
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    ret;
}}"
    );
    let module = PtxModule::load(&ptx).unwrap();
    Device::new().launch(&module, "product", launch, &[]).unwrap()
}

#[test]
fn a_descriptor_that_leads_out_of_shared_memory() {
    let launch = |threads| Launch { shared_bytes: 4096, ..Launch::linear(1, threads) };
    assert!(product(0, launch(128)).findings.is_empty(), "{:?}", product(0, launch(128)).findings);
    let report = product(250, launch(128));
    let found = report.findings.iter().find(|f| f.kind == Kind::OutOfBounds).expect("a finding");
    assert!(found.message.contains("the matrix begins at 0xfa0") && found.message.contains("4096 bytes"), "{found}");
    // Half a warpgroup never comes together.
    let report = product(0, launch(64));
    assert!(report.findings.iter().any(|f| f.kind == Kind::Deadlock), "{:?}", report.findings);
}
