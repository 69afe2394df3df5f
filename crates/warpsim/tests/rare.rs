//! Instructions that few kernels need: `set` and its kin, carries, directed rounding of doubles, half atomics, barriers
//! in shared memory. Expected values come from whole numbers, or are those of the PTX ISA's own words.

mod common;

use common::one::{check, run};
use common::{Random, clean, download, module, upload};
use warpsim::{Arg, Device, Kind, Launch, PtxModule};

const MINUS: u64 = 0xffff_ffff;

fn f(x: f32) -> u64 {
    x.to_bits().into()
}

fn d(x: f64) -> u64 {
    x.to_bits()
}

#[test]
fn values_of_comparisons() {
    check("set.lt.u32.f32 %r, %x, %y;", &[([f(1.0), f(2.0)], MINUS), ([f(2.0), f(1.0)], 0), ([f(f32::NAN), 0], 0)]);
    check("set.ge.f32.s32 %r, %x, %y;", &[([1, MINUS], f(1.0)), ([MINUS, 1], 0)]);
    check("set.nan.s32.f64 %r, %a, %b;", &[([d(f64::NAN), 0], MINUS), ([0, 0], 0)]);
    check("set.eq.and.u32.u32 %r, %x, %y, !%yes;", &[([1, 1], 0)]);
    check("set.gt.f16.f16 %rs, %h, %i;", &[([0x3c00, 0xbc00], 0x3c00), ([0x7e00, 0], 0)]);
    check("set.le.f16x2.f16x2 %r, %x, %y;", &[([0x3c00_4000, 0x4000_3c00], 0x3c00_0000)]);
    check("set.neu.u32.bf16x2 %r, %x, %y;", &[([0x3f80_7fc0, 0x3f80_3f80], 0xffff)]);
    check("cnot.b32 %r, %x;", &[([0], 1), ([7], 0)]);
    check("cnot.b64 %rd, %a;", &[([0], 1), ([1 << 40], 0)]);
    check("slct.u32.s32 %r, %x, %y, %z;", &[([1, 2, 0], 1), ([1, 2, MINUS], 2)]);
    check("slct.b64.f32 %rd, %a, %b, %z;", &[([1, 2, f(-0.0)], 1), ([1, 2, f(-1.0)], 2), ([1, 2, f(f32::NAN)], 2)]);
    // The lower and the upper half of a packed comparison.
    let halves = "setp.lt.f16x2 %p|%q, %x, %y; selp.b32 %r, 2, 0, %q; @%p or.b32 %r, %r, 1;";
    let words =
        run(&format!("mov.b32 %r, 0; {halves}"), &[[0x3c00_4000, 0x4000_3c00, 0], [0x4000_3c00, 0x3c00_4000, 0]]);
    assert_eq!(words, [2, 1]);
}

#[test]
fn carries_between_words() {
    let mut random = Random(5);
    let cases: Vec<[u64; 3]> = (0..40).map(|_| std::array::from_fn(|_| random.bits() | random.bits())).collect();
    // 64 bits by words of 32, against 64-bit arithmetic.
    let split = ".reg .b32 %l<2>, %m<2>, %o<2>; mov.b64 {%l0, %l1}, %a; mov.b64 {%m0, %m1}, %b;";
    let join = "mov.b64 %rd, {%o0, %o1};";
    let line = |body: &str| format!("mov.b64 %rd, 0; {{ {split} {body} {join} }}");
    let sum = line("add.cc.u32 %o0, %l0, %m0; addc.u32 %o1, %l1, %m1;");
    let difference = line("sub.cc.u32 %o0, %l0, %m0; subc.u32 %o1, %l1, %m1;");
    let product = line(
        "mul.lo.u32 %o0, %l0, %m0; mul.hi.u32 %o1, %l0, %m0; mad.lo.u32 %o1, %l0, %m1, %o1; mad.lo.u32 %o1, %l1, %m0, %o1;",
    );
    let through = |line: &str| run(line, &cases);
    assert_eq!(through(&sum), cases.iter().map(|c| c[0].wrapping_add(c[1])).collect::<Vec<_>>());
    assert_eq!(through(&difference), cases.iter().map(|c| c[0].wrapping_sub(c[1])).collect::<Vec<_>>());
    assert_eq!(through(&product), cases.iter().map(|c| c[0].wrapping_mul(c[1])).collect::<Vec<_>>());
    // The upper 64 bits of a × b + c in 128 bits.
    let high = run("mad.lo.cc.u64 %rd, %a, %b, %c; madc.hi.u64 %rd, %a, %b, 0;", &cases);
    let expected = cases.iter().map(|c| (u128::from(c[0]) * u128::from(c[1]) + u128::from(c[2])) >> 64);
    assert_eq!(high, expected.map(|x| x as u64).collect::<Vec<_>>());
}

