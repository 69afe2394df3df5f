//! x
pub mod export;
pub mod runtime;
