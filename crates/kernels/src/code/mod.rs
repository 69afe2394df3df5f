//! Source code on a page: a kernel as a listing, and what changed between two kernels.
//!
//! Plain data: text comes in, and what shows itself goes out. `Ladder::source` and `Ladder::diff` give these.

mod compare;
mod diff;
mod listing;
mod page;
mod token;

pub use diff::Diff;
pub use listing::Listing;

#[cfg(test)]
mod tests;
