//! Single instructions at the edges of their range; quoted names are sections of the PTX ISA.

mod common;

use common::one::{check, run};

const INT_MIN: u64 = 0x8000_0000;
const MINUS: u64 = 0xffff_ffff;

fn f(x: f32) -> u64 {
    x.to_bits().into()
}

fn d(x: f64) -> u64 {
    x.to_bits()
}

const NAN: u64 = 0x7fff_ffff;

#[test]
fn integer_arithmetic() {
    check("add.s32 %r, %x, %y;", &[([INT_MIN, MINUS], 0x7fff_ffff), ([1, 2], 3)]);
    check("add.sat.s32 %r, %x, %y;", &[([INT_MIN, MINUS], INT_MIN), ([0x7fff_ffff, 1], 0x7fff_ffff)]);
    check("sub.sat.s32 %r, %x, %y;", &[([INT_MIN, 1], INT_MIN), ([0, INT_MIN], 0x7fff_ffff)]);
    check("add.s16 %rs, %h, %i;", &[([0xffff, 1], 0), ([0x7fff, 1], 0x8000)]);
    check("mul.hi.s32 %r, %x, %y;", &[([INT_MIN, INT_MIN], 0x4000_0000), ([MINUS, 1], MINUS)]);
    check("mul.hi.u64 %rd, %a, %b;", &[([u64::MAX, u64::MAX], u64::MAX - 1)]);
    check("mul.wide.s16 %r, %h, %i;", &[([0x8000, 0x8000], 0x4000_0000), ([0xffff, 5], MINUS - 4)]);
    check("mad.hi.s32 %r, %x, %y, %z;", &[([MINUS, 1, 1], 0), ([INT_MIN, INT_MIN, MINUS], 0x3fff_ffff)]);
    check("mad.wide.s32 %rd, %x, %y, %c;", &[([MINUS, 3, 10], 7)]);
    // "mul24": 24-bit products.
    check("mul24.lo.s32 %r, %x, %y;", &[([0x00ff_ffff, 3], MINUS - 2), ([0xff00_0002, 3], 6)]);
    check("mul24.hi.u32 %r, %x, %y;", &[([0x00ff_ffff, 0x00ff_ffff], 0xffff_fe00)]);
    check("div.s32 %r, %x, %y;", &[([7, MINUS - 1], MINUS - 2), ([INT_MIN, MINUS], INT_MIN)]);
    check("rem.s32 %r, %x, %y;", &[([MINUS - 6, 3], MINUS), ([INT_MIN, MINUS], 0)]);
    check("rem.u64 %rd, %a, %b;", &[([u64::MAX, 10], 5)]);
    // By zero: as GPUs do it.
    for sign in ["s", "u"] {
        check(&format!("div.{sign}32 %r, %x, %y;"), &[([7, 0], MINUS)]);
        check(&format!("rem.{sign}32 %r, %x, %y;"), &[([7, 0], 7)]);
        check(&format!("div.{sign}64 %rd, %a, %b;"), &[([7, 0], u64::MAX)]);
        check(&format!("rem.{sign}64 %rd, %a, %b;"), &[([7, 0], 7)]);
    }
    check("abs.s32 %r, %x;", &[([MINUS], 1), ([INT_MIN], INT_MIN)]);
    check("neg.s16 %rs, %h;", &[([1], 0xffff), ([0x8000], 0x8000)]);
    check("min.s16 %rs, %h, %i;", &[([0xffff, 1], 0xffff)]);
    check("max.u16 %rs, %h, %i;", &[([0xffff, 1], 0xffff)]);
    check("sad.s32 %r, %x, %y, %z;", &[([MINUS, 1, 5], 7), ([INT_MIN, 0x7fff_ffff, 0], MINUS)]);
    check("popc.b64 %r, %a;", &[([u64::MAX], 64), ([0], 0)]);
    check("clz.b32 %r, %x;", &[([0], 32), ([1], 31)]);
    // "bfind": all ones when no bit is found; signed operands look for the first non-sign bit.
    check("bfind.u32 %r, %x;", &[([0], MINUS), ([1], 0), ([INT_MIN], 31)]);
    check("bfind.s32 %r, %x;", &[([MINUS], MINUS), ([MINUS - 4], 2)]);
    check("bfind.shiftamt.u64 %r, %a;", &[([1], 63), ([0], MINUS)]);
    check("dp4a.u32.s32 %r, %x, %y, %z;", &[([0xff, 0xff, 0], MINUS - 254), ([0x0101_0101, 0x0403_0201, 7], 17)]);
    check("dp2a.lo.s32.s32 %r, %x, %y, %z;", &[([0xffff_0002, 0x0000_0503, 0], 1)]);
    check("dp2a.hi.s32.s32 %r, %x, %y, %z;", &[([0xffff_0002, 0x0503_0000, 0], 1)]);
}

