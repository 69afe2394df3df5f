//! Whole warps at once give what single lanes give: the same launch with checks, without them, and with checks of volatile
//! accesses (which go lane by lane), with and without counters, at all kinds of masks and addresses.

mod common;

use common::{Random, download, upload};
use warpsim::{Arg, Device, Launch, PtxModule, Report};

/// A load and a store of each form, through a table of indices: lane `i` reads `x[index[i]]` and writes
/// `y[index[32 + i]]`, if bit `i` of `mask` is set. Shared memory takes the way between.
fn kernel(ty: &str, bytes: u32, count: u32, generic: bool) -> String {
    let (register, vector) = if bytes == 8 { ("rd", "%v<9>") } else { ("r", "%v<9>") };
    let kind = if register == "rd" { ".b64" } else { ".b32" };
    let regs: Vec<String> = (0..count).map(|k| format!("%v{k}")).collect();
    let data = if count == 1 { regs[0].clone() } else { format!("{{{}}}", regs.join(", ")) };
    let form = if count == 1 { String::new() } else { format!(".v{count}") };
    let (global, shared) = if generic { ("", "") } else { (".global", ".shared") };
    let to_generic = if generic { "cvta.shared.u64 %rd9, %rd9;" } else { "" };
    let size = bytes * count;
    format!(
        "
.version 8.0
.target sm_80
.address_size 64
.visible .entry move(.param .u64 x, .param .u64 y, .param .u64 index, .param .u32 mask, .param .u32 shift)
{{
    .reg .pred %p<3>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<16>;
    .reg {kind} {vector};
    .shared .align 32 .b8 tile[2048];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u64 %rd3, [index];
    ld.param.u32 %r1, [mask];
    ld.param.u32 %r8, [shift];
    mov.u32 %r2, %tid.x;
    mul.wide.u32 %rd4, %r2, 4;
    add.s64 %rd3, %rd3, %rd4;
    ld.global.u32 %r3, [%rd3];
    ld.global.u32 %r4, [%rd3+128];
    mul.wide.u32 %rd5, %r3, {size};
    add.s64 %rd6, %rd1, %rd5;
    mul.wide.u32 %rd7, %r4, {size};
    add.s64 %rd8, %rd2, %rd7;
    mov.u64 %rd9, tile;
    {to_generic}
    and.b32 %r9, %r3, 63;
    mul.wide.u32 %rd10, %r9, {size};
    add.s64 %rd9, %rd9, %rd10;
    shr.u32 %r5, %r1, %r2;
    and.b32 %r6, %r5, 1;
    setp.eq.u32 %p1, %r6, 0;
    @%p1 bra DONE;
    ld{global}{form}.{ty} {data}, [%rd6];
    st{shared}{form}.{ty} [%rd9], {data};
    ld{shared}{form}.{ty} {data}, [%rd9];
    st{global}{form}.{ty} [%rd8], {data};
    // The base changes between two accesses through it.
    add.s64 %rd8, %rd8, {size};
    ld{global}{form}.{ty} {data}, [%rd6+{size}];
    st{global}{form}.{ty} [%rd8], {data};
    setp.gt.u32 %p2, %r2, %r8;
    @%p2 ld{global}{form}.{ty} {data}, [%rd6+{twice}];
    st{global}{form}.{ty} [%rd8+{size}], {data};
DONE:
    ret;
}}",
        twice = 2 * size
    )
}

/// The same with volatile accesses.
fn by_lane(ptx: &str) -> String {
    let volatile = ptx.replace(" ld.", " ld.volatile.").replace(" st.", " st.volatile.");
    volatile.replace("ld.volatile.param", "ld.param")
}

const CELLS: usize = 4096;

fn run(
    module: &PtxModule,
    bytes: &[u8],
    index: &[u32],
    (mask, shift): (u32, u32),
    looks: (bool, bool),
) -> (Report, Vec<u8>) {
    let mut device = Device::new();
    device.set_cores(1);
    device.set_checks(looks.0);
    device.set_counters(looks.1);
    let (x, y) = (upload(&mut device, bytes), upload(&mut device, &[0xa5u8; CELLS]));
    let index = upload(&mut device, index);
    let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::Pointer(index), Arg::I32(mask as i32), Arg::I32(shift as i32)];
    let report = device.launch(module, "move", Launch::linear(1, 32), &args).expect("it runs");
    (report, download(&device, y, CELLS))
}

