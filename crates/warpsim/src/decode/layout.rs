//! Where parameters and the variables of a kernel lie.

use std::collections::HashMap;

use crate::ptx::ast::{Function, Module, Variable};
use crate::ptx::types::Space;

/// A variable or parameter that instructions name.
#[derive(Clone, Debug)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// Where it lives.
    pub space: Space,
    /// Offset in shared, local or parameter space; index of the module's variable in global and constant space.
    pub at: u64,
    /// Size in bytes; 0 for dynamic shared memory.
    pub bytes: u64,
}

/// Sizes and offsets of a kernel's memory.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// All that instructions can name.
    pub symbols: Vec<Symbol>,
    /// Parameters in order, as indices into the symbols.
    pub params: Vec<u32>,
    /// Bytes of the parameter space.
    pub param_bytes: u64,
    /// Bytes of static shared memory; dynamic shared memory starts here.
    pub shared_bytes: u64,
    /// Bytes of local memory a thread.
    pub local_bytes: u64,
    /// Dynamic shared arrays: symbol and alignment.
    dynamic: Vec<(u32, u32)>,
}

/// Names of variables: number in the table of symbols, and space.
pub type Names = HashMap<String, (u32, Space)>;

impl Layout {
    /// Lays out the parameters of a kernel and the variables of its module; fills in the names.
    pub fn new(module: &Module, function: &Function, names: &mut Names) -> Self {
        let mut layout = Self::default();
        for param in &function.params {
            let at = place(&mut layout.param_bytes, param);
            layout.params.push(layout.symbols.len() as u32);
            layout.add(names, param, Space::Param, at);
        }
        for (index, variable) in module.variables.iter().enumerate() {
            match variable.space {
                Space::Global | Space::Const => layout.add(names, variable, variable.space, index as u64),
                _ => layout.declare(names, variable),
            }
        }
        layout
    }

    /// Lays out a variable of a body. Parameters of a call lie in local memory.
    pub fn declare(&mut self, names: &mut Names, variable: &Variable) {
        match variable.space {
            Space::Shared if variable.bytes == 0 => {
                self.dynamic.push((self.symbols.len() as u32, variable.align));
                self.add(names, variable, Space::Shared, 0);
            }
            Space::Shared => {
                let at = place(&mut self.shared_bytes, variable);
                self.add(names, variable, Space::Shared, at);
            }
            Space::Local | Space::Param => {
                let at = place(&mut self.local_bytes, variable);
                self.add(names, variable, Space::Local, at);
            }
            _ => {}
        }
    }

    /// After the last variable: all dynamic arrays start behind the static ones.
    pub fn finish(&mut self) {
        let align = self.dynamic.iter().map(|d| u64::from(d.1).max(16)).max().unwrap_or(1);
        self.shared_bytes = self.shared_bytes.next_multiple_of(align);
        self.local_bytes = self.local_bytes.next_multiple_of(16);
        for &(symbol, _) in &self.dynamic {
            self.symbols[symbol as usize].at = self.shared_bytes;
        }
    }

    fn add(&mut self, names: &mut Names, variable: &Variable, space: Space, at: u64) {
        names.insert(variable.name.clone(), (self.symbols.len() as u32, space));
        let Variable { name, bytes, .. } = variable;
        self.symbols.push(Symbol { name: name.clone(), space, at, bytes: *bytes });
    }
}

fn place(size: &mut u64, variable: &Variable) -> u64 {
    let at = size.next_multiple_of(u64::from(variable.align.max(1)));
    *size = at.saturating_add(variable.bytes);
    at
}
