//! Names and immediates to slots of the register file.

use std::collections::{HashMap, HashSet};

use crate::ptx::ast::Operand;
use crate::ptx::types::{Space, Type};

use super::fail::Fail;
use crate::op::{Pred, Row, Slot};

/// Where a declared register lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Register {
    /// 8 and 16-bit registers.
    Short(Slot),
    /// 32-bit registers.
    Narrow(Slot),
    /// 64-bit registers.
    Wide(Slot),
    /// Predicates.
    Pred(Slot),
}

/// What a constant row holds; filled in when a warp starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fill {
    /// The same bits in each lane.
    Bits(u64),
    /// A special register.
    Special(Special),
    /// Address of a variable of the module in its own space, plus an offset.
    Symbol(u32, i64),
}

/// Special registers that stay the same while a warp runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    ClusterId(u8),
    ClusterCount(u8),
    BlockInCluster(u8),
    ClusterSide(u8),
    ClusterRank,
    ClusterSize,
    Lane,
    Warp,
    Warps,
    LaneMask(LaneMask),
    Zero,
    One,
    SharedSize,
    DynamicSharedSize,
}

/// `%lanemask_…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum LaneMask {
    Eq,
    Le,
    Lt,
    Ge,
    Gt,
}

/// The register file of a kernel while it is decoded.
#[derive(Debug, Default)]
pub struct Slots {
    /// Names in force, innermost scope last.
    pub scopes: Vec<HashMap<String, Register>>,
    /// Rows so far: 32-bit, 64-bit, predicates.
    pub sizes: (Slot, Slot, Slot),
    constants: HashMap<(Fill, bool), Slot>,
    /// Rows with contents: 64-bit file or not, slot, contents.
    pub fills: Vec<(bool, Slot, Fill)>,
    /// Variables by name: number in the kernel's table, and space.
    pub symbols: HashMap<String, (u32, Space)>,
    /// Addresses of functions.
    pub functions: HashMap<String, u64>,
    /// Row of the carry between words (`CC.CF`), once an instruction uses it.
    carry: Option<Slot>,
    /// Registers that some instruction reads: 64-bit file or not, slot.
    pub read: HashSet<(bool, Slot)>,
}

impl Slots {
    /// Opens a scope; the body itself is one.
    pub fn open(&mut self) {
        self.scopes.push(HashMap::new());
    }

    /// Closes the innermost scope.
    pub fn close(&mut self) {
        self.scopes.pop();
    }

    /// Declares a register in the innermost scope.
    pub fn declare(&mut self, ty: Type, name: String) {
        let (counter, register): (&mut Slot, fn(Slot) -> Register) = match ty {
            Type::Pred => (&mut self.sizes.2, Register::Pred),
            _ if ty.bytes() == 8 => (&mut self.sizes.1, Register::Wide),
            _ if ty.bytes() == 4 => (&mut self.sizes.0, Register::Narrow),
            _ => (&mut self.sizes.0, Register::Short),
        };
        let register = register(*counter);
        *counter += 1;
        if let Some(scope) = self.scopes.last_mut() {
            scope.insert(name, register);
        }
    }

    /// Row of predicates that holds the carry.
    pub fn carry(&mut self) -> Slot {
        let next = &mut self.sizes.2;
        *self.carry.get_or_insert_with(|| {
            *next += 1;
            *next - 1
        })
    }

    /// Where a register that is in force lives.
    pub fn register(&self, name: &str) -> Option<Register> {
        self.find(name)
    }

