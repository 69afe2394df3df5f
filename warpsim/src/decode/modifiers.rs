//! The dotted parts of an opcode: each must be taken by somebody.

use super::Fail;
use crate::op::{FloatMode, Round};
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

    /// Takes the last modifier.
    pub fn last(&mut self) -> Result<&'a str, Fail> {
        self.rest.pop().ok_or_else(|| Fail::new("its types are missing"))
    }

    /// Every modifier must have been taken.
    pub fn finish(&self) -> Result<(), Fail> {
        match self.rest.first() {
            None => Ok(()),
            Some(name) => Err(Fail::new(format!("the modifier `.{name}` is not known here"))),
        }
    }
}