#[test]
fn bits_and_parts() {
    // "fns": from the base upwards, downwards, and the base itself.
    check(
        "fns.b32 %r, %x, %y, %z;",
        &[([0b1011_0010, 2, 1], 4), ([0b1011_0010, 2, 3], 7), ([0b1011_0010, 2, 4], MINUS)],
    );
    check("fns.b32 %r, %x, %y, %z;", &[([0b1011_0010, 6, MINUS], 5), ([0b10, 1, 0], 1), ([0b10, 2, 0], MINUS)]);
    check("vabsdiff4.u32.u32.u32 %r, %x, %y, 0;", &[([0xff00_1020, 0x01ff_2010], 0xfeff_1010)]);
    check("vabsdiff4.u32.u32.u32.add %r, %x, %y, %z;", &[([0xff00_1020, 0x01ff_2010, 5], 0xfe + 0xff + 0x20 + 5)]);
    check("vadd2.s32.s32.s32 %r, %x, %y, 0;", &[([0x7fff_0001, 0x0001_0002], 0x8000_0003)]);
    check("vmax4.s32.s32.s32 %r, %x, %y, 0;", &[([0x80ff_017f, 0x0101_0280], 0x0101_027f)]);
}

/// Digits and exponent of a double.
fn parts(x: f64) -> (i128, i32) {
    let (power, digits) = ((x.to_bits() >> 52 & 0x7ff) as i32, (x.to_bits() & ((1 << 52) - 1)) as i128);
    let size = if power == 0 { digits } else { digits | 1 << 52 };
    (if x < 0.0 { -size } else { size }, power.max(1) - 1075)
}

/// Whether `got` is the double next to an exact value: `order` compares a double with that value.
fn next_to(got: f64, order: &dyn Fn(f64) -> std::cmp::Ordering, mode: &str, negative: bool) -> bool {
    let down = order(got).is_le() && order(got.next_up()).is_gt();
    let up = order(got).is_ge() && order(got.next_down()).is_lt();
    match mode {
        "rm" => down,
        "rp" => up,
        _ if negative => up,
        _ => down,
    }
}