    fn find(&self, name: &str) -> Option<Register> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name).copied())
    }

    fn constant(&mut self, fill: Fill, wide: bool) -> Slot {
        if let Some(&slot) = self.constants.get(&(fill, wide)) {
            return slot;
        }
        let counter = if wide { &mut self.sizes.1 } else { &mut self.sizes.0 };
        let slot = *counter;
        *counter += 1;
        self.constants.insert((fill, wide), slot);
        self.fills.push((wide, slot, fill));
        slot
    }

    /// Row of a register that is written.
    pub fn row(&self, operand: &Operand) -> Result<Row, Fail> {
        let Operand::Name(name) = operand else { return Err(Fail::new("a register is expected")) };
        match self.find(name) {
            Some(Register::Short(slot)) => Ok(Row { slot, wide: false, short: true }),
            Some(Register::Narrow(slot)) => Ok(Row { slot, wide: false, short: false }),
            Some(Register::Wide(slot)) => Ok(Row { slot, wide: true, short: false }),
            Some(Register::Pred(_)) => Err(Fail::new(format!("`{name}` is a predicate"))),
            None => Err(Fail::new(format!("`{name}` is not declared"))),
        }
    }

    /// Row of a register or a constant; `wide` is the file that the instruction's type asks for.
    pub fn source(&mut self, operand: &Operand, wide: bool) -> Result<Slot, Fail> {
        let row = self.any_source(operand, wide)?;
        if row.wide == wide {
            Ok(row.slot)
        } else {
            Err(Fail::new(format!("the operand {} is of another size than the instruction", text(operand))))
        }
    }

    /// Row of an operand in whichever file it is; constants go to the file asked for.
    pub fn any_source(&mut self, operand: &Operand, wide: bool) -> Result<Row, Fail> {
        let fill = match operand {
            Operand::Int(value) => Fill::Bits(if wide { *value } else { *value & 0xffff_ffff }),
            Operand::F32(bits) if !wide => Fill::Bits(u64::from(*bits)),
            Operand::F32(bits) => Fill::Bits(f64::from(f32::from_bits(*bits)).to_bits()),
            Operand::F64(bits) if wide => Fill::Bits(*bits),
            Operand::F64(bits) => Fill::Bits(u64::from((f64::from_bits(*bits) as f32).to_bits())),
            Operand::Name(name) if name == "WARP_SZ" => Fill::Bits(32),
            Operand::Name(name) => match self.find(name) {
                Some(_) => {
                    let row = self.row(operand)?;
                    self.read.insert((row.wide, row.slot));
                    return Ok(row);
                }
                None => match (special(name), self.symbols.get(name)) {
                    (Some(special), _) => Fill::Special(special),
                    (None, Some(&(symbol, _))) => Fill::Symbol(symbol, 0),
                    (None, None) => match self.functions.get(name) {
                        Some(&address) => Fill::Bits(address),
                        None => return Err(Fail::new(format!("`{name}` is not known"))),
                    },
                },
            },
            Operand::Address(base, offset) => match base.as_ref() {
                Operand::Name(name) if self.symbols.contains_key(name) => Fill::Symbol(self.symbols[name].0, *offset),
                _ => return Err(Fail::new("an operand in brackets")),
            },
            _ => return Err(Fail::new(format!("the operand {}", text(operand)))),
        };
        Ok(Row { slot: self.constant(fill, wide), wide, short: false })
    }

    /// A predicate operand.
    pub fn pred(&self, operand: &Operand) -> Result<Pred, Fail> {
        let (name, negated) = match operand {
            Operand::Name(name) => (name, false),
            Operand::Not(name) => (name, true),
            _ => return Err(Fail::new("a predicate is expected")),
        };
        match self.find(name) {
            Some(Register::Pred(slot)) => Ok(Pred { slot, negated }),
            _ => Err(Fail::new(format!("`{name}` is not a predicate"))),
        }
    }

    /// A predicate that is written; `_` gives `None`.
    pub fn pred_out(&self, operand: &Operand) -> Result<Option<Slot>, Fail> {
        match operand {
            Operand::Name(name) if name == "_" => Ok(None),
            _ => match self.pred(operand)? {
                Pred { slot, negated: false } => Ok(Some(slot)),
                _ => Err(Fail::new("a negated predicate cannot be written")),
            },
        }
    }
}

/// An operand for a message.
pub fn text(operand: &Operand) -> String {
    match operand {
        Operand::Name(name) => format!("`{name}`"),
        Operand::Not(name) => format!("`!{name}`"),
        Operand::Int(value) => format!("{}", *value as i64),
        other => format!("{other:?}"),
    }
}

fn special(name: &str) -> Option<Special> {
    let axis = |rest: &str| match rest {
        "x" => Some(0),
        "y" => Some(1),
        "z" => Some(2),
        _ => None,
    };
    if let Some((register, rest)) = name.split_once('.') {
        let axis = axis(rest)?;
        return Some(match register {
            "%tid" => Special::Tid(axis),
            "%ntid" => Special::Ntid(axis),
            "%ctaid" => Special::Ctaid(axis),
            "%nctaid" => Special::Nctaid(axis),
            "%clusterid" => Special::ClusterId(axis),
            "%nclusterid" => Special::ClusterCount(axis),
            "%cluster_ctaid" => Special::BlockInCluster(axis),
            "%cluster_nctaid" => Special::ClusterSide(axis),
            _ => return None,
        });
    }
    Some(match name {
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%cluster_ctarank" => Special::ClusterRank,
        "%cluster_nctarank" => Special::ClusterSize,
        "%smid" | "%clock_hi" | "%globaltimer_hi" => Special::Zero,
        // All blocks run on one multiprocessor, in the first grid.
        "%nsmid" | "%gridid" => Special::One,
        "%nwarpid" => Special::Warps,
        "%lanemask_eq" => Special::LaneMask(LaneMask::Eq),
        "%lanemask_le" => Special::LaneMask(LaneMask::Le),
        "%lanemask_lt" => Special::LaneMask(LaneMask::Lt),
        "%lanemask_ge" => Special::LaneMask(LaneMask::Ge),
        "%lanemask_gt" => Special::LaneMask(LaneMask::Gt),
        "%total_smem_size" => Special::SharedSize,
        "%dynamic_smem_size" => Special::DynamicSharedSize,
        _ => return None,
    })
}
