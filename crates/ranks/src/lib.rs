//! Ranks and their collectives: one interface, [`Collectives`], and three worlds behind it: threads, processes, GPUs.
//!
//! | module | what it holds |
//! | --- | --- |
//! | [`collectives`] | the interface: all-reduce, reduce-scatter, all-gather, broadcast, send, receive, barrier, groups |
//! | [`world`] | ranks that are threads of this CPU; messages are real, and each one is recorded |
//! | [`algorithms`] | ring, tree, recursive doubling and direct messages, over nothing but messages |
//! | [`log`] | what was sent: messages with their step, and the calls that waited for them |
//! | [`cost`] | the time that recorded messages would take on links of a stated latency and bandwidth |
//! | [`picture`] | an all-reduce drawn step by step, from its messages |
//! | [`blocks`] | a small network of equal blocks in bf16, to shard |
//! | [`rank_environment`] | rank and world size from the environment of `torchrun`, Slurm or MPI, and where the ranks meet |
//! | [`processes`] | ranks that are processes, on one host or several, over TCP |
//! | `nccl` | ranks that are NVIDIA GPUs, one thread or one process a GPU (feature `nccl`) |
//! | `peer` | an all-reduce of our own over the GPUs' memory, for small messages (feature `nccl`) |
//!
//! ```
//! use gpulab_ranks::{Collectives, Op, World};
//! let run = World::new(4).run(|rank| {
//!     let mut x = vec![rank.rank() as f32; 8];
//!     rank.all_reduce(&mut x, Op::Sum)?;
//!     Ok(x[0])
//! })?;
//! assert_eq!(run.results, [6.0; 4]);
//! // A ring sends 2 (n − 1) messages a rank, each an n-th of the data.
//! assert_eq!((run.log.messages.len(), run.log.bytes_sent(0)), (4 * 6, 6 * 8));
//! # Ok::<(), gpulab_measure::Error>(())
//! ```

pub mod algorithms;
mod bf16;
pub mod blocks;
pub mod collectives;
pub mod cost;
#[cfg(feature = "nccl")]
mod exchange;
mod failure;
pub mod log;
#[cfg(feature = "nccl")]
pub mod nccl;
#[cfg(feature = "nccl")]
pub mod peer;
pub mod picture;
mod port;
pub mod processes;
mod rank;
pub mod rank_environment;
#[cfg(feature = "nccl")]
mod watchdog;
mod wire;
pub mod world;

pub use algorithms::Algorithm;
pub use bf16::BFloat16;
pub use collectives::{CollectiveElement, Collectives, Communicator, Op};
pub use cost::{Link, bus_factor};
pub use failure::{Failure, FailureCause};
pub use log::{Call, Log, Message};
pub use picture::steps;
pub use processes::Processes;
pub use rank::{Gathering, Rank, Scattering};
pub use rank_environment::RankEnvironment;
pub use world::{Run, World};
