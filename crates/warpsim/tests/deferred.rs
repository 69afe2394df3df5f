//! Accesses of whole warps that the checks put off are noted as if each lane had been looked at at once: kernels of random
//! accesses to shared memory, as they are and with a compare-and-swap behind their end, for which nothing is put off.

mod common;

use std::fmt::Write;

use common::{Random, upload};
use warpsim::{Arg, Device, Finding, Launch, PtxModule};

/// Bytes of the shared array.
const BYTES: u32 = 1024;

/// Picks one.
fn pick<T: Copy>(random: &mut Random, all: &[T]) -> T {
    all[random.bits() as usize % all.len()]
}

/// An access: where each thread goes, who takes part, and what is done there.
fn access(random: &mut Random, text: &mut String) {
    let (form, size) =
        pick(random, &[("b32", 4), ("b32", 4), ("b32", 4), ("b64", 8), ("v2.b32", 8), ("v4.b32", 16), ("u8", 1)]);
    let some = random.bits() % 64;
    let index = match random.bits() % 12 {
        0..=4 => format!("add.u32 %r4, %r1, {};", some % 3 * 32),
        5 | 6 => format!("xor.b32 %r4, %r1, {some};"),
        7 => "shr.u32 %r4, %r1, 1;".to_owned(),
        8 => format!("add.u32 %r4, %r2, {some};"),
        9 => format!("mov.u32 %r4, {some};"),
        10 => "sub.u32 %r4, 127, %r1;".to_owned(),
        _ => format!("mul.lo.u32 %r4, %r1, {};", 2 * some + 1),
    };
    let guard = match random.bits() % 6 {
        0 => format!("setp.eq.u32 %p1, %r3, {};", some % 4),
        1 => format!("setp.lt.u32 %p1, %r2, {some};"),
        2 => format!("setp.ge.u32 %p1, %r1, {};", 2 * some),
        _ => "setp.eq.u32 %p1, 0, 0;".to_owned(),
    };
    let _ = write!(text, "{index} mul.lo.u32 %r4, %r4, {size}; and.b32 %r4, %r4, {};\n{guard}\n", BYTES - size);
    let (one, two, four) = ("%r5", "{%r5, %r6}", "{%r5, %r6, %r7, %r8}");
    let data = match form {
        "b64" => "%rd1",
        "v2.b32" => two,
        "v4.b32" => four,
        _ => one,
    };
    let value = match random.bits() % 4 {
        0 => "mov.u32 %r5, 0; mov.u64 %rd1, 0;".to_owned(),
        _ => format!("add.u32 %r5, %r1, {some}; cvt.u64.u32 %rd1, %r5;"),
    };
    let _ = match random.bits() % 12 {
        0..=5 => writeln!(text, "@%p1 ld.shared.{form} {data}, [%r4];"),
        6..=8 => writeln!(text, "{value}\n@%p1 st.shared.{form} [%r4], {data};"),
        9 => writeln!(text, "and.b32 %r4, %r4, {};\n@%p1 ld.volatile.shared.u32 %r6, [%r4];", BYTES - 4),
        10 => writeln!(text, "and.b32 %r4, %r4, {};\n@%p1 st.volatile.shared.u32 [%r4], %r1;", BYTES - 4),
        _ => writeln!(text, "and.b32 %r4, %r4, {};\n@%p1 red.shared.add.u32 [%r4], 1;", BYTES - 4),
    };
}

/// What orders some of the threads, most often nothing.
fn order(random: &mut Random, calm: bool) -> &'static str {
    match random.bits() % if calm { 6 } else { 16 } {
        0..=4 => "bar.sync 0;\n",
        5 => "bar.warp.sync -1;\n",
        6 => "membar.cta;\n",
        7 => "setp.lt.u32 %p2, %r3, 2;\n@%p2 bar.sync 1, 64;\n",
        8 => "setp.lt.u32 %p2, %r3, 2;\n@%p2 bar.arrive 2, 128;\n@!%p2 bar.sync 2, 128;\n",
        _ => "",
    }
}

