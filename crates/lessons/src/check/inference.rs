//! Exercises of lesson 40.

mod floor;
mod mask;
mod nucleus;
#[cfg(test)]
mod tests;

pub use floor::{Decode, token_floor};
pub use mask::padding_mask;
pub use nucleus::top_p;
