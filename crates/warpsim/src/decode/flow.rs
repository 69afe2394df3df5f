//! What flows where through registers: which loads a stored value was made from, and which shared variables an address.
//!
//! Both look at registers without the order of instructions: PTX gives nearly every value a register of its own.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::layout::Symbol;
use super::slots::{Register, Slots};
use crate::op::{AtomicOp, Instruction, Left, Op, Slot, Transfer};
use crate::ptx::ast::{self, Operand};
use crate::ptx::types::Space;

/// Bytes of shared memory, from and to: those of the variables that an address starts from.
pub type Home = (u32, u32);
/// All of it, where that is not known.
pub const ANYWHERE: Home = (0, u32::MAX);

/// Updates in two steps: a value is read by one volatile or atomic access, and what was made of it written by another.
#[derive(Clone, Debug, Default)]
pub struct Updates {
    /// By the instruction that writes (a volatile store, an exchange): the volatile or atomic reads that its value was
    /// made from, or compared with.
    pub writes: BTreeMap<u32, Vec<u32>>,
    /// All such reads.
    pub reads: BTreeSet<u32>,
    /// Volatile and atomic reads that a loop repeats until they give what it waits for.
    pub waits: BTreeSet<u32>,
}

impl Updates {
    /// Whether the kernel has none, as nearly all.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

/// Registers of a warpgroup's products that an instruction reads and writes.
#[derive(Clone, Debug, Default)]
pub struct Touch {
    pub reads: Vec<Slot>,
    pub writes: Vec<Slot>,
}

/// The registers and shared variables of one instruction.
#[derive(Debug, Default)]
struct Step {
    at: u32,
    to: Vec<Register>,
    from: Vec<Register>,
    shared: Vec<u32>,
    /// Those of its address.
    base: Vec<Register>,
    base_shared: Vec<u32>,
    /// Whether it asks which of two numbers is larger.
    orders: bool,
}

/// All instructions of a kernel as they were written.
#[derive(Debug, Default)]
pub struct Flow(Vec<Step>);

impl Flow {
    /// Notes the instruction that becomes number `at`.
    pub fn note(&mut self, at: usize, slots: &Slots, from: &ast::Instruction) {
        let mut parts = from.opcode.split('.');
        let orders = parts.next() == Some("setp")
            && parts.any(|part| ["lt", "le", "gt", "ge"].contains(&part.trim_end_matches('u')));
        let mut step = Step { at: at as u32, orders, ..Step::default() };
        for (number, operand) in from.operands.iter().enumerate() {
            match operand {
                Operand::Address(base, _) => names(slots, base, &mut step.base, &mut step.base_shared),
                operand if number == 0 => names(slots, operand, &mut step.to, &mut Vec::new()),
                operand => names(slots, operand, &mut step.from, &mut step.shared),
            }
        }
        // `mov.u32 %r1, words+16` has its variable in the same form as an address in brackets.
        if from.opcode.starts_with("mov") {
            step.from.append(&mut step.base);
            step.shared.append(&mut step.base_shared);
        }
        self.0.push(step);
    }

    /// Gives each access of shared memory the bytes of the variables that its address starts from.
    pub fn place_homes(&self, code: &mut [Instruction], symbols: &[Symbol]) {
        let home = |symbol: &u32| {
            let symbol = &symbols[*symbol as usize];
            // Dynamic shared memory has no size here.
            let end = if symbol.bytes == 0 { u32::MAX } else { (symbol.at + symbol.bytes) as u32 };
            (symbol.at as u32, end)
        };
        let mut homes: HashMap<Register, Home> = HashMap::new();
        let joined = |homes: &HashMap<Register, Home>, registers: &[Register], shared: &[u32]| {
            let all =
                shared.iter().map(home).chain(registers.iter().filter_map(|register| homes.get(register).copied()));
            all.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        };
        loop {
            let mut changed = false;
            for step in &self.0 {
                // What lies in memory is no address of a variable, as far as this looks.
                if matches!(code[step.at as usize].op, Op::Load(_) | Op::Atomic(_)) {
                    continue;
                }
                let Some(found) = joined(&homes, &step.from, &step.shared) else { continue };
                for register in &step.to {
                    let old = homes.get(register).copied();
                    let new = old.map_or(found, |old| (old.0.min(found.0), old.1.max(found.1)));
                    changed |= homes.insert(*register, new) != Some(new);
                }
            }
            if !changed {
                break;
            }
        }
        for step in &self.0 {
            let Some(found) = joined(&homes, &step.base, &step.base_shared) else { continue };
            match &mut code[step.at as usize].op {
                Op::Load(t) | Op::Store(t) => t.home = found,
                Op::Atomic(a) => a.home = found,
                _ => {}
            }
        }
    }

