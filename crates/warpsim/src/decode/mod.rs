//! From the tree to [`crate::op`]: every modifier is understood here, once, or refused.

mod arithmetic;
mod atomic;
mod call;
mod convert;
mod fail;
mod float;
pub mod flow;
mod hopper;
mod layout;
mod logic;
mod matrix;
mod mbarrier;
mod memory;
mod modifiers;
mod operands;
mod order;
pub mod pointer;
mod rare;
mod recursion;
mod reuse;
pub mod slots;
mod warp;
mod wmma;

use std::collections::HashMap;

use crate::cfg;
use crate::error::{SimulatorError, SourceLine};
use crate::op::{AtomicOp, Instruction, Op};
use crate::ptx::ast;
use crate::ptx::types::Space;
use fail::Fail;
use flow::{Flow, Updates};
pub use layout::{Layout, Symbol};
use modifiers::Modifiers;
use slots::{Fill, Slots};

/// Registers and constants of a kernel at most; compilers stay far below.
const MAX_ROWS: u32 = 1 << 17;

/// A kernel, ready to run.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Its name in the PTX.
    pub name: String,
    /// Instructions; branches name indices into this.
    pub code: Vec<Instruction>,
    /// Rows of the register file: 32-bit, 64-bit, predicates.
    pub sizes: (usize, usize, usize),
    /// Rows with fixed contents.
    pub fills: Vec<(bool, u32, Fill)>,
    /// Where variables and parameters lie.
    pub layout: Layout,
    /// Whether blocks must run one after the other for the same result each time.
    pub ordered: bool,
    /// Updates that are no single access.
    pub updates: Updates,
    /// Whether it has asynchronous operations, or barriers in shared memory.
    pub asynchronous: bool,
    /// Whether it compares and swaps.
    pub swaps: bool,
    /// What instructions do with registers of a warpgroup's products.
    pub sums: Vec<flow::Touch>,
    /// Blocks of a cluster along x, y, z, where the kernel says so itself.
    pub cluster: Option<[u32; 3]>,
}

/// Decodes a kernel; gives every reason for which it cannot run.
pub fn kernel(module: &ast::Module, function: &ast::Function) -> Result<Kernel, Vec<SimulatorError>> {
    let mut decoder = Decoder::new(module, function);
    let body = function.body.as_deref().unwrap_or(&[]);
    decoder.body(body, &function.name);
    decoder.finish(function)
}

struct Decoder<'a> {
    module: &'a ast::Module,
    slots: Slots,
    layout: Layout,
    code: Vec<Instruction>,
    errors: Vec<SimulatorError>,
    /// By the scope that they are in, and by name: inline assembly repeats names in scopes of its own.
    labels: HashMap<(u32, String), u32>,
    /// Numbers of the scopes that are open, outermost first, and how many there were; the body itself is 0.
    scopes: (Vec<u32>, u32),
    /// Tables of `brx.idx`, and the label that was seen last.
    tables: HashMap<String, Vec<String>>,
    last_label: String,
    /// Branches of the body whose labels are not all known yet: instruction, name, and the scopes around it.
    branches: Vec<(u32, String, Vec<u32>)>,
    /// Functions whose calls are being put in, outermost first.
    inside: Vec<&'a str>,
    /// Functions that call themselves, the one that is decoded now, and the one that each call is in.
    recursive: Vec<recursion::Recursive<'a>>,
    within: Option<usize>,
    callers: Vec<Option<usize>>,
    /// Shared variables of functions: one for all calls.
    shared: HashMap<(&'a str, &'a str), (u32, Space)>,
    flow: Flow,
}

impl<'a> Decoder<'a> {
    fn new(module: &'a ast::Module, function: &'a ast::Function) -> Self {
        let mut slots = Slots::default();
        let functions = module.functions.iter().enumerate().filter(|(_, f)| !f.entry);
        slots.functions = functions.map(|(number, f)| (f.name.clone(), pointer::address(number))).collect();
        let layout = Layout::new(module, function, &mut slots.symbols);
        Self {
            module,
            slots,
            layout,
            code: Vec::new(),
            errors: Vec::new(),
            labels: HashMap::new(),
            scopes: (Vec::new(), 0),
            tables: HashMap::new(),
            last_label: String::new(),
            branches: Vec::new(),
            inside: Vec::new(),
            recursive: Vec::new(),
            within: None,
            callers: Vec::new(),
            shared: HashMap::new(),
            flow: Flow::default(),
        }
    }

