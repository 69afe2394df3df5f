//! Variables and their initial values.

use super::ast::{Init, Variable};
use super::lexer::Token;
use super::parser::Parser;
use super::types::{Space, Type};
use crate::error::Result;

impl Parser {
    /// `[.align n] .type name[size] [= init] {, …}`, after the space.
    pub(super) fn variables(&mut self, space: Space) -> Result<Vec<Variable>> {
        let (mut align, mut ty, mut vector, mut pointer) = (None, None, 1, false);
        loop {
            let before = self.at;
            let Ok(word) = self.word() else {
                // `.param .b32 _` style placeholders and unsized arrays end here.
                self.at = before;
                break;
            };
            match word.as_str() {
                ".align" if pointer => drop(self.integer()?), // of what it points to
                ".align" => align = Some(self.integer()? as u32),
                ".ptr" => pointer = true,
                ".attribute" => return Err(self.error("`.attribute` on a variable")),
                ".v2" => vector = 2,
                ".v4" => vector = 4,
                _ if word.starts_with('.') => match Type::from_name(&word[1..]) {
                    Some(found) => ty = Some(found),
                    None if Space::from_name(&word[1..]).is_some() => {}
                    None => return Err(self.error(&format!("`{word}` on a variable"))),
                },
                _ => {
                    self.at = before;
                    break;
                }
            }
        }
        let ty = ty.ok_or_else(|| self.error("a variable without a type"))?;
        let mut out = Vec::new();
        loop {
            let name = self.word()?;
            let mut count = 1u64;
            while self.accept(b'[') {
                if self.accept(b']') {
                    count = 0;
                } else {
                    count = count.saturating_mul(self.integer()?);
                    self.expect(b']')?;
                }
            }
            let init = if self.accept(b'=') { self.initialiser()? } else { Vec::new() };
            let element = u64::from(ty.bytes() * vector);
            let bytes = count.saturating_mul(element).max(init.len() as u64 * element);
            if bytes > 1 << 32 {
                return Err(self.error(&format!("`{name}` is larger than 4 GiB")));
            }
            let align = align.unwrap_or(element as u32);
            if !align.is_power_of_two() {
                return Err(self.error("an alignment is a power of two"));
            }
            out.push(Variable { space, align, ty, name, bytes, init });
            // In a parameter list the comma starts the next `.param`.
            if space == Space::Param || !self.accept(b',') {
                return Ok(out);
            }
        }
    }

    fn initialiser(&mut self) -> Result<Vec<Init>> {
        let mut out = Vec::new();
        if !self.accept(b'{') {
            out.push(self.init_element()?);
            return Ok(out);
        }
        let mut depth = 1;
        while depth > 0 {
            match self.peek() {
                Some(Token::Mark(b'{')) => (depth, self.at) = (depth + 1, self.at + 1),
                Some(Token::Mark(b'}')) => (depth, self.at) = (depth - 1, self.at + 1),
                Some(Token::Mark(b',')) => self.at += 1,
                _ => out.push(self.init_element()?),
            }
        }
        Ok(out)
    }

    fn init_element(&mut self) -> Result<Init> {
        match self.peek().cloned() {
            Some(Token::F32(bits)) => (self.at += 1, Ok(Init::Bits(bits.into()))).1,
            Some(Token::F64(bits)) => (self.at += 1, Ok(Init::Bits(bits))).1,
            Some(Token::Word(name)) => {
                self.at += 1;
                let generic = name == "generic" && self.accept(b'(');
                let name = if generic { self.word()? } else { name };
                let mut offset = if self.accept(b'+') { self.integer()? as i64 } else { 0 };
                if generic {
                    self.expect(b')')?;
                    offset += if self.accept(b'+') { self.integer()? as i64 } else { 0 };
                }
                Ok(Init::Address(name, offset, generic))
            }
            _ => Ok(Init::Bits(self.integer()?)),
        }
    }
}