#[test]
fn doubles_rounded_away_from_nearest() {
    let mut random = Random(9);
    // Whole numbers of 53 bits: products and sums are exact in 128 bits.
    let mut whole = |bits: u32| {
        let x = ((random.bits() >> (64 - bits)) | 1 << (bits - 1) | 1) as i64;
        if random.bits() & 1 == 0 { x } else { -x }
    };
    let cases: Vec<[i64; 3]> = (0..60).map(|i| [whole(53), whole(53 - i % 30), whole(50)]).collect();
    let bits: Vec<[u64; 3]> = cases.iter().map(|c| c.map(|x| d(x as f64))).collect();
    for mode in ["rz", "rm", "rp"] {
        let results = |line: &str| run(&format!("{line};").replace("MODE", mode), &bits);
        let check = |name: &str,
                     got: Vec<u64>,
                     exact: &dyn Fn(&[i64; 3], f64) -> std::cmp::Ordering,
                     sign: &dyn Fn(&[i64; 3]) -> bool| {
            for (case, got) in cases.iter().zip(got) {
                let got = f64::from_bits(got);
                assert!(next_to(got, &|x| exact(case, x), mode, sign(case)), "{name}.{mode} of {case:?}: {got:e}");
            }
        };
        let [big, small] = [1i128 << 40, 1];
        // x · 2^40 + y.
        let line = "mul.rn.f64 %rd, %a, 0d4270000000000000; add.MODE.f64 %rd, %rd, %b";
        let sum = |c: &[i64; 3]| i128::from(c[0]) * big + i128::from(c[1]) * small;
        check("add", results(line), &|c, x| (x as i128).cmp(&sum(c)), &|c| sum(c) < 0);
        let product = |c: &[i64; 3]| i128::from(c[0]) * i128::from(c[1]);
        check("mul", results("mul.MODE.f64 %rd, %a, %b"), &|c, x| (x as i128).cmp(&product(c)), &|c| product(c) < 0);
        let fused = |c: &[i64; 3]| product(c) + i128::from(c[2]);
        check("fma", results("fma.MODE.f64 %rd, %a, %b, %c"), &|c, x| (x as i128).cmp(&fused(c)), &|c| fused(c) < 0);
        // A quotient by its product with the divisor, a root by its square.
        let quotient = |c: &[i64; 3], x: f64| {
            let (digits, exponent) = parts(x);
            let order = (digits * i128::from(c[1])).cmp(&(i128::from(c[0]) << -exponent));
            if c[1] < 0 { order.reverse() } else { order }
        };
        check("div", results("div.MODE.f64 %rd, %a, %b"), &quotient, &|c| (c[0] < 0) != (c[1] < 0));
        let root = |c: &[i64; 3], x: f64| {
            let (digits, exponent) = parts(x);
            (digits * digits).cmp(&(i128::from(c[0].abs()) << (-2 * exponent)))
        };
        check("sqrt", results("abs.f64 %rd, %a; sqrt.MODE.f64 %rd, %rd"), &root, &|_| false);
    }
    // Ends of the range, zeros.
    check("mul.rz.f64 %rd, %a, %b;", &[([d(1e300), d(1e300)], d(f64::MAX)), ([d(1e-300), d(-1e-300)], d(-0.0))]);
    check("mul.rp.f64 %rd, %a, %b;", &[([d(1e-300), d(1e-300)], 1), ([d(-1e300), d(1e300)], d(f64::MIN))]);
    check("add.rm.f64 %rd, %a, %b;", &[([d(1.0), d(-1.0)], d(-0.0)), ([d(0.0), d(-0.0)], d(-0.0)), ([1, d(-0.0)], 1)]);
    check("add.rp.f64 %rd, %a, %b;", &[([d(1.0), 1], d(1.0f64.next_up())), ([d(-1.0), 1], d((-1.0f64).next_up()))]);
    check("rcp.rm.f64 %rd, %a;", &[([d(3.0)], d((1.0f64 / 3.0).min(0.333_333_333_333_333_3))), ([d(4.0)], d(0.25))]);
    check("cvt.rz.f64.s64 %rd, %a;", &[([i64::MAX as u64], d(9_223_372_036_854_774_784.0)), ([0], 0)]);
    check("cvt.rp.f64.s64 %rd, %a;", &[([(1 << 53) + 1], d(9_007_199_254_740_994.0))]);
    check("cvt.rz.f16.f32 %rs, %x;", &[([f(1.0009)], 0x3c00), ([f(-1e6)], 0xfbff), ([f(1e-8)], 0)]);
    check("cvt.rp.f16.f32 %rs, %x;", &[([f(1.0001)], 0x3c01), ([f(1e-8)], 1), ([f(-1.0001)], 0xbc00)]);
    check("cvt.rm.bf16.f32 %rs, %x;", &[([f(-1.0001)], 0xbf81), ([f(1.0001)], 0x3f80)]);
}

/// `rcp.approx.ftz.f64`: of the upper 32 bits, and only those of the result, within 2^-20.
#[test]
fn rough_reciprocals_of_doubles() {
    let cases: Vec<[u64; 3]> = [1.5, -3.0, 1e-200, 7e99].iter().map(|x| [d(*x) | 0xffff, 0, 0]).collect();
    for (line, exact) in [("rcp", (|x| 1.0 / x) as fn(f64) -> f64), ("rsqrt", |x| 1.0 / x.sqrt())] {
        for (case, got) in cases.iter().zip(run(&format!("{line}.approx.ftz.f64 %rd, %a;"), &cases)) {
            let (value, expected) = (f64::from_bits(got), exact(f64::from_bits(case[0])));
            assert_eq!(got & 0xffff_ffff, 0);
            let close = (value / expected - 1.0).abs() < 2f64.powi(-20) || value.is_nan() && expected.is_nan();
            assert!(close, "{line} of {:e}: {value:e}", f64::from_bits(case[0]));
        }
    }
    check("rcp.approx.ftz.f64 %rd, %a;", &[([1], d(f64::INFINITY)), ([d(f64::NEG_INFINITY)], d(-0.0))]);
}

#[test]
fn registers_and_hints() {
    check("mov.u32 %r, %nsmid; mov.u32 %t, %smid; setp.lt.u32 %p, %t, %r; selp.u32 %r, 1, 0, %p;", &[([0], 1)]);
    check("mov.u32 %r, %cluster_ctarank; mov.u32 %t, %cluster_nctaid.x; mad.lo.u32 %r, %t, 5, %r;", &[([0], 5)]);
    check("mapa.shared::cluster.u32 %r, %x, 0;", &[([77, 0], 77)]);
    check("getctarank.shared::cluster.u32 %r, %x;", &[([77, 0], 0)]);
    check("mapa.u64 %rd, %a, 0;", &[([1 << 40, 0], 1 << 40)]);
    check("elect.sync %r|%q, 1; selp.u32 %t, 10, 0, %q; add.u32 %r, %r, %t;", &[([0], 10)]);
    let policy = "createpolicy.fractional.L2::evict_last.b64 %rd, 1.0; prefetch.global.L2 [%in];";
    let load = "ld.global.nc.L1::no_allocate.L2::cache_hint.u32 %r, [%in], %rd;";
    let fences = "fence.proxy.async; fence.acq_rel.gpu; griddepcontrol.wait; nanosleep.u32 20; discard.global.L2 [%in], 128; \
         barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned; \
         cp.async.bulk.prefetch.L2.global [%in], 16;";
    check(&format!("mov.u32 %r, 0; {policy} {load} {fences}"), &[([77], 77)]);
}

