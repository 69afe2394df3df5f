//! Counters where theory gives them, and results that do not depend on the number of cores.

mod common;

use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Counters, Device, Launch, Report};

/// One warp, one kernel of `patterns` with an integer argument.
fn pattern(kernel: &str, value: i32, shared_bytes: u32) -> Counters {
    patterned(kernel, value, shared_bytes, true)
}

fn patterned(kernel: &str, value: i32, shared_bytes: u32, checks: bool) -> Counters {
    let module = module("patterns");
    let mut device = Device::new();
    device.set_checks(checks);
    let (x, out) = (upload(&mut device, &[0f32; 2048]), upload(&mut device, &[0f32; 64]));
    let args = match kernel {
        "bank_stride" => vec![Arg::Pointer(out), Arg::I32(value)],
        "vector4" => vec![Arg::Pointer(x), Arg::Pointer(out)],
        _ => vec![Arg::Pointer(x), Arg::Pointer(out), Arg::I32(value)],
    };
    let launch = Launch { shared_bytes, ..Launch::linear(1, if kernel == "vector4" { 16 } else { 32 }) };
    clean(&mut device, &module, kernel, launch, &args).counters
}

#[test]
fn sectors_of_strides() {
    for stride in 1..=40u64 {
        let counters = pattern("strided", stride as i32, 0);
        assert_eq!(counters.global_load_requests, 1);
        let sectors: std::collections::BTreeSet<u64> = (0..32).map(|i| i * stride * 4 / 32).collect();
        assert_eq!(counters.global_load_sectors, sectors.len() as u64, "stride {stride}");
        assert_eq!((counters.global_store_requests, counters.global_store_sectors), (1, 4));
    }
    assert_eq!(pattern("strided", 1, 0).global_load_sectors, 4);
    assert_eq!(pattern("strided", 2, 0).global_load_sectors, 8);
    assert_eq!(pattern("strided", 8, 0).global_load_sectors, 32);
    assert_eq!(pattern("strided", 0, 0).global_load_sectors, 1);
}

#[test]
fn sectors_of_offsets_and_vectors() {
    for offset in 0..16 {
        let expected = if offset % 8 == 0 { 4 } else { 5 };
        assert_eq!(pattern("shifted", offset, 0).global_load_sectors, expected, "offset {offset}");
    }
    // 16 lanes × 16 bytes.
    let counters = pattern("vector4", 0, 0);
    assert_eq!((counters.global_load_requests, counters.global_load_sectors), (1, 8));
    assert_eq!((counters.global_store_requests, counters.global_store_sectors), (1, 8));
}

#[test]
fn sectors_of_a_gather_do_not_depend_on_its_order() {
    let module = module("patterns");
    let mut random = Random(5);
    for _ in 0..20 {
        let index: Vec<i32> = (0..32).map(|_| (random.bits() % 512) as i32).collect();
        let mut device = Device::new();
        let (x, out) = (upload(&mut device, &[0f32; 512]), upload(&mut device, &[0f32; 32]));
        let at = upload(&mut device, &index);
        let args = [Arg::Pointer(x), Arg::Pointer(at), Arg::Pointer(out), Arg::I32(32)];
        let counters = clean(&mut device, &module, "gather", Launch::linear(1, 32), &args).counters;
        let sectors: std::collections::BTreeSet<i32> = index.iter().map(|i| i / 8).collect();
        assert_eq!(counters.global_load_sectors, sectors.len() as u64 + 4);
    }
}

#[test]
fn bank_conflicts_of_strides() {
    for stride in 1..=40u32 {
        let counters = pattern("bank_stride", stride as i32, 32 * stride * 4);
        // 32 / gcd banks are used, each by gcd lanes with different words.
        let ways = (1..=32).rev().find(|d| stride % d == 0 && 32 % d == 0).unwrap_or(1);
        assert_eq!(counters.shared_load_wavefronts, u64::from(ways), "stride {stride}");
        assert_eq!(counters.shared_load_bank_conflicts, u64::from(ways) - 1, "stride {stride}");
        assert_eq!(counters.shared_store_wavefronts, u64::from(ways), "stride {stride}");
        assert_eq!(counters.barriers, 1);
    }
    // One word for all lanes is a broadcast. (That all write it as well is a race, found elsewhere.)
    assert_eq!(patterned("bank_stride", 0, 4, false).shared_load_bank_conflicts, 0);
}

fn transpose(kernel: &str, n: u32) -> Counters {
    let module = module("transpose");
    let mut device = Device::new();
    let size = (n * n) as usize;
    let (x, out) = (upload(&mut device, &vec![1f32; size]), upload(&mut device, &vec![0f32; size]));
    let args = [Arg::Pointer(x), Arg::Pointer(out), Arg::I32(n as i32), Arg::I32(n as i32)];
    let launch = Launch { grid: [n / 32, n / 32, 1], block: [32, 32, 1], shared_bytes: 0 };
    clean(&mut device, &module, kernel, launch, &args).counters
}

