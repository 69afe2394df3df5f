//! What is wrong with an access, and the words for it.

pub mod check;
pub mod clock;
pub mod clocks;
pub mod deferred;
pub mod engines;
pub mod exact;
pub mod past;
pub mod races;
pub mod report;
pub mod shadow;
pub mod signals;
pub mod sums;
pub mod updates;
pub mod words;