#[test]
fn bits_and_shifts() {
    // "shl", "shr": amounts beyond the width clamp.
    check("shl.b32 %r, %x, %y;", &[([1, 31], INT_MIN), ([1, 32], 0), ([1, MINUS], 0)]);
    check("shr.s32 %r, %x, %y;", &[([INT_MIN, 40], MINUS), ([INT_MIN, 1], 0xc000_0000)]);
    check("shr.u32 %r, %x, %y;", &[([INT_MIN, 31], 1), ([INT_MIN, 32], 0)]);
    check("shl.b64 %rd, %a, %y;", &[([1, 63], 1 << 63), ([1, 64], 0)]);
    check("shr.s64 %rd, %a, %y;", &[([1 << 63, 70], u64::MAX)]);
    check("shl.b16 %rs, %h, %y;", &[([0xffff, 4], 0xfff0), ([1, 16], 0)]);
    check("shr.s16 %rs, %h, %y;", &[([0x8000, 3], 0xf000), ([0x8000, 99], 0xffff)]);
    check("shf.l.wrap.b32 %r, %x, %y, %z;", &[([INT_MIN, 1, 1], 3), ([5, 7, 32], 7)]);
    check("shf.r.clamp.b32 %r, %x, %y, %z;", &[([2, 1, 1], INT_MIN + 1), ([5, 7, 40], 7)]);
    check("shf.l.clamp.b32 %r, %x, %y, %z;", &[([5, 7, 40], 5)]);
    check("bfe.u32 %r, %x, %y, %z;", &[([0xabcd_1234, 8, 8], 0x12), ([MINUS, 28, 16], 15), ([MINUS, 0, 0], 0)]);
    check("bfe.s32 %r, %x, %y, %z;", &[([0x0000_0f00, 8, 4], MINUS), ([INT_MIN, 40, 4], MINUS), ([INT_MIN, 0, 0], 0)]);
    check("bfe.s64 %rd, %a, %y, %z;", &[([0x80 << 56, 60, 8], u64::MAX - 7)]);
    check("bfi.b32 %r, %x, %y, 8, 4;", &[([0xff, 0], 0xf00), ([0, MINUS], 0xffff_f0ff)]);
    check("bfi.b32 %r, %x, 7, %y, %z;", &[([1, 32, 4], 7), ([MINUS, 30, 8], 0xc000_0007), ([1, 0, 0], 7)]);
    check("prmt.b32 %r, %x, %y, %z;", &[([0x8070_6050, 0x4030_2010, 0x0123], 0x5060_7080)]);
    // The fourth bit of a selector spreads the byte's sign.
    check("prmt.b32 %r, %x, %y, %z;", &[([0x8000_0000, 0, 0xbbb0], 0xffff_ff00)]);
    check("lop3.b32 %r, %x, %y, %z, 0x96;", &[([0xf0, 0xcc, 0xaa], 0x96)]);
    check("lop3.b32 %r, %x, %y, %z, 0xe8;", &[([0xf0, 0xcc, 0xaa], 0xe8)]);
    check("not.b16 %rs, %h;", &[([0x00ff], 0xff00)]);
    check("mov.b32 %r, {%h, %i};", &[([0x1234, 0x5678], 0x5678_1234)]);
    check("mov.b64 %rd, {%x, %y};", &[([1, 2], 0x2_0000_0001)]);
    check("mov.b64 {%t, %z}, %a; mov.u32 %r, %z;", &[([0x2_0000_0001], 2)]);
}

