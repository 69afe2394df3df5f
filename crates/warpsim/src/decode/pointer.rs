//! Calls through pointers: a jump to the function that each lane's address names, among all whose address is taken and
//! whose parameters fit.

use super::Decoder;
use super::fail::Fail;
use crate::op::{Instruction, Op};
use crate::ptx::ast::{self, Init, Module, Operand, Statement};

/// Address of the first function; far from every space.
const FIRST: u64 = 4 << 32;

/// The address of a function.
pub fn address(number: usize) -> u64 {
    FIRST + 16 * number as u64
}

/// Functions whose address some variable or instruction takes, by their number.
fn taken(module: &Module) -> Vec<usize> {
    let values = module.variables.iter().flat_map(|v| &v.init).filter_map(|init| match init {
        Init::Address(name, ..) => Some(name.as_str()),
        Init::Bits(_) => None,
    });
    let instructions = module.functions.iter().flat_map(|f| f.body.iter().flatten()).filter_map(Statement::instruction);
    let moved = instructions.filter(|i| i.opcode.starts_with("mov.")).filter_map(|i| match i.operands.get(1) {
        Some(Operand::Name(name)) => Some(name.as_str()),
        _ => None,
    });
    let names: std::collections::HashSet<&str> = values.chain(moved).collect();
    let functions = module.functions.iter().enumerate();
    functions.filter(|(_, f)| !f.entry && f.body.is_some() && names.contains(f.name.as_str())).map(|f| f.0).collect()
}

impl<'a> Decoder<'a> {
    /// A call through a pointer.
    pub(super) fn call_pointer(
        &mut self,
        from: &'a ast::Instruction,
        given: &'a [Operand],
        guarded: bool,
    ) -> Result<(), Fail> {
        let (results, pointer, arguments) = match given {
            [Operand::List(results), pointer, Operand::List(arguments)] => (&results[..], pointer, &arguments[..]),
            [Operand::List(results), pointer] => (&results[..], pointer, &[][..]),
            [pointer, Operand::List(arguments)] => (&[][..], pointer, &arguments[..]),
            [pointer] => (&[][..], pointer, &[][..]),
            _ => return Err(Fail::new("this form of a call through a pointer")),
        };
        if guarded || self.code.len() > super::call::MAX_CODE {
            return Err(Fail::new("a call through a pointer under a predicate, or too many calls"));
        }
        let module = self.module;
        let sizes = |given: &[Operand]| -> Vec<u64> {
            let symbol = |o: &Operand| match o {
                Operand::Name(name) => self.slots.symbols.get(name).map(|s| self.layout.symbols[s.0 as usize].bytes),
                _ => None,
            };
            given.iter().filter_map(symbol).collect()
        };
        let (out, into) = (sizes(results), sizes(arguments));
        let fits = |f: &ast::Function| {
            let bytes = |wanted: &[ast::Variable]| wanted.iter().map(|v| v.bytes).collect::<Vec<_>>();
            bytes(&f.returns) == out && bytes(&f.params) == into
        };
        let functions: Vec<usize> = taken(module).into_iter().filter(|&f| fits(&module.functions[f])).collect();
        if functions.is_empty() {
            return Err(Fail::new("a call through a pointer, and no function of this PTX fits it"));
        }
        let a = self.slots.source(pointer, true)?;
        let index = self.slots.sizes.0;
        self.slots.sizes.0 += 1;
        let push = |decoder: &mut Self, op: Op| {
            decoder.code.push(Instruction { guard: None, op, ptx_line: from.line, loc: from.loc, sums: 0 });
            decoder.code.len() - 1
        };
        let addresses = functions.iter().map(|&f| address(f)).collect();
        push(self, Op::Callee { d: index, a, addresses });
        let table = push(self, Op::BranchTable { index, targets: Vec::new(), reconverge: 0 });
        let (mut starts, mut ends) = (Vec::new(), Vec::new());
        for function in functions {
            starts.push(self.code.len() as u32);
            self.call_named(from, &module.functions[function].name, (results, arguments))?;
            ends.push(push(self, Op::Branch { target: 0, reconverge: 0 }));
        }
        let join = self.code.len() as u32;
        for end in ends {
            self.code[end].op = Op::Branch { target: join, reconverge: 0 };
        }
        self.code[table].op = Op::BranchTable { index, targets: starts, reconverge: 0 };
        Ok(())
    }
}
