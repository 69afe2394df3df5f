//! Where parameters and the variables of a kernel lie.

use std::collections::HashMap;

use crate::ptx::ast::{Function, Module, Statement, Variable};
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
}

impl Layout {
    /// Lays out a function; fills `names` with the number of each symbol.
    pub fn new(module: &Module, function: &Function, names: &mut HashMap<String, u32>) -> Self {
        let mut layout = Self::default();
        let mut dynamic = Vec::new();
        for param in &function.params {
            let at = place(&mut layout.param_bytes, param);
            layout.params.push(layout.symbols.len() as u32);
            layout.add(names, param, at);
        }
        let shared_outside = module.variables.iter().filter(|v| v.space == Space::Shared);
        let inside = function.body.iter().flatten().filter_map(|s| match s {
            Statement::Variable(v) => Some(v),
            _ => None,
        });
        for variable in shared_outside.chain(inside) {
            let at = match variable.space {
                Space::Shared if variable.bytes == 0 => {
                    dynamic.push(variable);
                    continue;
                }
                Space::Shared => place(&mut layout.shared_bytes, variable),
                Space::Local => place(&mut layout.local_bytes, variable),
                _ => continue,
            };
            layout.add(names, variable, at);
        }
        // All dynamic arrays share one start.
        let align = dynamic.iter().map(|v| u64::from(v.align).max(16)).max().unwrap_or(1);
        layout.shared_bytes = layout.shared_bytes.next_multiple_of(align);
        layout.local_bytes = layout.local_bytes.next_multiple_of(16);
        let start = layout.shared_bytes;
        dynamic.iter().for_each(|v| layout.add(names, v, start));
        for (index, variable) in module.variables.iter().enumerate() {
            if matches!(variable.space, Space::Global | Space::Const) {
                layout.add(names, variable, index as u64);
            }
        }
        layout
    }

    fn add(&mut self, names: &mut HashMap<String, u32>, variable: &Variable, at: u64) {
        names.insert(variable.name.clone(), self.symbols.len() as u32);
        let Variable { name, space, bytes, .. } = variable;
        self.symbols.push(Symbol { name: name.clone(), space: *space, at, bytes: *bytes });
    }
}

fn place(size: &mut u64, variable: &Variable) -> u64 {
    let at = size.next_multiple_of(u64::from(variable.align.max(1)));
    *size = at.saturating_add(variable.bytes);
    at
}