    /// Decodes a body, whose names are its own, and joins its branches to their labels.
    fn body(&mut self, body: &'a [ast::Statement], name: &'a str) {
        self.slots.open();
        let outer = std::mem::take(&mut self.scopes);
        for statement in body {
            if let ast::Statement::Variable(variable) = statement
                && variable.space != Space::Param
            {
                self.variable(variable, name);
            }
        }
        body.iter().for_each(|statement| self.statement(statement));
        self.slots.close();
        self.scopes = outer;
        self.labels.insert((0, call::RETURN.to_owned()), self.code.len() as u32);
        for (at, label, scopes) in std::mem::take(&mut self.branches) {
            let instruction = &mut self.code[at as usize];
            // The innermost of the scopes around the branch, at last the body.
            let place = |label: &String| {
                let around = scopes.iter().rev().chain([&0]);
                around.filter_map(|&scope| self.labels.get(&(scope, label.clone())).copied()).next()
            };
            match (place(&label), &mut instruction.op) {
                (Some(place), Op::Branch { target, .. }) => *target = place,
                (Some(_), Op::BranchTable { targets, .. }) => {
                    let labels = self.tables.get(&label).into_iter().flatten();
                    let places: Option<Vec<u32>> = labels.map(place).collect();
                    match places.filter(|p| !p.is_empty()) {
                        Some(places) => *targets = places,
                        None => self.errors.push(SimulatorError::Syntax {
                            line: instruction.ptx_line,
                            message: format!("`{label}` is no table of labels"),
                        }),
                    }
                }
                _ => self.errors.push(SimulatorError::Syntax {
                    line: instruction.ptx_line,
                    message: format!("no label `{label}` in {name}"),
                }),
            }
        }
    }

    fn statement(&mut self, statement: &'a ast::Statement) {
        match statement {
            ast::Statement::Open => {
                self.slots.open();
                self.scopes.1 += 1;
                self.scopes.0.push(self.scopes.1);
            }
            ast::Statement::Close => {
                self.slots.close();
                self.scopes.0.pop();
            }
            ast::Statement::Label(name) => {
                let scope = self.scopes.0.last().copied().unwrap_or(0);
                self.labels.insert((scope, name.clone()), self.code.len() as u32);
                self.last_label.clone_from(name);
            }
            ast::Statement::Targets(labels) => {
                self.tables.insert(self.last_label.clone(), labels.clone());
            }
            ast::Statement::Registers(ty, names) => {
                for (name, count) in names {
                    match count {
                        None => self.slots.declare(*ty, name.clone()),
                        Some(count) => (0..*count).for_each(|i| self.slots.declare(*ty, format!("{name}{i}"))),
                    }
                }
            }
            // Parameters of a call; the others are laid out before the first instruction.
            ast::Statement::Variable(variable) if variable.space == Space::Param => {
                self.layout.declare(&mut self.slots.symbols, variable);
            }
            ast::Statement::Variable(_) => {}
            ast::Statement::Instruction(instruction) => {
                if let Err(Fail(message)) = self.instruction(instruction) {
                    let source = self.source(instruction.loc);
                    let message = format!("`{}`: {message}", instruction.opcode);
                    self.errors.push(SimulatorError::Unsupported { line: instruction.line, source, message });
                    // A branch that was refused after its label was read is not there.
                    self.branches.retain(|(at, ..)| (*at as usize) < self.code.len());
                }
            }
        }
    }

    fn source(&self, (file, line): (u32, u32)) -> Option<SourceLine> {
        let name = self.module.files.iter().find(|f| f.0 == file)?;
        (line > 0).then(|| SourceLine { file: name.1.clone(), line })
    }

    fn instruction(&mut self, from: &'a ast::Instruction) -> Result<(), Fail> {
        let mut modifiers = Modifiers::new(&from.opcode);
        let guard = match &from.guard {
            None => None,
            Some((name, negated)) => {
                let mut pred = self.slots.pred(&ast::Operand::Name(name.clone()))?;
                pred.negated = *negated;
                Some(pred)
            }
        };
        let op = if modifiers.base == "call" {
            modifiers.take("uni");
            modifiers.finish()?;
            return self.call(from, guard.is_some());
        } else if modifiers.base == "ret" && !self.inside.is_empty() {
            modifiers.take("uni");
            self.jump(call::RETURN);
            Op::Branch { target: 0, reconverge: 0 }
        } else if modifiers.base == "brx" {
            if !modifiers.take("idx") || guard.is_some() {
                return Err(Fail::new("this form of a jump by table"));
            }
            modifiers.take("uni");
            let [index, ast::Operand::Name(table)] = from.operands.as_slice() else {
                return Err(Fail::new("an index and a table of labels are expected"));
            };
            self.jump(table);
            Op::BranchTable { index: self.slots.source(index, false)?, targets: Vec::new(), reconverge: 0 }
        } else if modifiers.base == "bra" {
            modifiers.take("uni");
            let [ast::Operand::Name(label)] = from.operands.as_slice() else {
                return Err(Fail::new("a branch names one label"));
            };
            self.jump(label);
            Op::Branch { target: 0, reconverge: 0 }
        } else {
            self.operation(&mut modifiers, &from.operands)?
        };
        modifiers.finish()?;
        self.flow.note(self.code.len(), &self.slots, from);
        self.code.push(Instruction { guard, op, ptx_line: from.line, loc: from.loc, sums: 0 });
        Ok(())
    }

