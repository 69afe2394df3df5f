//! What arithmetic instructions do.

/// Rounding of floating-point results (PTX ISA, "Rounding Modifiers": `.rn .rz .rm .rp`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs)]
pub enum Round {
    #[default]
    Nearest,
    Zero,
    Down,
    Up,
}

/// How a float instruction deviates from plain IEEE round-to-nearest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct FloatMode {
    /// Rounding of the result.
    pub round: Round,
    /// `.ftz`: subnormal inputs and results become zero of the same sign.
    pub ftz: bool,
    /// `.sat`: the result is clamped to [0, 1], NaN becomes 0.
    pub sat: bool,
    /// `.relu`: negative results and NaN become 0 (half types).
    pub relu: bool,
}

/// One operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Un {
    NegInt,
    AbsInt,
    Not,
    Popc,
    Clz,
    Brev,
    /// Position of the highest bit that differs from the sign; the flag asks for the shift amount.
    Find {
        signed: bool,
        shift: bool,
    },
    NegF32,
    AbsF32,
    NegF64,
    AbsF64,
    NegHalf {
        sign: u32,
    },
    AbsHalf {
        sign: u32,
    },
    /// The functions of [`FloatFn`] on f32.
    F32(FloatFn, FloatMode),
    /// On f64.
    F64(FloatFn, FloatMode),
    /// On f16 or bf16 lanes of a 32-bit row; two of them if packed.
    Half(FloatFn, FloatMode, Halves),
}

/// Functions of one float.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FloatFn {
    /// Only what the mode asks for (`.ftz`).
    Neg,
    Abs,
    Sqrt,
    Rcp,
    Rsqrt,
    Sin,
    Cos,
    Lg2,
    Ex2,
    Tanh,
    /// Rounded to the ten bits of mantissa that TF32 has, halves away from 0.
    Tf32,
}

/// Two-operand float functions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
    Min { nan: bool },
    Max { nan: bool },
    Copysign,
}

/// Layout of half-precision operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Halves {
    /// bfloat16 rather than IEEE half.
    pub brain: bool,
    /// Two in one 32-bit register.
    pub packed: bool,
}

/// Two operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Bin {
    Add,
    Sub,
    /// 16-bit results keep their upper half zero.
    Add16,
    Sub16,
    Mul,
    Mul16,
    MulHi {
        signed: bool,
    },
    MulHi16 {
        signed: bool,
    },
    Div {
        signed: bool,
    },
    Div16 {
        signed: bool,
    },
    Rem {
        signed: bool,
    },
    Rem16 {
        signed: bool,
    },
    Min {
        signed: bool,
    },
    Max {
        signed: bool,
    },
    Min16 {
        signed: bool,
    },
    Max16 {
        signed: bool,
    },
    AddSat,
    SubSat,
    And,
    Or,
    Xor,
    /// Shift amounts are 32-bit and clamp at the width (PTX ISA, "shl", "shr").
    Shl,
    Shl16,
    Shr {
        signed: bool,
    },
    Shr16 {
        signed: bool,
    },
    Mul24 {
        signed: bool,
        high: bool,
    },
    AddF,
    SubF,
    MulF,
    DivF,
    Float(FloatOp, FloatMode),
    Half(FloatOp, FloatMode, Halves),
}

/// Three operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Tri {
    Mad,
    Mad16,
    MadHi {
        signed: bool,
    },
    Mad24 {
        signed: bool,
    },
    Sad {
        signed: bool,
    },
    FmaF,
    Fma(FloatMode),
    FmaHalf(FloatMode, Halves),
    /// Bit-wise function of three words by its truth table.
    Lop3(u8),
    Bfe {
        signed: bool,
    },
    /// Funnel shifts of the 64-bit b:a; `clamp` limits the amount to 32, else it wraps.
    Shf {
        left: bool,
        clamp: bool,
    },
    Prmt,
    Dp4a {
        a_signed: bool,
        b_signed: bool,
    },
    Dp2a {
        a_signed: bool,
        b_signed: bool,
        high: bool,
    },
}

/// Comparisons (PTX ISA, "Comparison and Selection Instructions"): `Unordered…` hold for NaN as well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Cmp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    Equ,
    Neu,
    Ltu,
    Leu,
    Gtu,
    Geu,
    Num,
    Nan,
}

/// How operands of a comparison are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum View {
    Unsigned,
    Signed,
    /// Signed 16-bit in a 32-bit row.
    Signed16,
    Float {
        ftz: bool,
    },
    Half {
        brain: bool,
    },
}

/// Logic of predicates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Logic {
    And,
    Or,
    Xor,
}
