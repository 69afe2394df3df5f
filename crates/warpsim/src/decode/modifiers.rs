//! The dotted parts of an opcode: each must be taken by somebody.

use super::fail::Fail;
use crate::op::{Element, FloatMode, Round};
use crate::ptx::types::Type;

/// An opcode, split at its dots.
pub struct Modifiers<'a> {
    /// The part before the first dot.
    pub base: &'a str,
    rest: Vec<&'a str>,
}

impl<'a> Modifiers<'a> {
    /// Splits an opcode.
    pub fn new(opcode: &'a str) -> Self {
        let mut parts = opcode.split('.');
        let base = parts.next().unwrap_or("");
        Self { base, rest: parts.collect() }
    }

    /// Takes a modifier, if it is there.
    pub fn take(&mut self, name: &str) -> bool {
        match self.rest.iter().position(|p| *p == name) {
            Some(at) => {
                self.rest.remove(at);
                true
            }
            None => false,
        }
    }

    /// Takes whichever of these is there.
    pub fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        choices.iter().find(|(name, _)| self.take(name)).map(|c| c.1)
    }

    /// Drops modifiers that change nothing here: scopes, caching.
    pub fn ignore(&mut self, names: &[&str]) {
        for name in names {
            while self.take(name) {}
        }
    }

    /// Takes the type at the end.
    pub fn ty(&mut self) -> Result<Type, Fail> {
        let ty = self.rest.last().and_then(|name| Type::from_name(name));
        self.rest.pop();
        ty.ok_or_else(|| Fail::new("its type is unknown"))
    }

    /// Takes `.rn` and its kin, `.ftz`, `.sat`.
    pub fn float_mode(&mut self) -> FloatMode {
        let round = [("rn", Round::Nearest), ("rz", Round::Zero), ("rm", Round::Down), ("rp", Round::Up)];
        FloatMode {
            round: self.choice(&round).unwrap_or_default(),
            ftz: self.take("ftz"),
            sat: self.take("sat"),
            relu: self.take("relu"),
        }
    }

    /// Takes `.m16n8k16` and its kin: rows, columns, depth.
    pub fn matrix_shape(&mut self) -> Result<(usize, usize, usize), Fail> {
        let read = |name: &str| {
            let (rows, rest) = name.strip_prefix('m')?.split_once('n')?;
            let (columns, depth) = rest.split_once('k')?;
            Some((rows.parse().ok()?, columns.parse().ok()?, depth.parse().ok()?))
        };
        let found = self.rest.iter().enumerate().find_map(|(at, name)| Some((at, read(name)?)));
        let (at, shape) = found.ok_or_else(|| Fail::new("its shape is unknown"))?;
        self.rest.remove(at);
        Ok(shape)
    }

    /// Takes the last modifier as the type of a matrix's elements.
    pub fn element(&mut self) -> Result<Element, Fail> {
        let element = match self.rest.last().copied() {
            Some("e4m3") => Element::E4m3,
            Some("e5m2") => Element::E5m2,
            Some("f16") => Element::F16,
            Some("bf16") => Element::Bf16,
            Some("tf32") => Element::Tf32,
            Some("f32") => Element::F32,
            Some("f64") => Element::F64,
            Some("s8") => Element::S8,
            Some("u8") => Element::U8,
            Some("s4") => Element::S4,
            Some("u4") => Element::U4,
            Some("s32") => Element::S32,
            _ => return Err(Fail::new("these types")),
        };
        self.rest.pop();
        Ok(element)
    }

    /// Every modifier must have been taken.
    pub fn finish(&self) -> Result<(), Fail> {
        match self.rest.first() {
            None => Ok(()),
            Some(name) => Err(Fail::new(format!("the modifier `.{name}` is not known here"))),
        }
    }
}
