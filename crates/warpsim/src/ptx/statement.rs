//! Bodies: declarations, labels, instructions, operands.

use super::ast::{Instruction, Operand, Statement};
use super::lexer::Token;
use super::parser::Parser;
use super::types::{Space, Type};
use crate::error::Result;

/// Inline assembly opens scopes; nobody nests them deeper.
const MAX_SCOPES: usize = 256;

impl Parser {
    pub(super) fn body(&mut self) -> Result<Vec<Statement>> {
        self.expect(b'{')?;
        let mut out = Vec::new();
        let mut depth = 1usize;
        loop {
            if self.accept(b'{') {
                depth += 1;
                if depth > MAX_SCOPES {
                    return Err(self.error("scopes nested too deeply"));
                }
                out.push(Statement::Open);
            } else if self.accept(b'}') {
                depth -= 1;
                if depth == 0 {
                    return Ok(out);
                }
                out.push(Statement::Close);
            } else if !self.accept(b';') {
                self.statement(&mut out)?;
            }
        }
    }

    fn statement(&mut self, out: &mut Vec<Statement>) -> Result<()> {
        let line = self.line();
        let guard = if self.accept(b'@') {
            let negated = self.accept(b'!');
            Some((self.word()?, negated))
        } else {
            None
        };
        let word = self.word()?;
        match word.as_str() {
            ".reg" => return self.registers(out),
            ".loc" => return self.location(),
            // A prototype names the parameters of a call through a pointer, which is refused where it is made.
            ".pragma" | ".callprototype" => {
                while !self.accept(b';') {
                    self.next()?;
                }
                return Ok(());
            }
            ".branchtargets" => {
                let mut labels = vec![self.word()?];
                while self.accept(b',') {
                    labels.push(self.word()?);
                }
                out.push(Statement::Targets(labels));
                return self.expect(b';');
            }
            ".shared" | ".local" | ".param" | ".global" | ".const" => {
                let space = Space::from_name(&word[1..]).ok_or_else(|| self.error("an unknown space"))?;
                out.extend(self.variables(space)?.into_iter().map(Statement::Variable));
                return self.expect(b';');
            }
            _ if word.starts_with('.') => return Err(self.error(&format!("the directive `{word}` in a body"))),
            _ => {}
        }
        if guard.is_none() && self.accept(b':') {
            out.push(Statement::Label(word));
            return Ok(());
        }
        let mut operands = Vec::new();
        while !self.accept(b';') {
            if !operands.is_empty() {
                self.expect(b',')?;
            }
            operands.push(self.operand(0)?);
        }
        out.push(Statement::Instruction(Instruction { guard, opcode: word, operands, line, loc: self.loc }));
        Ok(())
    }

    fn registers(&mut self, out: &mut Vec<Statement>) -> Result<()> {
        let word = self.word()?;
        let ty = word.strip_prefix('.').and_then(Type::from_name);
        let ty = ty.ok_or_else(|| self.error(&format!("registers of type `{word}`")))?;
        let mut names = Vec::new();
        loop {
            let name = self.word()?;
            let count = if self.accept(b'<') {
                let count = self.integer()?;
                self.expect(b'>')?;
                if count > 1 << 17 {
                    return Err(self.error("more than 131072 registers"));
                }
                Some(count as u32)
            } else {
                None
            };
            names.push((name, count));
            if !self.accept(b',') {
                break;
            }
        }
        out.push(Statement::Registers(ty, names));
        self.expect(b';')
    }

    fn operand(&mut self, depth: u32) -> Result<Operand> {
        if depth > 4 {
            return Err(self.error("operands nested too deeply"));
        }
        let first = match self.next()? {
            Token::Word(name) => Operand::Name(name),
            Token::Int(value) => Operand::Int(value),
            Token::F32(bits) => Operand::F32(bits),
            Token::F64(bits) => Operand::F64(bits),
            Token::Mark(b'!') => Operand::Not(self.word()?),
            Token::Mark(b'-') => match self.next()? {
                Token::Int(value) => Operand::Int(value.wrapping_neg()),
                Token::F64(bits) => Operand::F64(bits ^ 1 << 63),
                _ => return Err(self.error("a minus without a number")),
            },
            Token::Mark(b'{') => Operand::Vector(self.list(b'}', depth)?),
            Token::Mark(b'(') => Operand::List(self.list(b')', depth)?),
            Token::Mark(b'[') => {
                let base = Box::new(self.operand(depth + 1)?);
                let negative = self.peek() == Some(&Token::Mark(b'-'));
                let offset = if negative || self.accept(b'+') { self.integer()? as i64 } else { 0 };
                // A tensor map with the coordinates of a box.
                if self.accept(b',') {
                    let coordinates = Box::new(self.operand(depth + 1)?);
                    self.expect(b']')?;
                    let map = Box::new(Operand::Address(base, offset));
                    return Ok(Operand::Address(Box::new(Operand::Pair(map, coordinates)), 0));
                }
                self.expect(b']')?;
                Operand::Address(base, offset)
            }
            _ => return Err(self.error("an operand is missing")),
        };
        if self.accept(b'|') {
            return Ok(Operand::Pair(Box::new(first), Box::new(self.operand(depth + 1)?)));
        }
        // `variable+offset`, outside brackets.
        if matches!(first, Operand::Name(_)) && depth == 0 && self.accept(b'+') {
            return Ok(Operand::Address(Box::new(first), self.integer()? as i64));
        }
        Ok(first)
    }

    fn list(&mut self, end: u8, depth: u32) -> Result<Vec<Operand>> {
        let mut out = Vec::new();
        while !self.accept(end) {
            if !out.is_empty() {
                self.expect(b',')?;
            }
            out.push(self.operand(depth + 1)?);
        }
        Ok(out)
    }
}
