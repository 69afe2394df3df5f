//! A module as written.

use super::types::{Space, Type};

/// A whole PTX file.
#[derive(Clone, Debug, Default)]
pub struct Module {
    /// `.version`, as major and minor.
    pub version: (u32, u32),
    /// `.target`, the first name.
    pub target: String,
    /// Variables outside functions.
    pub variables: Vec<Variable>,
    /// Kernels and functions.
    pub functions: Vec<Function>,
    /// `.file`: number and name.
    pub files: Vec<(u32, String)>,
}

/// A variable in some space, or a parameter.
#[derive(Clone, Debug)]
pub struct Variable {
    /// Where it lives.
    pub space: Space,
    /// Alignment in bytes.
    pub align: u32,
    /// Type of one element.
    pub ty: Type,
    /// Its name.
    pub name: String,
    /// Size in bytes; 0 for `extern .shared x[]`.
    pub bytes: u64,
    /// Initial elements; the rest is zero.
    pub init: Vec<Init>,
}

/// One element of an initialiser.
#[derive(Clone, Debug)]
pub enum Init {
    /// Bits of the element.
    Bits(u64),
    /// Address of a variable plus an offset; `generic(…)` makes it generic.
    Address(String, i64, bool),
}

/// A kernel (`.entry`) or a function (`.func`).
#[derive(Clone, Debug)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Whether it is a kernel.
    pub entry: bool,
    /// Parameters in order.
    pub params: Vec<Variable>,
    /// Parameters that hold the results.
    pub returns: Vec<Variable>,
    /// `.reqnctapercluster`: blocks of a cluster along x, y, z.
    pub cluster: Option<[u32; 3]>,
    /// Statements; none for a declaration.
    pub body: Option<Vec<Statement>>,
    /// Line of the PTX text.
    pub line: u32,
}

/// A part of a body.
#[derive(Clone, Debug)]
pub enum Statement {
    /// `.reg`: a type with names; a number makes `name0` to `name(n-1)`.
    Registers(Type, Vec<(String, Option<u32>)>),
    /// A variable of the function.
    Variable(Variable),
    /// A branch target.
    Label(String),
    /// `.branchtargets`: labels of the table that the label before it names.
    Targets(Vec<String>),
    /// An instruction.
    Instruction(Instruction),
    /// `{`: names declared inside end at the matching [`Statement::Close`].
    Open,
    /// `}`.
    Close,
}

impl Statement {
    /// The instruction, if it is one.
    pub fn instruction(&self) -> Option<&Instruction> {
        match self {
            Self::Instruction(instruction) => Some(instruction),
            _ => None,
        }
    }
}

/// An instruction as written.
#[derive(Clone, Debug)]
pub struct Instruction {
    /// `@p` or `@!p`: the predicate's name, and whether it is negated.
    pub guard: Option<(String, bool)>,
    /// Opcode with all modifiers, as in `ld.global.f32`.
    pub opcode: String,
    /// Operands in order.
    pub operands: Vec<Operand>,
    /// Line of the PTX text.
    pub line: u32,
    /// `.loc` in force: file number and line; file 0 when there is none.
    pub loc: (u32, u32),
}

/// An operand as written.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// Register, special register, label, variable or function.
    Name(String),
    /// `!p`.
    Not(String),
    /// Integer, as 64 bits in two's complement.
    Int(u64),
    /// `0f…`: bits of a 32-bit float.
    F32(u32),
    /// `0d…` or a decimal: bits of a 64-bit float.
    F64(u64),
    /// `{a, b}`.
    Vector(Vec<Operand>),
    /// `[base+offset]`.
    Address(Box<Operand>, i64),
    /// `d|p`.
    Pair(Box<Operand>, Box<Operand>),
    /// `(a, b)` of a call.
    List(Vec<Operand>),
}
