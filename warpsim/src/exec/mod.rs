//! Kernels run: blocks over cores, warps of a block in turn, lanes of a warp in lockstep.

mod advance;
mod alu32;
mod alu64;
mod atomic;
mod block;
mod check;
mod compare;
mod convert;
mod exchange;
mod fast;
mod file;
mod float;
mod gather;
mod half;
mod lanes;
mod launch;
mod matrix;
mod memory;
mod print;
mod report;
mod rest;
mod setup;
mod shadow;
mod stack;
mod state;
mod strands;
mod sync;
mod tensor;
mod warp;
mod watch;

pub use advance::Advance;
pub use half::narrow as narrow_half;
pub use launch::{Outcome, launch};
pub use state::Machine;