/// A kernel of 128 threads.
fn kernel(random: &mut Random) -> String {
    let mut body = String::new();
    if !random.bits().is_multiple_of(4) {
        body += "shl.b32 %r4, %r1, 3;\nst.shared.v2.b32 [%r4], {%r1, %r2};\n";
        body += pick(random, &["bar.sync 0;\n", "bar.sync 0;\n", ""]);
    }
    // Kernels with a barrier behind nearly each access are often right.
    let calm = random.bits().is_multiple_of(2);
    for _ in 0..2 + random.bits() % if calm { 5 } else { 12 } {
        access(random, &mut body);
        body += order(random, calm);
    }
    format!(
        ".version 8.0
.target sm_80
.address_size 64
.visible .entry chaos(.param .u64 nothing)
{{
.reg .pred %p<3>;
.reg .b32 %r<9>;
.reg .b64 %rd<2>;
.shared .align 16 .b8 tile[{BYTES}];
mov.u32 %r1, %tid.x;
and.b32 %r2, %r1, 31;
shr.u32 %r3, %r1, 5;
mov.u32 %r6, 1;
mov.u32 %r7, 2;
mov.u32 %r8, 3;
{body}
ret;
}}"
    )
}

/// The same kernel with nothing put off, for a compare-and-swap that is never reached.
fn at_once(ptx: &str) -> String {
    ptx.replace("ret;\n}", "ret;\natom.shared.cas.b32 %r5, [%r4], %r6, %r7;\nret;\n}")
}

fn findings(ptx: &str) -> Vec<Finding> {
    let module = PtxModule::load(ptx).unwrap_or_else(|error| panic!("{error}\n{ptx}"));
    let mut device = Device::new();
    device.set_cores(1);
    let nothing = upload(&mut device, &[0u32]);
    device.launch(&module, "chaos", Launch::linear(2, 128), &[Arg::Pointer(nothing)]).expect("it runs").findings
}

#[test]
fn what_is_put_off_is_found_all_the_same() {
    let mut random = Random(11);
    let mut mistaken = 0;
    for case in 0..1500 {
        let ptx = kernel(&mut random);
        let found = findings(&ptx);
        assert_eq!(found, findings(&at_once(&ptx)), "case {case}:\n{ptx}");
        mistaken += usize::from(!found.is_empty());
    }
    // Both answers came often.
    assert!((300..=1400).contains(&mistaken), "{mistaken}");
}

#[test]
fn more_reads_than_are_put_off() {
    // Each thread reads all words in turn, far more often than accesses are kept, and one thread then writes a word.
    let ptx = |writer: u32| {
        format!(
            ".version 8.0
.target sm_80
.address_size 64
.visible .entry chaos(.param .u64 nothing)
{{
.reg .pred %p<3>;
.reg .b32 %r<9>;
.shared .align 16 .b8 tile[{BYTES}];
mov.u32 %r1, %tid.x;
shl.b32 %r4, %r1, 3;
st.shared.v2.b32 [%r4], {{%r1, %r1}};
bar.sync 0;
mov.u32 %r2, 0;
LOOP:
ld.shared.u32 %r5, [%r4];
add.u32 %r4, %r4, 4;
and.b32 %r4, %r4, {last};
add.u32 %r2, %r2, 1;
setp.lt.u32 %p1, %r2, 5000;
@%p1 bra LOOP;
setp.eq.u32 %p2, %r1, {writer};
mov.u32 %r6, 1;
mov.u32 %r7, 2;
@%p2 st.shared.u32 [%r4], %r2;
ret;
}}",
            last = BYTES - 4
        )
    };
    for writer in [0, 31, 32, 127] {
        let found = findings(&ptx(writer));
        assert!(!found.is_empty());
        assert_eq!(found, findings(&at_once(&ptx(writer))), "{writer}");
    }
}