/// Addresses of a warp of the usual kinds, and the unusual.
fn rows(random: &mut Random, most: u32) -> Vec<[u32; 32]> {
    let most = most - 3;
    let mut rows: Vec<[u32; 32]> = vec![
        std::array::from_fn(|i| i as u32),
        std::array::from_fn(|i| 31 - i as u32),
        [7; 32],
        std::array::from_fn(|i| (i as u32 / 16) * 16),
        std::array::from_fn(|i| i as u32 % 16 + 3),
        std::array::from_fn(|i| (i as u32 / 8) * 9 + i as u32 % 8),
        std::array::from_fn(|i| i as u32 * 2 % most),
        std::array::from_fn(|i| i as u32 + u32::from(i >= 17)),
    ];
    for _ in 0..6 {
        rows.push(std::array::from_fn(|_| (random.bits() % u64::from(most)) as u32));
    }
    rows.iter_mut().for_each(|row| row.iter_mut().for_each(|i| *i = (*i).min(most)));
    rows
}

const MASKS: [u32; 10] =
    [u32::MAX, 0x7fff_ffff, 0xffff_fffe, 0xffff, 0xffff_0000, 0x00ff_ff00, 0x5555_5555, 1, 1 << 31, 0xf0f0_1234];

#[test]
fn every_form_at_awkward_masks() {
    let mut random = Random(11);
    let data: Vec<u8> = (0..CELLS).map(|_| random.bits() as u8).collect();
    for (ty, bytes, count) in [
        ("f32", 4, 1),
        ("u32", 4, 2),
        ("f32", 4, 4),
        ("u64", 8, 1),
        ("u64", 8, 2),
        ("s16", 2, 1),
        ("u8", 1, 1),
        ("s8", 1, 1),
    ] {
        for generic in [false, true] {
            let ptx = kernel(ty, bytes, count, generic);
            let module = PtxModule::load(&ptx).expect("it loads");
            let by_lane = PtxModule::load(&by_lane(&ptx)).expect("it loads");
            let cells = CELLS as u32 / (bytes * count);
            for row in rows(&mut random, cells.min(64)) {
                for mask in MASKS {
                    let to: [u32; 32] = rows(&mut random, cells)[(random.bits() % 14) as usize];
                    let index: Vec<u32> = row.into_iter().chain(to).collect();
                    let shift = (random.bits() % 33) as u32;
                    // Lanes that write the same cell race by the rules; the values must still agree.
                    let (single, lanes) = run(&by_lane, &data, &index, (mask, shift), (true, true));
                    let (checked, together) = run(&module, &data, &index, (mask, shift), (true, true));
                    let (counted, whole) = run(&module, &data, &index, (mask, shift), (false, true));
                    let (bare, off) = run(&module, &data, &index, (mask, shift), (false, false));
                    let what = format!("{ty} × {count}, generic {generic}, mask {mask:#x}, shift {shift}, {index:?}");
                    assert_eq!(together, lanes, "{what}");
                    assert_eq!(whole, lanes, "{what}");
                    assert_eq!(off, lanes, "{what}");
                    assert_eq!(checked.counters, counted.counters, "{what}");
                    assert_eq!(single.counters, counted.counters, "{what}");
                    assert_eq!(bare.counters, Default::default(), "{what}");
                    assert!(bare.lines.is_empty());
                }
            }
        }
    }
}

#[test]
fn one_lane_outside_is_found_and_the_others_are_served() {
    let module = PtxModule::load(&kernel("f32", 4, 1, false)).expect("it loads");
    let data: Vec<u8> = (0..CELLS).map(|i| i as u8).collect();
    for (lane, beyond) in [(0usize, CELLS as u32 / 4), (13, 1 << 30), (31, CELLS as u32 / 4 - 1), (31, 0x3fff_ffff)] {
        for mask in MASKS.into_iter().filter(|mask| mask >> lane & 1 != 0) {
            let mut index: Vec<u32> = (0..64).map(|i| i % 32).collect();
            index[lane] = beyond;
            let [all, none] = [true, false].map(|checks| run(&module, &data, &index, (mask, 32), (checks, true)));
            let found: Vec<_> = none.0.findings.iter().map(|f| (f.kind, f.thread)).collect();
            assert!(!found.is_empty() && found.iter().all(|f| f.1 == [lane as u32, 0, 0]), "{found:?}");
            assert_eq!(none.1, all.1, "lane {lane}, index {beyond}, mask {mask:#x}");
            assert_eq!(none.0.counters, all.0.counters, "lane {lane}, index {beyond}, mask {mask:#x}");
        }
    }
}