#[test]
fn comparisons_and_nan() {
    let nan = f(f32::NAN);
    check("setp.lt.f32 %p, %x, %y;", &[([f(1.0), f(2.0)], 1), ([nan, f(2.0)], 0)]);
    check("setp.ltu.f32 %p, %x, %y;", &[([f(3.0), f(2.0)], 0), ([nan, f(2.0)], 1)]);
    // "Floating Point Comparisons": `ne` is false with NaN, `neu` true.
    check("setp.ne.f32 %p, %x, %y;", &[([f(1.0), f(2.0)], 1), ([nan, f(2.0)], 0)]);
    check("setp.neu.f32 %p, %x, %y;", &[([nan, f(2.0)], 1), ([f(0.0), f(-0.0)], 0)]);
    check("setp.equ.f32 %p, %x, %y;", &[([nan, nan], 1), ([f(0.0), f(-0.0)], 1)]);
    check("setp.num.f64 %p, %a, %b;", &[([d(1.0), d(2.0)], 1), ([d(f64::NAN), d(2.0)], 0)]);
    check("setp.nan.f64 %p, %a, %b;", &[([d(1.0), d(2.0)], 0), ([d(1.0), d(f64::NAN)], 1)]);
    check("setp.lt.s32 %p, %x, %y;", &[([MINUS, 0], 1)]);
    check("setp.lo.u32 %p, %x, %y;", &[([MINUS, 0], 0)]);
    check("setp.lt.s16 %p, %h, %i;", &[([0xffff, 0], 1)]);
    check("setp.gt.s64 %p, %a, %b;", &[([u64::MAX, 0], 0)]);
    check("setp.eq.ftz.f32 %p, %x, 0f00000000;", &[([1], 1)]);
    check("setp.lt.and.s32 %p, %x, %y, !%yes;", &[([1, 2], 0)]);
    check("setp.lt.or.s32 %p, %x, %y, %yes;", &[([3, 2], 1)]);
    check("setp.lt.s32 %q|%p, %x, %y;", &[([3, 2], 1), ([2, 3], 0)]);
}

