//! A warp runs: which lanes go on where, what they wait for, what they tell each other.

pub mod advance;
pub mod calls;
pub mod exchange;
pub mod gather;
pub mod mbarrier;
pub mod rest;
pub mod stack;
pub mod strands;
pub mod sync;
pub mod warp;
pub mod watch;