#[test]
fn padding_frees_the_transpose_of_conflicts() {
    let warps = 2 * 2 * 32;
    let plain = transpose("transpose_plain", 64);
    assert_eq!(plain.shared_load_wavefronts, 32 * warps);
    assert_eq!(plain.shared_load_bank_conflicts, 31 * warps);
    assert_eq!(plain.shared_store_bank_conflicts, 0);
    let padded = transpose("transpose_padded", 64);
    assert_eq!(padded.shared_load_wavefronts, warps);
    assert_eq!(padded.shared_load_bank_conflicts, 0);
    for counters in [plain, padded] {
        assert_eq!((counters.global_load_requests, counters.global_load_sectors), (warps, 4 * warps));
        assert_eq!((counters.global_store_requests, counters.global_store_sectors), (warps, 4 * warps));
        assert_eq!(counters.divergent_branches, 0);
    }
}

#[test]
fn lines_add_up_to_the_total() {
    let report = matmul(50, 1).0;
    let mut sum = Counters::default();
    report.lines.values().for_each(|line| sum += *line);
    assert_eq!(sum, report.counters);
    let name = |line: u32| Some(warpsim::SourceLine { file: "matmul_tiled.cu".into(), line });
    // `sum += a_tile[…] * b_tile[…]`: all shared loads are on this line.
    let inner = report.lines.iter().filter(|(_, c)| c.shared_load_wavefronts > 0).map(|(l, _)| l.clone());
    assert_eq!(inner.collect::<Vec<_>>(), [name(21)]);
}

fn matmul(n: usize, cores: usize) -> (Report, Vec<f32>) {
    let module = module("matmul_tiled");
    let mut random = Random(9);
    let mut device = Device::new();
    device.set_cores(cores);
    let (a, b) = (random.floats(n * n), random.floats(n * n));
    let (x, y, out) = (upload(&mut device, &a), upload(&mut device, &b), upload(&mut device, &vec![0f32; n * n]));
    let side = (n as u32).div_ceil(16);
    let launch = Launch { grid: [side, side, 1], block: [16, 16, 1], shared_bytes: 0 };
    let args = [Arg::Pointer(x), Arg::Pointer(y), Arg::Pointer(out), Arg::I32(n as i32)];
    let report = clean(&mut device, &module, "matmul", launch, &args);
    (report, download(&device, out, n * n))
}

#[test]
fn cores_change_nothing() {
    let (one, result) = matmul(100, 1);
    for cores in [2, 3, 8] {
        let (report, other) = matmul(100, cores);
        assert_eq!(report.counters, one.counters);
        assert_eq!(report.lines, one.lines);
        assert!(result.iter().zip(&other).all(|(x, y)| x.to_bits() == y.to_bits()));
    }
}

/// Wavefronts and conflicts of one shared load and one shared store of `words` words a lane, `stride` words apart.
fn wide_shared(words: usize, stride: u32) -> [(u64, u64); 2] {
    let (vector, registers) = match words {
        1 => ("", "%r1"),
        2 => (".v2", "{%r1, %r2}"),
        _ => (".v4", "{%r1, %r2, %r3, %r4}"),
    };
    let ptx = format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.extern .shared .align 16 .b8 tile[];\n.visible .entry k()\n{{\n\
         .reg .b32 %r<8>;\n mov.u32 %r5, tile; mov.u32 %r6, %tid.x; mad.lo.s32 %r5, %r6, {}, %r5;\n\
         st.shared{vector}.b32 [%r5], {registers};\n bar.sync 0;\n ld.shared{vector}.b32 {registers}, [%r5];\n ret;\n}}\n",
        4 * stride
    );
    let module = warpsim::PtxModule::load(&ptx).unwrap_or_else(|e| panic!("{e}"));
    let launch = Launch { shared_bytes: 32 * 4 * stride.max(4), ..Launch::linear(1, 32) };
    let c = clean(&mut Device::new(), &module, "k", launch, &[]).counters;
    [
        (c.shared_store_wavefronts, c.shared_store_bank_conflicts),
        (c.shared_load_wavefronts, c.shared_load_bank_conflicts),
    ]
}

#[test]
fn wide_shared_accesses_go_by_parts_of_a_warp() {
    // Words a lane, stride in words, wavefronts, conflicts.
    for (words, stride, waves, conflicts) in [
        (1, 1, 1, 0),
        (1, 2, 2, 1),
        (2, 2, 2, 0),
        (2, 4, 4, 2),
        (2, 32, 32, 30),
        (4, 4, 4, 0),
        (4, 8, 8, 4),
        (4, 32, 32, 28),
        (4, 36, 4, 0),
    ] {
        assert_eq!(wide_shared(words, stride), [(waves, conflicts); 2], "{words} words, stride {stride}");
    }
}