#[test]
fn float_arithmetic() {
    let (inf, nan) = (f(f32::INFINITY), f(f32::NAN));
    check("add.f32 %r, %x, %y;", &[([inf, inf | 1 << 31], NAN), ([f(-0.0), f(0.0)], f(0.0)), ([nan, f(1.0)], NAN)]);
    // Directed rounding: 1 + 2^-30 lies between 1 and the next float.
    let tiny = 2f32.powi(-30);
    check("add.rz.f32 %r, %x, %y;", &[([f(1.0), f(tiny)], f(1.0)), ([f(1.0), f(-tiny)], f(1.0f32.next_down()))]);
    check("add.rp.f32 %r, %x, %y;", &[([f(1.0), f(tiny)], f(1.0f32.next_up())), ([f(1.0), f(-tiny)], f(1.0))]);
    check("add.rm.f32 %r, %x, %y;", &[([f(1.0), f(-1.0)], f(-0.0)), ([f(-1.0), f(-tiny)], f((-1.0f32).next_down()))]);
    check("mul.rz.f32 %r, %x, %y;", &[([f(f32::MAX), f(2.0)], f(f32::MAX)), ([f(0.1), f(0.1)], f(0.01f32))]);
    check("div.rp.f32 %r, %x, %y;", &[([f(1.0), f(3.0)], f(0.333_333_34))]);
    check("div.rm.f32 %r, %x, %y;", &[([f(1.0), f(3.0)], f(0.333_333_34f32.next_down()))]);
    check("fma.rn.f32 %r, %x, %y, %z;", &[([f(0.1), f(10.0), f(-1.0)], f(0.1f32.mul_add(10.0, -1.0)))]);
    check("fma.rz.f32 %r, %x, %y, %z;", &[([f(1.0), f(1.0), f(tiny)], f(1.0))]);
    check("fma.rn.sat.f32 %r, %x, %y, %z;", &[([f(2.0), f(3.0), f(0.0)], f(1.0)), ([nan, f(1.0), f(1.0)], f(0.0))]);
    check("add.ftz.f32 %r, %x, %y;", &[([1, f(0.0)], 0), ([1 << 31 | 1, f(-0.0)], f(-0.0))]);
    // "min", "max": a number wins over NaN, -0 is less than +0.
    check("min.f32 %r, %x, %y;", &[([nan, f(2.0)], f(2.0)), ([f(0.0), f(-0.0)], f(-0.0)), ([nan, nan], NAN)]);
    check("max.f32 %r, %x, %y;", &[([f(-0.0), f(0.0)], f(0.0)), ([f(1.0), nan], f(1.0))]);
    check("max.NaN.f32 %r, %x, %y;", &[([f(1.0), nan], NAN)]);
    check("max.f64 %rd, %a, %b;", &[([d(f64::NAN), d(-1.0)], d(-1.0)), ([d(-0.0), d(0.0)], d(0.0))]);
    check("sqrt.rn.f32 %r, %x;", &[([f(2.0)], f(2f32.sqrt())), ([f(-1.0)], NAN), ([f(-0.0)], f(-0.0))]);
    // The nearest float to the root of 2 lies below it.
    check("sqrt.rp.f32 %r, %x;", &[([f(2.0)], f(2f32.sqrt().next_up())), ([f(4.0)], f(2.0))]);
    check("rcp.rn.f32 %r, %x;", &[([f(0.0)], inf), ([f(-0.0)], inf | 1 << 31), ([f(3.0)], f(1.0 / 3.0))]);
    check("ex2.approx.ftz.f32 %r, %x;", &[([f(-200.0)], 0), ([f(3.0)], f(8.0)), ([inf | 1 << 31], 0)]);
    check("lg2.approx.f32 %r, %x;", &[([f(8.0)], f(3.0)), ([f(0.0)], inf | 1 << 31), ([f(-1.0)], NAN)]);
    check("copysign.f32 %r, %x, %y;", &[([f(-1.0), f(3.0)], f(-3.0))]);
    check("abs.f32 %r, %x;", &[([f(-0.0)], 0)]);
    check("neg.f64 %rd, %a;", &[([d(0.0)], d(-0.0))]);
}

