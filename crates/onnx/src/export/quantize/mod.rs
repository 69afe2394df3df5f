//! Static quantisation to 8-bit integers: weights once, activations by ranges that were seen beforehand.
//!
//! [`calibrate`] runs examples through the network on candle and notes each value's range. From it [`Quantised`] takes a step
//! and a zero point for each value, and for each channel of a weight; it writes them as ONNX's pairs of
//! `QuantizeLinear` and `DequantizeLinear` (QDQ), which a runtime turns into integer arithmetic. It also computes on
//! candle what the integers make of an example, value by value.

mod calibrate;
mod errors;
mod insert;
mod quantised;
mod show;
mod step;
#[cfg(test)]
mod tests;

pub use calibrate::{Calibration, calibrate};
pub use errors::ValueError;
pub use quantised::{Quantised, Settings};
pub use step::{Activations, PerWeight, Range, Step};
