//! Float arithmetic: f32, f64, f16, bf16.

use super::fail::Fail;
use super::modifiers::Modifiers;
use super::operands::{binary, ternary, unary};
use super::slots::Slots;
use crate::op::{Bin, FloatFn, FloatMode, FloatOp, Halves, Op, Round, Tri, Un};
use crate::ptx::ast::Operand;
use crate::ptx::types::Type;

/// Decodes a float instruction.
pub fn decode(slots: &mut Slots, m: &mut Modifiers, operands: &[Operand], ty: Type) -> Result<Option<Op>, Fail> {
    // `.approx` and `.full` allow an error; the simulator rounds correctly, which is within it.
    let approx = m.take("approx") | m.take("full");
    let mode = m.float_mode();
    if mode.relu && !matches!(m.base, "fma") {
        return Err(Fail::new("the modifier `.relu` is not known here"));
    }
    let halves = match ty {
        Type::F16 => Some(Halves { brain: false, packed: false }),
        Type::F16x2 => Some(Halves { brain: false, packed: true }),
        Type::Bf16 => Some(Halves { brain: true, packed: false }),
        Type::Bf16x2 => Some(Halves { brain: true, packed: true }),
        _ => None,
    };
    if mode.round != Round::Nearest && !matches!(ty, Type::F32 | Type::F64) {
        return Err(Fail::new("this rounding is for `.f32` and `.f64` alone"));
    }
    if approx && ty == Type::F64 && !(mode.ftz && matches!(m.base, "rcp" | "rsqrt")) && m.base != "rsqrt" {
        return Err(Fail::new("`.approx` of this `.f64` function"));
    }
    if ty == Type::F64 && mode.ftz && !approx {
        return Err(Fail::new("`.ftz` of `.f64`"));
    }
    let plain = mode == FloatMode::default();
    let one = |f: FloatFn| match halves {
        Some(halves) => Un::Half(f, mode, halves),
        None if ty == Type::F64 => Un::F64(f, mode),
        None => Un::F32(f, mode),
    };
    let two = |f: FloatOp| match halves {
        Some(halves) => Bin::Half(f, mode, halves),
        None => Bin::Float(f, mode),
    };
    let op = match m.base {
        "add" if plain && halves.is_none() => binary(slots, operands, ty, Bin::AddF)?,
        "sub" if plain && halves.is_none() => binary(slots, operands, ty, Bin::SubF)?,
        "mul" if plain && halves.is_none() => binary(slots, operands, ty, Bin::MulF)?,
        "div" if plain && halves.is_none() => binary(slots, operands, ty, Bin::DivF)?,
        "add" => binary(slots, operands, ty, two(FloatOp::Add))?,
        "sub" => binary(slots, operands, ty, two(FloatOp::Sub))?,
        "mul" => binary(slots, operands, ty, two(FloatOp::Mul))?,
        "div" => binary(slots, operands, ty, two(FloatOp::Div))?,
        "min" | "max" => {
            let nan = m.take("NaN");
            let f = if m.base == "min" { FloatOp::Min { nan } } else { FloatOp::Max { nan } };
            binary(slots, operands, ty, two(f))?
        }
        // `copysign d, a, b`: the sign of a, the magnitude of b (PTX ISA, "copysign").
        "copysign" => {
            let [d, a, b] = operands else { return Err(super::operands::count(3)) };
            binary(slots, &[d.clone(), b.clone(), a.clone()], ty, two(FloatOp::Copysign))?
        }
        "fma" | "mad" => match halves {
            Some(halves) => ternary(slots, operands, ty, Tri::FmaHalf(mode, halves))?,
            None if plain => ternary(slots, operands, ty, Tri::FmaF)?,
            None => ternary(slots, operands, ty, Tri::Fma(mode))?,
        },
        "neg" | "abs" => {
            let neg = m.base == "neg";
            let f = match (halves, ty) {
                (Some(h), _) if !mode.ftz => {
                    let sign = if h.packed { 0x8000_8000 } else { 0x8000 };
                    if neg { Un::NegHalf { sign } } else { Un::AbsHalf { sign } }
                }
                (None, Type::F32) if !mode.ftz => [Un::AbsF32, Un::NegF32][usize::from(neg)],
                (None, Type::F64) => [Un::AbsF64, Un::NegF64][usize::from(neg)],
                _ => one(if neg { FloatFn::Neg } else { FloatFn::Abs }),
            };
            unary(slots, operands, ty, f)?
        }
        "sqrt" => unary(slots, operands, ty, one(FloatFn::Sqrt))?,
        "rcp" => unary(slots, operands, ty, one(FloatFn::Rcp))?,
        "rsqrt" => unary(slots, operands, ty, one(FloatFn::Rsqrt))?,
        "sin" if ty == Type::F32 => unary(slots, operands, ty, one(FloatFn::Sin))?,
        "cos" if ty == Type::F32 => unary(slots, operands, ty, one(FloatFn::Cos))?,
        "lg2" if ty == Type::F32 => unary(slots, operands, ty, one(FloatFn::Lg2))?,
        "ex2" if ty != Type::F64 => unary(slots, operands, ty, one(FloatFn::Ex2))?,
        "tanh" if ty != Type::F64 => unary(slots, operands, ty, one(FloatFn::Tanh))?,
        _ => return Err(Fail::new("the type does not fit the instruction")),
    };
    Ok(Some(op))
}