#[test]
fn conversions() {
    let (inf, nan) = (f(f32::INFINITY), f(f32::NAN));
    // "cvt": out of range clamps, NaN gives 0.
    let cases = [([f(1e20)], 0x7fff_ffff), ([f(-1e20)], INT_MIN), ([nan], 0), ([f(-2.7)], MINUS - 1)];
    check("cvt.rzi.s32.f32 %r, %x;", &cases);
    check("cvt.rzi.u32.f32 %r, %x;", &[([f(-1.0)], 0), ([inf], MINUS), ([f(4e9)], 4_000_000_000)]);
    check("cvt.rni.s32.f32 %r, %x;", &[([f(2.5)], 2), ([f(3.5)], 4), ([f(-2.5)], MINUS - 1)]);
    check("cvt.rmi.s32.f32 %r, %x;", &[([f(-2.5)], MINUS - 2)]);
    check("cvt.rpi.s32.f32 %r, %x;", &[([f(2.1)], 3)]);
    check("cvt.rzi.s64.f64 %rd, %a;", &[([d(1e30)], i64::MAX as u64), ([d(f64::NAN)], 0), ([d(-1e30)], 1 << 63)]);
    // Halves away from 0; what rounds past the largest number is infinite.
    let cases =
        [(0x3f80_1000, 0x3f80_2000), (0xbf80_1000, 0xbf80_2000), (0x3f80_0fff, 0x3f80_0000), (0x7f7f_ffff, inf)];
    check("cvt.rna.tf32.f32 %r, %x;", &cases.map(|(x, r)| ([x], r)));
    check("cvt.rna.tf32.f32 %r, %x;", &[([inf], inf), ([nan], NAN), ([1], 0)]);
    check("cvt.rzi.u8.f32 %rs, %x;", &[([f(300.0)], 255), ([f(-3.0)], 0)]);
    check("cvt.rni.f32.f32 %r, %x;", &[([f(2.5)], f(2.0)), ([f(-0.3)], f(-0.0))]);
    check("cvt.s32.s8 %r, %x;", &[([0x80], 0xffff_ff80), ([0x17f], 0x7f)]);
    check("cvt.s16.s8 %r, %x;", &[([0x80], 0xffff_ff80)]);
    check("cvt.s8.s32 %rs, %x; setp.eq.b16 %q, %rs, 0xff80; @!%q mov.b16 %rs, 0;", &[([0x80], 0xff80)]);
    check("cvt.u32.u16 %r, %h;", &[([0x1_ffff], 0xffff)]);
    check("cvt.s64.s32 %rd, %x;", &[([INT_MIN], 0xffff_ffff_8000_0000)]);
    check("cvt.sat.u8.s32 %r, %x;", &[([MINUS], 0), ([300], 255), ([7], 7)]);
    check("cvt.sat.s16.s32 %rs, %x;", &[([40_000], 0x7fff), ([INT_MIN], 0x8000)]);
    check("cvt.u16.u32 %rs, %x;", &[([0x1_2345], 0x2345)]);
    check("cvt.rn.f32.s32 %r, %x;", &[([16_777_217], f(16_777_216.0)), ([MINUS], f(-1.0))]);
    check("cvt.rp.f32.s32 %r, %x;", &[([16_777_217], f(16_777_218.0))]);
    check("cvt.rz.f32.s32 %r, %x;", &[([MINUS - 16_777_218], f(-16_777_218.0)), ([16_777_219], f(16_777_218.0))]);
    check("cvt.rn.f32.u64 %r, %a;", &[([u64::MAX], f(18_446_744_073_709_551_616.0))]);
    check("cvt.rn.f64.u64 %rd, %a;", &[([u64::MAX], d(18_446_744_073_709_551_616.0))]);
    check("cvt.rn.f32.f64 %r, %a;", &[([d(0.1)], f(0.1)), ([d(1e300)], inf), ([d(1e-50)], 0)]);
    check("cvt.rz.f32.f64 %r, %a;", &[([d(1e300)], f(f32::MAX)), ([d(0.1)], f(0.1f32.next_down()))]);
    check("cvt.sat.f32.f32 %r, %x;", &[([f(2.0)], f(1.0)), ([f(-1.0)], 0), ([nan], 0)]);
    check("cvt.f64.f32 %rd, %x;", &[([f(0.1)], d(f64::from(0.1f32)))]);
    check("cvt.rn.f16.f32 %rs, %x;", &[([f(65504.0)], 0x7bff), ([f(65520.0)], 0x7c00), ([f(5.96e-8)], 1)]);
    check(
        "cvt.f32.f16 %r, %h;",
        &[([0x3555], f(0.333_251_95)), ([0x0001], f(2f32.powi(-24))), ([0xfc00], inf | 1 << 31)],
    );
    check("cvt.rn.bf16.f32 %rs, %x;", &[([f(1.0)], 0x3f80), ([0x3f80_8000], 0x3f80), ([0x3f81_8000], 0x3f82)]);
    check("cvt.rn.bf16x2.f32 %r, %x, %y;", &[([f(1.0), f(2.0)], 0x3f80_4000)]);
    check("cvt.rn.f16x2.f32 %r, %x, %y;", &[([f(1.0), f(2.0)], 0x3c00_4000)]);
    check("cvt.rn.f16.s32 %rs, %x;", &[([2049], 0x6800), ([100_000], 0x7c00)]);
}

