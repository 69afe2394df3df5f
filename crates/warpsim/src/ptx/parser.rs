//! Directives at module level: variables, kernels, functions.

use super::ast::{Function, Module, Variable};
use super::lexer::{Token, syntax, tokens};
use super::location::Location;
use super::types::Space;
use crate::error::{Result, SimulatorError};
use std::collections::HashMap;

/// The newest major version of the PTX ISA whose text this crate knows: NVRTC 13 prints 9.x.
const NEWEST: u32 = 9;

/// Parses a PTX file.
///
/// # Errors
/// Text that is not PTX, or a directive that this crate does not know.
pub fn parse(text: &str) -> Result<Module> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, loc: (0, 0), inlined: HashMap::new() };
    let mut module = Module::default();
    while parser.at < parser.tokens.len() {
        parser.item(&mut module)?;
    }
    Ok(module)
}

pub(super) struct Parser {
    tokens: Vec<(Token, u32)>,
    pub(super) at: usize,
    pub(super) loc: (u32, u32),
    /// File and line that an inlined place counts for.
    pub(super) inlined: HashMap<Location, (u32, u32)>,
}

impl Parser {
    pub(super) fn line(&self) -> u32 {
        let last = self.tokens.len().saturating_sub(1);
        self.tokens.get(self.at.min(last)).map_or(0, |t| t.1)
    }

    pub(super) fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|t| &t.0)
    }

    pub(super) fn next(&mut self) -> Result<Token> {
        let token = self.peek().cloned().ok_or_else(|| self.error("the text ends too early"))?;
        self.at += 1;
        Ok(token)
    }

    pub(super) fn error(&self, message: &str) -> SimulatorError {
        syntax(self.line(), message)
    }

    pub(super) fn accept(&mut self, mark: u8) -> bool {
        let found = self.peek() == Some(&Token::Mark(mark));
        self.at += usize::from(found);
        found
    }

    pub(super) fn expect(&mut self, mark: u8) -> Result<()> {
        if self.accept(mark) { Ok(()) } else { Err(self.error(&format!("`{}` is missing", mark as char))) }
    }

    pub(super) fn accept_word(&mut self, word: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Word(w)) if w == word);
        self.at += usize::from(found);
        found
    }

    pub(super) fn word(&mut self) -> Result<String> {
        match self.next()? {
            Token::Word(word) => Ok(word),
            _ => Err(self.error("a name is missing")),
        }
    }

    pub(super) fn integer(&mut self) -> Result<u64> {
        let negative = self.accept(b'-');
        match self.next()? {
            Token::Int(value) => Ok(if negative { value.wrapping_neg() } else { value }),
            _ => Err(self.error("a whole number is missing")),
        }
    }

    fn item(&mut self, module: &mut Module) -> Result<()> {
        let line = self.line();
        if self.accept(b';') {
            return Ok(());
        }
        let mut word = self.word()?;
        while matches!(word.as_str(), ".visible" | ".extern" | ".weak" | ".common") {
            word = self.word()?;
        }
        match word.as_str() {
            ".version" => {
                // The lexer reads 9.0 as a decimal.
                let Token::F64(bits) = self.next()? else { return Err(self.error("`.version` needs major.minor")) };
                let tenths = (f64::from_bits(bits) * 10.0).round() as u32;
                module.version = (tenths / 10, tenths % 10);
                if module.version.0 > NEWEST {
                    let (major, minor) = module.version;
                    return Err(SimulatorError::Call(format!(
                        "PTX line {line}: `.version {major}.{minor}` is newer than this simulator, which knows the PTX ISA to \
                         {NEWEST}.x (CUDA 13)\nnext: compile with NVRTC 12 or 13"
                    )));
                }
            }
            ".target" => {
                module.target = self.word()?;
                while self.accept(b',') {
                    self.word()?;
                }
            }
            ".address_size" => {
                if self.integer()? != 64 {
                    return Err(SimulatorError::Unsupported {
                        line,
                        source: None,
                        message: "only 64-bit addresses run".into(),
                    });
                }
            }
            ".file" => self.file(module)?,
            ".loc" => self.location()?,
            ".section" => self.skip_section()?,
            ".entry" | ".func" => {
                let function = self.function(word == ".entry", line)?;
                // A declaration may come before the definition.
                module.functions.retain(|f| f.name != function.name || f.body.is_some());
                if function.body.is_some() || module.functions.iter().all(|f| f.name != function.name) {
                    module.functions.push(function);
                }
            }
            ".global" | ".const" | ".shared" => {
                let space = Space::from_name(&word[1..]).ok_or_else(|| self.error("an unknown space"))?;
                module.variables.extend(self.variables(space)?);
                self.expect(b';')?;
            }
            ".pragma" => {
                while !self.accept(b';') {
                    self.next()?;
                }
            }
            // Labels between debug sections.
            _ if !word.starts_with('.') && self.accept(b':') => {}
            _ => {
                return Err(SimulatorError::Unsupported {
                    line,
                    source: None,
                    message: format!("the directive `{word}`"),
                });
            }
        }
        Ok(())
    }

    fn file(&mut self, module: &mut Module) -> Result<()> {
        let number = self.integer()? as u32;
        let Token::Text(name) = self.next()? else { return Err(self.error("`.file` needs a name")) };
        while self.accept(b',') {
            self.next()?;
        }
        module.files.push((number, name));
        Ok(())
    }

    /// Debug sections carry nothing that runs.
    fn skip_section(&mut self) -> Result<()> {
        self.word()?;
        self.expect(b'{')?;
        while !self.accept(b'}') {
            self.next()?;
        }
        Ok(())
    }

    fn function(&mut self, entry: bool, line: u32) -> Result<Function> {
        let results = !entry && self.peek() == Some(&Token::Mark(b'('));
        let returns = if results { self.params()? } else { Vec::new() };
        let name = self.word()?;
        let params = if self.peek() == Some(&Token::Mark(b'(')) { self.params()? } else { Vec::new() };
        let mut cluster = None;
        // Hints for the register allocator and launch bounds.
        while let Some(Token::Word(word)) = self.peek() {
            let flag = matches!(word.as_str(), ".noreturn" | ".blocksareclusters" | ".explicitcluster");
            let bounds = [".maxntid", ".minnctapersm", ".maxnreg", ".reqntid", ".maxclusterrank", ".pragma"];
            if word == ".reqnctapercluster" {
                self.at += 1;
                let mut sides = [1; 3];
                for (number, side) in sides.iter_mut().enumerate() {
                    if number == 0 || self.accept(b',') {
                        *side = u32::try_from(self.integer()?).unwrap_or(u32::MAX);
                    }
                }
                cluster = Some(sides);
                continue;
            }
            if !flag && !bounds.contains(&word.as_str()) {
                return Err(self.error(&format!("`{word}` after the parameters of {name}")));
            }
            self.at += 1;
            while matches!(self.peek(), Some(Token::Int(_) | Token::Text(_) | Token::Mark(b','))) {
                self.at += 1;
            }
        }
        let body = if self.accept(b';') { None } else { Some(self.body()?) };
        Ok(Function { name, entry, params, returns, cluster, body, line })
    }

    fn params(&mut self) -> Result<Vec<Variable>> {
        self.expect(b'(')?;
        let mut params = Vec::new();
        while !self.accept(b')') {
            if self.accept_word(".param") || self.accept_word(".reg") {
                params.extend(self.variables(Space::Param)?);
            } else if !self.accept(b',') {
                return Err(self.error("a parameter list has `.param` and commas"));
            }
        }
        Ok(params)
    }
}