    /// Notes which instructions touch the registers of a warpgroup's products, or what is moved from and to them.
    pub fn sums(&self, code: &mut [Instruction]) -> Vec<Touch> {
        let mut rows: BTreeSet<Slot> = BTreeSet::new();
        for instruction in code.iter() {
            if let Op::Wgmma(product) = &instruction.op {
                rows.extend(&product.d);
                if let Left::Registers(left) = product.a {
                    rows.extend(left);
                }
            }
        }
        if rows.is_empty() {
            return Vec::new();
        }
        let moves = code.iter().filter_map(|i| if let Op::Mov32 { d, a } = i.op { Some((d, a)) } else { None });
        // Constants have rows, too: what they are moved to has nothing in common.
        let written: BTreeSet<Register> = self.0.iter().flat_map(|step| &step.to).copied().collect();
        let register =
            |slot: &Slot| written.contains(&Register::Narrow(*slot)) || written.contains(&Register::Short(*slot));
        let moves: Vec<(Slot, Slot)> = moves.filter(|(_, a)| register(a)).collect();
        loop {
            let before = rows.len();
            for &(d, a) in &moves {
                if rows.contains(&d) || rows.contains(&a) {
                    rows.extend([d, a]);
                }
            }
            if rows.len() == before {
                break;
            }
        }
        let mut out = Vec::new();
        for step in &self.0 {
            let among = |registers: &[Register]| -> Vec<Slot> {
                let narrow = registers.iter().filter_map(|register| match register {
                    Register::Narrow(slot) | Register::Short(slot) => Some(*slot),
                    _ => None,
                });
                narrow.filter(|slot| rows.contains(slot)).collect()
            };
            let touch = Touch { reads: [among(&step.from), among(&step.base)].concat(), writes: among(&step.to) };
            if !touch.reads.is_empty() || !touch.writes.is_empty() {
                out.push(touch);
                code[step.at as usize].sums = out.len() as u32;
            }
        }
        out
    }

    /// The updates in two steps of a kernel.
    pub fn updates(&self, code: &[Instruction]) -> Updates {
        let mut out = Updates::default();
        let writes = self.0.iter().filter(|step| match &code[step.at as usize].op {
            Op::Store(t) => strong(t),
            Op::Atomic(a) => a.op == AtomicOp::Exchange,
            _ => false,
        });
        let writes: Vec<&Step> = writes.collect();
        if writes.is_empty() {
            return out;
        }
        let mut makers: HashMap<Register, Vec<&Step>> = HashMap::new();
        for step in &self.0 {
            step.to.iter().for_each(|register| makers.entry(*register).or_default().push(step));
        }
        for write in writes {
            let mut reads = made_from(code, &makers, &write.from);
            // `if (x > *word) *word = x` is an update, too: what is written was compared with what was read.
            let compares = |step: &&Step| step.orders && step.from.iter().any(|register| write.from.contains(register));
            for step in self.0.iter().filter(compares).filter(|step| decides(code, step, write.at)) {
                reads.extend(made_from(code, &makers, &step.from));
            }
            if !reads.is_empty() {
                out.reads.extend(&reads);
                out.writes.insert(write.at, reads.into_iter().collect());
            }
        }
        if out.is_empty() {
            return out;
        }
        // A loop that goes back where what it read is not yet what it waits for, and does not write itself.
        for (at, instruction) in code.iter().enumerate() {
            let Op::Branch { target, .. } = instruction.op else { continue };
            let body = target..=at as u32;
            if body.is_empty() || out.writes.keys().any(|write| body.contains(write)) {
                continue;
            }
            let leaves = |number: u32, branch: &Instruction| match (&branch.op, branch.guard) {
                (Op::Branch { target, .. }, Some(guard)) if number == at as u32 || !body.contains(target) => {
                    Some(guard)
                }
                _ => None,
            };
            let inside = body.clone().map(|number| (number, &code[number as usize]));
            let guards: Vec<Register> =
                inside.filter_map(|(number, i)| leaves(number, i)).map(|guard| Register::Pred(guard.slot)).collect();
            let read = made_from(code, &makers, &guards);
            out.waits.extend(read.into_iter().filter(|read| body.contains(read)));
        }
        out
    }
}

/// Whether the result of a comparison decides if an instruction runs: as its guard, or that of a branch around it.
fn decides(code: &[Instruction], compare: &Step, write: u32) -> bool {
    let asked = |instruction: &Instruction| {
        instruction.guard.is_some_and(|guard| compare.to.contains(&Register::Pred(guard.slot)))
    };
    let around = |at: usize, branch: &Instruction| match branch.op {
        Op::Branch { target, .. } => (at as u32) < write && write < target && asked(branch),
        _ => false,
    };
    asked(&code[write as usize]) || code.iter().enumerate().any(|(at, instruction)| around(at, instruction))
}

fn strong(t: &Transfer) -> bool {
    t.strong && t.address.space != Space::Local
}

/// The volatile and atomic reads that registers are made from.
fn made_from(code: &[Instruction], makers: &HashMap<Register, Vec<&Step>>, registers: &[Register]) -> BTreeSet<u32> {
    let (mut open, mut seen) = (registers.to_vec(), registers.iter().copied().collect::<BTreeSet<_>>());
    let mut reads = BTreeSet::new();
    while let Some(register) = open.pop() {
        for step in makers.get(&register).into_iter().flatten() {
            match &code[step.at as usize].op {
                Op::Load(t) if strong(t) => drop(reads.insert(step.at)),
                Op::Atomic(_) => drop(reads.insert(step.at)),
                Op::Load(_) => {}
                _ => open.extend(step.from.iter().copied().filter(|from| seen.insert(*from))),
            }
        }
    }
    reads
}

/// The registers and shared variables that an operand names.
fn names(slots: &Slots, operand: &Operand, registers: &mut Vec<Register>, shared: &mut Vec<u32>) {
    match operand {
        Operand::Name(name) | Operand::Not(name) => match (slots.register(name), slots.symbols.get(name)) {
            (Some(register), _) => registers.push(register),
            (None, Some(&(symbol, Space::Shared))) => shared.push(symbol),
            _ => {}
        },
        Operand::Vector(parts) | Operand::List(parts) => {
            parts.iter().for_each(|part| names(slots, part, registers, shared));
        }
        Operand::Address(base, _) => names(slots, base, registers, shared),
        Operand::Pair(a, b) => [a, b].into_iter().for_each(|part| names(slots, part, registers, shared)),
        Operand::Int(_) | Operand::F32(_) | Operand::F64(_) => {}
    }
}
