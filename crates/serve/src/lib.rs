//! Serving a language model: a scheduler with continuous batching over a paged KV cache, a simulator of load, and, behind the
//! feature `server`, HTTP as OpenAI's clients speak it.
//!
//! [`Scheduler`] decides what each step of a model computes: which requests are in the batch, how much of each prompt is read,
//! who waits, whose blocks are freed. It knows no model and no clock, so the same code runs in the server, in the simulator
//! and in tests.
//!
//! ```
//! use gpulab_serve::{Limits, Request, Scheduler};
//! let mut scheduler = Scheduler::new(Limits::default(), 64, 16)?;
//! let id = scheduler.submit(Request::new(vec![7; 20], 2)).expect("the queue is empty");
//! let step = scheduler.plan();
//! assert_eq!((step.pieces[0].id, step.tokens()), (id, 20));
//! // A model would compute the pieces here, and choose a token after each that asks for one.
//! scheduler.complete(&step, &[42], &|_| false);
//! assert_eq!(scheduler.plan().tokens(), 1);
//! # Ok::<(), gpulab_serve::Error>(())
//! ```

mod blocks;
mod cost;
mod load;
mod random;
mod scheduler;
#[cfg(feature = "server")]
pub mod server;
mod simulate;

pub use blocks::{BlockId, BlockPool};
pub use cost::{RooflineCost, StepCost, StepPrice};
pub use gpulab_measure::{Error, Result};
pub use load::{Arrival, Lengths, Load};
pub use scheduler::{
    Batching, Finish, Limits, Piece, Refusal, Request, RequestId, Running, Scheduler, SchedulerCounters, SequenceEvent,
    Step,
};
pub use simulate::{RequestTimes, Simulation, StepRecord, simulate, simulate_clients};
