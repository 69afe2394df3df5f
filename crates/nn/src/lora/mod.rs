//! Fine-tuning with low-rank adapters (LoRA), on frozen weights in f32, bf16 or four bits (QLoRA).
//!
//! [`FrozenWeight`] multiplies without computing a gradient for itself, [`LoraLinear`] puts an adapter beside it, [`TunedLlama`] puts
//! adapters into a Llama, [`Tuner`] trains them, [`KernelTuner`] on the course's own kernels, [`bookings`] is a task whose result can be checked, and [`save_peft`] and [`load_peft`]
//! exchange adapters with Hugging Face's peft.

mod frozen;
mod kernels;
mod linear;
mod model;
mod peft;
mod task;
#[cfg(test)]
mod tests;
mod train;

pub use frozen::{Base, FrozenWeight, with_backward};
pub use kernels::KernelTuner;
pub use linear::LoraLinear;
pub use model::{LoraConfig, Training, TunedLlama, cross_entropy, learning_bytes};
pub use peft::{load_peft, module_name, save_peft, write_base};
pub use task::{Booking, Example, SYSTEM, Score, Split, bookings, score};
pub use train::{TuneMemory, TunePlan, Tuner, tune_memory};
