//! Functions that call themselves, perhaps through others: their code is there once, and calls keep what is the
//! caller's own.

use std::collections::{HashMap, HashSet};

use super::Decoder;
use super::call::RETURN;
use super::fail::Fail;
use crate::op::{Call, Instruction, Kept, Op, Return};
use crate::ptx::ast::{self, Function, Operand, Statement};
use crate::ptx::types::Space;

/// A function that calls itself.
pub struct Recursive<'a> {
    function: &'a Function,
    /// Its parameters and results: numbers of symbols.
    names: HashMap<String, (u32, Space)>,
    code: std::ops::Range<u32>,
    kept: Kept,
}

/// Functions that a body calls by name.
fn called(function: &Function) -> impl Iterator<Item = &str> {
    let instructions = function.body.iter().flatten().filter_map(|s| match s {
        Statement::Instruction(i) if i.opcode == "call" || i.opcode.starts_with("call.") => Some(i),
        _ => None,
    });
    instructions.flat_map(|i| &i.operands).filter_map(|o| match o {
        Operand::Name(name) => Some(name.as_str()),
        _ => None,
    })
}

/// Whether a function calls itself, perhaps through others.
pub fn calls_itself(module: &ast::Module, name: &str) -> bool {
    let function = |name: &str| module.functions.iter().find(|f| f.name == name);
    let mut seen = HashSet::new();
    let mut work: Vec<&str> = function(name).into_iter().flat_map(called).collect();
    while let Some(next) = work.pop() {
        if next == name {
            return true;
        }
        if seen.insert(next) {
            work.extend(function(next).into_iter().flat_map(called));
        }
    }
    false
}

impl<'a> Decoder<'a> {
    /// A call of a function that calls itself.
    pub(super) fn call_code(
        &mut self,
        from: &'a ast::Instruction,
        function: &'a Function,
        (results, arguments): (&[Operand], &[Operand]),
    ) -> Result<(), Fail> {
        let number = self.number(function);
        let place = |decoder: &Self, names: &HashMap<String, (u32, Space)>, name: &str| match names.get(name) {
            Some(&(symbol, Space::Local)) => Ok(&decoder.layout.symbols[symbol as usize]).map(|s| (s.at, s.bytes)),
            _ => Err(Fail::new(format!("`{name}` is no `.param`"))),
        };
        let pairs = |given: &[Operand], wanted: &[ast::Variable]| {
            if given.len() != wanted.len() {
                return Err(Fail::new(format!("`{}` has another number of parameters", function.name)));
            }
            let pairs = given.iter().zip(wanted).map(|(given, wanted)| {
                let Operand::Name(given) = given else { return Err(Fail::new("an argument that is no `.param`")) };
                let (outside, size) = place(self, &self.slots.symbols, given)?;
                let (inside, bytes) = place(self, &self.recursive[number].names, &wanted.name)?;
                if bytes != size {
                    return Err(Fail::new(format!("`{given}` has another size than the parameter")));
                }
                Ok((outside, inside, bytes))
            });
            pairs.collect::<Result<Vec<_>, Fail>>()
        };
        let arguments = pairs(arguments, &function.params)?;
        let results =
            pairs(results, &function.returns)?.into_iter().map(|(to, from, bytes)| (from, to, bytes)).collect();
        let kept = Kept::default();
        let call = Op::Call(Box::new(Call { function: number, code: 0..0, arguments, kept }));
        for op in [call, Op::Return(Box::new(Return { results }))] {
            self.code.push(Instruction { guard: None, op, ptx_line: from.line, loc: from.loc, sums: 0 });
        }
        self.callers.push(self.within);
        Ok(())
    }

    /// Number of a function that calls itself; its parameters and results get their places.
    fn number(&mut self, function: &'a Function) -> usize {
        if let Some(known) = self.recursive.iter().position(|r| r.function.name == function.name) {
            return known;
        }
        let mut names = HashMap::new();
        // Results are nobody's own: they outlive the call.
        for variable in function.returns.iter().chain(&function.params) {
            self.layout.declare(&mut names, variable);
        }
        self.recursive.push(Recursive { function, names, code: 0..0, kept: Kept::default() });
        self.recursive.len() - 1
    }

    /// Behind the kernel's own code: that of the functions which call themselves, and those that they name.
    pub(super) fn recursive_code(&mut self) {
        let mut next = 0;
        while next < self.recursive.len() {
            let function = self.recursive[next].function;
            let before = (self.slots.sizes, self.layout.local_bytes, self.code.len() as u32);
            let symbols = self.slots.symbols.clone();
            self.slots.symbols.extend(self.recursive[next].names.clone());
            self.labels.clear();
            self.inside.push(&function.name);
            self.within = Some(next);
            self.body(function.body.as_deref().unwrap_or(&[]), &function.name);
            self.inside.pop();
            self.slots.symbols = symbols;
            debug_assert_eq!(
                self.labels.get(&(0, RETURN.to_owned())),
                Some(&(self.code.len() as u32)),
                "returns go to the end"
            );
            let end = self.code.len() as u32;
            self.code.push(Instruction { guard: None, op: Op::End, ptx_line: function.line, loc: (0, 0), sums: 0 });
            let (narrow, wide, preds) = before.0;
            let sizes = self.slots.sizes;
            let recursive = &mut self.recursive[next];
            recursive.code = before.2..end;
            recursive.kept = Kept {
                narrow: narrow as usize..sizes.0 as usize,
                wide: wide as usize..sizes.1 as usize,
                preds: preds as usize..sizes.2 as usize,
                local: Vec::new(),
            };
            let mut local = self.parameters(next);
            local.push(before.1..self.layout.local_bytes);
            self.recursive[next].kept.local = local;
            next += 1;
        }
        self.within = None;
        let mut callers = std::mem::take(&mut self.callers).into_iter();
        for instruction in &mut self.code {
            if let Op::Call(call) = &mut instruction.op {
                call.code = self.recursive[call.function].code.clone();
                if let Some(caller) = callers.next().flatten() {
                    call.kept = self.recursive[caller].kept.clone();
                }
            }
        }
    }

    /// A variable of a body: shared ones are the same in all calls, local ones cannot be a recursive function's.
    pub(super) fn variable(&mut self, variable: &'a ast::Variable, function: &'a str) {
        if self.within.is_some() && variable.space == Space::Local {
            let message = format!(
                "`{function}` has an array of its own and is called by itself; recursion is simulated for functions \
                 without local arrays"
            );
            let whole = self.module.functions.iter().find(|f| f.name == function);
            let first = whole.and_then(|f| f.body.iter().flatten().find_map(Statement::instruction));
            let (line, source) = first.map_or((0, None), |i| (i.line, self.source(i.loc)));
            self.errors.push(crate::error::SimulatorError::Unsupported { line, source, message });
        }
        let key = (function, variable.name.as_str());
        match self.shared.get(&key) {
            Some(&place) => drop(self.slots.symbols.insert(variable.name.clone(), place)),
            None => {
                self.layout.declare(&mut self.slots.symbols, variable);
                if variable.space == Space::Shared {
                    self.shared.insert(key, self.slots.symbols[&variable.name]);
                }
            }
        }
    }

    /// Where a function's parameters lie.
    fn parameters(&self, number: usize) -> Vec<std::ops::Range<u64>> {
        let Recursive { function, names, .. } = &self.recursive[number];
        let symbols = function.params.iter().filter_map(|p| names.get(&p.name)).map(|p| p.0 as usize);
        symbols.map(|s| &self.layout.symbols[s]).map(|s| s.at..s.at + s.bytes).collect()
    }
}
