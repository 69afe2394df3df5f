//! Small models of a GPU's launch queue and memory pool, for exercises that must be checkable on any machine.
//!
//! They run in virtual time and virtual bytes: what they give are answers to "what happens", never measurements.

mod pool;
mod queue;

pub use pool::{Pool, PoolBuffer};
pub use queue::{Mark, Queue, Work};
