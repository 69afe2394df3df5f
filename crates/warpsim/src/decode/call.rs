//! Calls of device functions: the function's body takes the place of the call.

use super::fail::Fail;
use super::{Decoder, recursion};
use crate::op::{Assertion, Op, Print};
use crate::ptx::ast::{Instruction, Operand};
use crate::ptx::types::Space;

/// The label behind a body; no name of PTX starts with a blank.
pub const RETURN: &str = " return";
/// Instructions of a kernel with all its calls, at most.
pub const MAX_CODE: usize = 1 << 20;

impl<'a> Decoder<'a> {
    /// Puts in the body of the function that is called. Its parameters are the caller's `.param` variables, under the
    /// function's names for them.
    pub(super) fn call(&mut self, from: &'a Instruction, guarded: bool) -> Result<(), Fail> {
        // The prototype at the end shows a call through a pointer.
        let register = |name: &str| name.starts_with('%');
        let (results, name, arguments) = match from.operands.as_slice() {
            [given @ .., Operand::Name(_)] if given.iter().any(|o| matches!(o, Operand::Name(n) if register(n))) => {
                return self.call_pointer(from, given, guarded);
            }
            [Operand::List(results), Operand::Name(name), Operand::List(arguments)] => {
                (results.as_slice(), name, arguments.as_slice())
            }
            [Operand::List(results), Operand::Name(name)] => (results.as_slice(), name, [].as_slice()),
            [Operand::Name(name), Operand::List(arguments)] => ([].as_slice(), name, arguments.as_slice()),
            [Operand::Name(name)] => ([].as_slice(), name, [].as_slice()),
            _ => return Err(Fail::new("this form of a call")),
        };
        if guarded || self.code.len() > MAX_CODE {
            return Err(Fail::new("a call under a predicate, or too many calls"));
        }
        self.call_named(from, name, (results, arguments))
    }

    /// Calls a function by its name.
    pub(super) fn call_named(
        &mut self,
        from: &'a Instruction,
        name: &str,
        (results, arguments): (&[Operand], &[Operand]),
    ) -> Result<(), Fail> {
        let module = self.module;
        if name == "vprintf" {
            return self.print(from, results, arguments);
        }
        if name == "__assertfail" {
            return self.assertion(from, arguments);
        }
        let function = module.functions.iter().find(|f| f.name == *name && !f.entry);
        let function = function.ok_or_else(|| Fail::new(format!("`{name}` is not a function of this PTX")))?;
        let Some(body) = &function.body else {
            return Err(Fail::new(match name {
                "malloc" | "free" => format!("`{name}` in a kernel: the device's heap is not simulated; use a buffer"),
                _ => format!("`{name}` is declared and not defined in this PTX"),
            }));
        };
        if recursion::calls_itself(module, name) {
            return self.call_code(from, function, (results, arguments));
        }
        if self.inside.contains(&name) {
            return Err(Fail::new(format!("`{name}` calls itself in a way that is not simulated")));
        }
        let symbols = self.slots.symbols.clone();
        let pairs = [(results, &function.returns), (arguments, &function.params)];
        let mut bound = Vec::new();
        for (given, wanted) in pairs {
            if given.len() != wanted.len() {
                return Err(Fail::new(format!("`{name}` has another number of parameters")));
            }
            for (given, wanted) in given.iter().zip(wanted) {
                let Operand::Name(given) = given else { return Err(Fail::new("an argument that is no `.param`")) };
                let place = symbols.get(given).ok_or_else(|| Fail::new(format!("`{given}` is no `.param`")))?;
                bound.push((wanted.name.clone(), *place));
            }
        }
        self.slots.symbols.extend(bound);
        let scopes = std::mem::take(&mut self.slots.scopes);
        let labels = std::mem::take(&mut self.labels);
        let branches = std::mem::take(&mut self.branches);
        self.inside.push(&function.name);
        self.body(body, &function.name);
        self.inside.pop();
        self.slots.scopes = scopes;
        self.labels = labels;
        self.branches = branches;
        self.slots.symbols = symbols;
        Ok(())
    }

    /// A failed `assert` is told by the simulator too.
    fn assertion(&mut self, from: &'a Instruction, arguments: &[Operand]) -> Result<(), Fail> {
        let [message, file, line, function, _] = arguments else {
            return Err(Fail::new("`__assertfail` has another number of parameters"));
        };
        let mut row = |operand: &Operand| match operand {
            Operand::Name(name) if self.slots.symbols.get(name).is_some_and(|s| s.1 == Space::Local) => {
                self.slots.source(operand, true)
            }
            _ => Err(Fail::new("an argument that is no `.param`")),
        };
        let rows = [row(message)?, row(file)?, row(line)?, row(function)?];
        let op = Op::Assert(Box::new(Assertion(rows)));
        self.code.push(crate::op::Instruction { guard: None, op, ptx_line: from.line, loc: from.loc, sums: 0 });
        Ok(())
    }

    /// `printf` is a function of the driver: the simulator prints itself.
    fn print(&mut self, from: &'a Instruction, results: &[Operand], arguments: &[Operand]) -> Result<(), Fail> {
        let ([format, arguments], [] | [_]) = (arguments, results) else {
            return Err(Fail::new("`vprintf` has another number of parameters"));
        };
        let mut row = |operand: &Operand| match operand {
            Operand::Name(name) if self.slots.symbols.get(name).is_some_and(|s| s.1 == Space::Local) => {
                self.slots.source(operand, true)
            }
            _ => Err(Fail::new("an argument that is no `.param`")),
        };
        let (format, arguments) = (row(format)?, row(arguments)?);
        let result = results.first().map(row).transpose()?;
        let op = Op::Print(Box::new(Print { format, arguments, result }));
        self.code.push(crate::op::Instruction { guard: None, op, ptx_line: from.line, loc: from.loc, sums: 0 });
        Ok(())
    }
}
