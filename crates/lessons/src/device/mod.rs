//! One program for every machine: a [`Device`] to compute on, and [`Vector`]s that live on one.
//!
//! Frameworks call this device-agnostic code. Two vectors can only be combined where both live; anything else is a
//! device mismatch, and the error says which of them is where.

mod capacity;
mod kind;
mod vector;

pub use capacity::Capacity;
pub use kind::Device;
pub use vector::Vector;