/// Registers may be wider than what is loaded: the value is extended as its type says.
/// Every bf16 as f32; every bf16, what lies halfway to the next, and the neighbours of both, as bf16.
#[test]
fn bf16_and_f32() {
    let nan = |bits: u32| bits & 0x7fff_ffff > 0x7f80_0000;
    // No whole number of warps at a time: the last one has idle lanes.
    let given = |line: &str, all: &[u32]| -> Vec<u64> {
        all.chunks(1001)
            .flat_map(|part| run(line, &part.iter().map(|&x| [x.into(), 0, 0]).collect::<Vec<_>>()))
            .collect()
    };
    let all: Vec<u32> = (0..=0xffff).collect();
    for (bits, got) in all.iter().zip(given("cvt.f32.bf16 %r, %h;", &all)) {
        let expected = if nan(bits << 16) { NAN } else { u64::from(bits << 16) };
        assert_eq!(got, expected, "{bits:#x}");
    }
    let all: Vec<u32> = (0..=0xffff)
        .flat_map(|upper| [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff].map(|lower| upper << 16 | lower))
        .collect();
    for (&bits, got) in all.iter().zip(given("cvt.rn.bf16.f32 %rs, %x;", &all)) {
        // The next number behind the largest one is where infinity begins.
        let value = |upper: u32| match upper & 0x7fff {
            0x7f80 => 2f64.powi(128),
            magnitude => f32::from_bits(magnitude << 16).into(),
        };
        let (below, x) = (bits >> 16, f64::from(f32::from_bits(bits).abs()));
        let expected = if nan(bits) {
            0x7fff
        } else if below & 0x7fff == 0x7f80 {
            below
        } else {
            let (down, up) = (x - value(below), value(below + 1) - x);
            if up < down || up == down && below & 1 == 1 { below + 1 } else { below }
        };
        assert_eq!(got, u64::from(expected), "{bits:#x}");
    }
}

#[test]
fn loads_extend() {
    check("ld.global.s8 %r, [%in];", &[([0x1280], 0xffff_ff80)]);
    check("ld.global.u8 %r, [%in+1];", &[([0x1280], 0x12)]);
    check("ld.global.s16 %r, [%in];", &[([0x8000], 0xffff_8000)]);
    check("ld.global.s8 %rs, [%in]; setp.eq.b16 %q, %rs, 0xff80; @!%q mov.b16 %rs, 0;", &[([0x80], 0xff80)]);
    check("ld.global.s32 %rd, [%in];", &[([INT_MIN], 0xffff_ffff_8000_0000)]);
    check("ld.global.v2.u16 {%rs, %h}, [%in]; cvt.u32.u16 %r, %rs;", &[([0x1234_5678], 0x5678)]);
    check("ld.global.v2.b32 {_, %r}, [%in];", &[([0x1234_5678_0000_0000], 0x1234_5678)]);
    check("ld.v4.u8 {%rs, %h, %i, %h}, [%in]; cvt.u32.u16 %r, %rs;", &[([0x1234_5678], 0x78)]);
    check("st.global.u8 [%in], %y; ld.global.u32 %r, [%in];", &[([0x1234_5678, 0xabcd], 0x1234_56cd)]);
}

#[test]
fn halves() {
    check("add.f16 %rs, %h, %i;", &[([0x3c00, 0x3c00], 0x4000), ([0x7bff, 0x7bff], 0x7c00)]);
    check("fma.rn.f16 %rs, %h, %i, %h;", &[([0x3c00, 0x4000], 0x4200)]);
    check("add.f16x2 %r, %x, %y;", &[([0x3c00_4000, 0x3c00_3c00], 0x4000_4200)]);
    check("fma.rn.relu.f16x2 %r, %x, %y, %z;", &[([0x3c00_bc00, 0x3c00_3c00, 0], 0x3c00_0000)]);
    check("max.f16 %rs, %h, %i;", &[([0x7e00, 0x3c00], 0x3c00), ([0x8000, 0x0000], 0)]);
    check("max.NaN.f16 %rs, %h, %i;", &[([0x7e00, 0x3c00], 0x7fff)]);
    check("neg.f16x2 %r, %x;", &[([0x3c00_bc00], 0xbc00_3c00)]);
    check("setp.gt.f16 %p, %h, %i;", &[([0x3c00, 0xbc00], 1), ([0x7e00, 0], 0)]);
    check("mul.bf16 %rs, %h, %i;", &[([0x4000, 0x4040], 0x40c0)]);
    check("fma.rn.bf16x2 %r, %x, %y, %z;", &[([0x3f80_4000, 0x3f80_3f80, 0x3f80_3f80], 0x4000_4040)]);
}
