//! Loads, stores, atomics, copies and prints: what touches memory, counted as it goes.

pub mod atomic;
pub mod bulk;
pub mod cluster;
pub mod fast;
pub mod matrix;
pub mod memory;
pub mod print;
pub mod wmma;