    /// The next instruction is a branch to a label, or by a table.
    fn jump(&mut self, label: &str) {
        self.branches.push((self.code.len() as u32, label.to_owned(), self.scopes.0.clone()));
    }

    fn operation(&mut self, m: &mut Modifiers, operands: &[ast::Operand]) -> Result<Op, Fail> {
        match m.base {
            "atom" | "red" => atomic::decode(&mut self.slots, m, operands),
            "mov" | "ld" | "ldu" | "st" | "cvta" | "isspacep" | "mapa" | "getctarank" | "prefetch" | "prefetchu"
            | "discard" | "applypriority" | "createpolicy" => memory::decode(&mut self.slots, m, operands),
            "mbarrier" => mbarrier::decode(&mut self.slots, m, operands),
            "wgmma" | "setmaxnreg" => hopper::decode(&mut self.slots, m, operands),
            "wmma" => wmma::decode(&mut self.slots, m, operands),
            "cp" | "ldmatrix" | "stmatrix" | "mma" => matrix::decode(&mut self.slots, m, operands),
            "cvt" => convert::decode(&mut self.slots, m, operands),
            "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "lop3" | "setp" | "set" | "selp"
            | "slct" | "bfe" | "bfi" | "bfind" | "popc" | "clz" | "brev" | "prmt" | "fns" => {
                logic::decode(&mut self.slots, m, operands)
            }
            "ret" | "exit" | "trap" | "brkpt" | "bar" | "barrier" | "shfl" | "vote" | "match" | "activemask"
            | "redux" | "membar" | "fence" | "nanosleep" | "pmevent" | "elect" | "griddepcontrol" => {
                warp::decode(&mut self.slots, m, operands)
            }
            _ => match arithmetic::decode(&mut self.slots, m, operands)? {
                Some(op) => Ok(op),
                None => Err(Fail::new("the simulator does not know this instruction")),
            },
        }
    }

    fn finish(mut self, function: &ast::Function) -> Result<Kernel, Vec<SimulatorError>> {
        // Falling off the end is a return.
        self.code.push(Instruction { guard: None, op: Op::Exit, ptx_line: function.line, loc: (0, 0), sums: 0 });
        self.recursive_code();
        self.layout.finish();
        let (narrow, wide, preds) = self.slots.sizes;
        if narrow + wide + preds > MAX_ROWS {
            let message = format!("{} has more than {MAX_ROWS} registers", function.name);
            self.errors.push(SimulatorError::Unsupported { line: function.line, source: None, message });
        }
        if !self.errors.is_empty() {
            return Err(self.errors);
        }
        cfg::place_reconvergence(&mut self.code);
        reuse::place_spans(&mut self.code);
        order::drop_unread(&mut self.code, &self.slots.read);
        let ordered = order::needs_block_order(&self.code);
        self.flow.place_homes(&mut self.code, &self.layout.symbols);
        let updates = self.flow.updates(&self.code);
        let sums = self.flow.sums(&mut self.code);
        let asynchronous = |i: &Instruction| matches!(i.op, Op::MBarrier(_) | Op::Copy(_) | Op::Bulk(_) | Op::Wgmma(_));
        let asynchronous = self.code.iter().any(asynchronous);
        let swaps = self.code.iter().any(|i| matches!(&i.op, Op::Atomic(a) if a.op == AtomicOp::CompareSwap));
        Ok(Kernel {
            name: function.name.clone(),
            code: self.code,
            sizes: (narrow as usize, wide as usize, preds as usize),
            fills: self.slots.fills,
            layout: self.layout,
            ordered,
            updates,
            cluster: function.cluster,
            asynchronous,
            swaps,
            sums,
        })
    }
}
