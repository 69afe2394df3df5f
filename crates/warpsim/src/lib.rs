//! A GPU to look inside: PTX runs on the CPU, warp by warp, and is counted as hardware counts it.
//!
//! ```
//! use warpsim::{Arg, Device, Launch, PtxModule};
//!
//! let ptx = "
//!     .version 8.0
//!     .target sm_80
//!     .address_size 64
//!     .visible .entry fill(.param .u64 out)
//!     {
//!         .reg .b32 %r<2>;
//!         .reg .b64 %rd<4>;
//!         ld.param.u64 %rd1, [out];
//!         mov.u32 %r1, %tid.x;
//!         mul.wide.u32 %rd2, %r1, 4;
//!         add.s64 %rd3, %rd1, %rd2;
//!         st.global.u32 [%rd3], %r1;
//!         ret;
//!     }";
//! let module = PtxModule::load(ptx)?;
//! let mut device = Device::new();
//! let out = device.alloc(64 * 4)?;
//! let report = device.launch(&module, "fill", Launch::linear(1, 64), &[Arg::Pointer(out)])?;
//! assert_eq!(report.counters.global_store_requests, 2); // one for each warp
//! assert_eq!(report.counters.global_store_sectors, 8); // 64 × 4 bytes in sectors of 32
//! # Ok::<(), warpsim::SimulatorError>(())
//! ```
//!
//! Of Hopper's own instructions these run: `wgmma` on bf16 and f16, the TMA's bulk copies and boxes of tensors
//! (a [`TmaDescriptor`] describes one; multicast, too), barriers that count bytes, `stmatrix`, clusters of blocks with
//! each other's shared memory ([`Device::launch_with`]). `setmaxnreg` and `griddepcontrol` change nothing: registers are
//! not counted, and a launch starts when the one in front has ended.
//!
//! A module loads whole or not at all: an instruction that the simulator does not know is an error that names it and
//! its line. Mistakes of a kernel (an access out of bounds, a barrier that not all threads reach) are
//! [`Finding`]s of the launch's [`Report`]; a faulty access itself is skipped, and a faulty load leaves its register.

// What README.md shows is run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod block_order;
mod cfg;
pub mod cli;
mod counters;
mod decode;
mod device;
mod error;
mod exec;
mod finding;
mod launch;
mod memory;
mod module;
mod op;
mod ptx;
mod report;
mod tensor_map;

mod traffic;
mod watch;

pub use block_order::BlockOrder;
pub use counters::{Counters, Lines};
pub use device::Device;
pub use error::{SimulatorError, SourceLine};
pub use finding::{Finding, Kind, Other};
pub use launch::{Arg, Attributes, Launch, MULTIPROCESSORS};
pub use module::{KernelInfo, PtxModule, Survey, survey};
pub use report::{Report, UnevenLoop};
pub use tensor_map::{Swizzle, TmaDescriptor};
pub use traffic::lanes_at_once;
pub use watch::{AccessKind, Space, WarpAccess, WatchedWarp};
