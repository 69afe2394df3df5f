//! `setp`: masks of lanes.

use super::float::flush;
use super::half::widen;
use super::lanes::{Row, test};
use crate::op::{Cmp, View};

/// Mask of the lanes in which the comparison of two 32-bit rows holds.
#[inline(always)]
pub fn narrow(cmp: Cmp, view: View, a: &Row<u32>, b: &Row<u32>) -> u32 {
    match view {
        View::Unsigned => integer(cmp, a, b, |x| x),
        View::Signed => integer(cmp, a, b, |x| x as i32),
        View::Signed16 => integer(cmp, a, b, |x| x as i16),
        View::Float { ftz: false } => float(cmp, a, b, f32::from_bits),
        View::Float { ftz: true } => float(cmp, a, b, |x| flush(f32::from_bits(x), true)),
        View::Half { brain } => float(cmp, a, b, |x| widen(x as u16, brain, false)),
    }
}

/// The same of two 64-bit rows.
#[inline(always)]
pub fn wide(cmp: Cmp, view: View, a: &Row<u64>, b: &Row<u64>) -> u32 {
    match view {
        View::Signed => integer(cmp, a, b, |x| x as i64),
        View::Float { .. } => float(cmp, a, b, f64::from_bits),
        _ => integer(cmp, a, b, |x| x),
    }
}

#[inline(always)]
fn integer<T: Copy, U: PartialOrd>(cmp: Cmp, a: &Row<T>, b: &Row<T>, f: impl Fn(T) -> U) -> u32 {
    match cmp {
        Cmp::Eq => test(a, b, |x, y| f(x) == f(y)),
        Cmp::Ne => test(a, b, |x, y| f(x) != f(y)),
        Cmp::Lt => test(a, b, |x, y| f(x) < f(y)),
        Cmp::Le => test(a, b, |x, y| f(x) <= f(y)),
        Cmp::Gt => test(a, b, |x, y| f(x) > f(y)),
        _ => test(a, b, |x, y| f(x) >= f(y)),
    }
}

/// Ordered comparisons are false with NaN, unordered ones true (PTX ISA, "Floating Point Comparisons").
#[inline(always)]
fn float<T: Copy, U: PartialOrd>(cmp: Cmp, a: &Row<T>, b: &Row<T>, f: impl Fn(T) -> U) -> u32 {
    let number = |x: T, y: T| f(x).partial_cmp(&f(y)).is_some();
    match cmp {
        Cmp::Eq => test(a, b, |x, y| f(x) == f(y)),
        Cmp::Lt => test(a, b, |x, y| f(x) < f(y)),
        Cmp::Le => test(a, b, |x, y| f(x) <= f(y)),
        Cmp::Gt => test(a, b, |x, y| f(x) > f(y)),
        Cmp::Ge => test(a, b, |x, y| f(x) >= f(y)),
        Cmp::Ne => test(a, b, |x, y| f(x) != f(y) && number(x, y)),
        Cmp::Num => test(a, b, number),
        Cmp::Nan => !test(a, b, number),
        Cmp::Equ => test(a, b, |x, y| f(x) == f(y) || !number(x, y)),
        Cmp::Neu => test(a, b, |x, y| f(x) != f(y)),
        Cmp::Ltu => !test(a, b, |x, y| f(x) >= f(y)),
        Cmp::Leu => !test(a, b, |x, y| f(x) > f(y)),
        Cmp::Gtu => !test(a, b, |x, y| f(x) <= f(y)),
        Cmp::Geu => !test(a, b, |x, y| f(x) < f(y)),
    }
}