#[test]
fn a_failed_assertion_says_what_it_compared() {
    let mut device = Device::new();
    let values = |bad: usize| (0..32).map(|i| if i == bad { -1 } else { i as i32 }).collect::<Vec<_>>();
    for bad in [5usize, 99] {
        let (x, out) = (upload(&mut device, &values(bad)), upload(&mut device, &[0i32; 32]));
        let args = [x, out].map(Arg::Pointer);
        let report = device.launch(&module("rare"), "asserted", Launch::linear(1, 32), &args).expect("it runs");
        match report.findings.as_slice() {
            [] => assert_eq!(bad, 99),
            [finding] => {
                assert_eq!((finding.kind, finding.thread), (Kind::Trap, [5, 0, 0]));
                let text = &finding.message;
                assert!(
                    text.contains("rare.cu:4") && text.contains("assertion `x[threadIdx.x] >= 0` failed"),
                    "{text}"
                );
            }
            more => panic!("{more:?}"),
        }
    }
}

#[test]
fn atomics_on_halves_and_vectors() {
    let mut device = Device::new();
    let halves = upload(&mut device, &[0u16; 3]);
    let pairs = upload(&mut device, &[0u16; 2]);
    let (brain, brains) = (upload(&mut device, &[0u16; 1]), upload(&mut device, &[0u16; 2]));
    let (two, four) = (upload(&mut device, &[0f32; 2]), upload(&mut device, &[0f32; 4]));
    let (word, out) = (upload(&mut device, &[0u16; 2]), upload(&mut device, &[0f32; 128]));
    let args = [halves, pairs, brain, brains, two, four, word, out].map(Arg::Pointer);
    clean(&mut device, &module("rare"), "atomics", Launch::linear(2, 32), &args);
    // 64 threads; 1.5 to each third of them, all exact.
    assert_eq!(download::<u16>(&device, halves, 3), [0x5020, 0x4fe0, 0x4fe0], "33 and 31.5");
    assert_eq!(download::<u16>(&device, pairs, 2), [0x5400, 0x5800], "64 and 128");
    assert_eq!(download::<u16>(&device, brain, 1), [0x4280], "64");
    assert_eq!(download::<u16>(&device, brains, 2), [0x4280, 0x4300], "64 and 128");
    assert_eq!(download::<f32>(&device, two, 2), [64.0, 128.0]);
    assert_eq!(download::<f32>(&device, four, 4), [64.0, 128.0, 192.0, 256.0]);
    assert_eq!(download::<u16>(&device, word, 2), [64, 0]);
    // Blocks in order, lanes in order: what each thread found.
    let found = download::<f32>(&device, out, 128);
    assert_eq!(found, (0..64).flat_map(|i| [i as f32, 2.0 * i as f32]).collect::<Vec<_>>());
}

/// A module with one kernel that the simulator refuses says so by name, and the others can still be looked at.
#[test]
fn a_call_through_a_pointer_is_named() {
    let ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry one(.param .u64 f)\n{\n\
               .reg .b64 %rd<2>; ld.param.u64 %rd1, [f];\n{ .reg .b32 t; prototype_0 : .callprototype ()_ ();\n\
               call %rd1, prototype_0;\n}\nret;\n}\n";
    let error = PtxModule::load(ptx).expect_err("refused").to_string();
    assert!(error.contains("a call through a pointer, and no function of this PTX fits it"), "{error}");
}

/// Inline assembly repeats names of labels in scopes of its own: each branch goes to the label of the innermost scope
/// around it that has one.
#[test]
fn labels_belong_to_their_scopes() {
    let again = |steps: u32| {
        format!(
            "{{ .reg .pred more; .reg .u32 left; mov.u32 left, {steps};\n again: add.u32 %r, %r, 1; sub.u32 left, left, 1;\n \
             setp.ne.u32 more, left, 0; @more bra again; }}\n"
        )
    };
    let line =
        format!("mov.u32 %r, 0; {} {{ {} bra out; }} add.u32 %r, %r, 100; out: {}", again(3), again(4), again(2));
    check(&line, &[([0], 9)]);
}
