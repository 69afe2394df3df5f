//! Checks of exercises. A check never fails a notebook: its verdict is ordinary output, `PASS` or `NOT YET` with what is
//! wrong and a hint.
//!
//! | lesson | checks |
//! | --- | --- |
//! | 01 | [`choose_device`], [`fix_mismatch`], [`will_it_run`] |
//! | 02 | [`time_kernel`], [`find_fault`], [`crossover`] |
//! | 03 | [`no_leak`], [`largest_batch`], [`pool_numbers`] |
//! | 10 | [`axpy`], [`scale`], [`two_kinds`] |
//! | 11 | [`largest`], [`row_sums`], [`dot`] |
//! | 12a | [`product`], [`memory_limit`], [`tile_suspect`] |
//! | 12b | [`product_loop`], [`wave_share`], [`share_suspect`] |
//! | 12c | [`mma_tile`], [`first_bank`], [`error_suspect`] |
//! | 13 | [`gather_four`], [`padding`], [`backward`] |
//! | 14 | [`swiglu`], [`log_sum_exp`] |
//! | 15 | [`keep_fares`], [`sums_by_zone`] |
//! | 16 | [`case_one`], [`fix_scale`], [`case_two`], [`fix_sums`] |
//! | 20 | [`adamw`], [`loss_scale`] |
//! | 21 | [`mixed_bytes`], [`conv_bytes`], [`fitting_batch`] |
//! | 30 | [`causal_mask`], [`softmax_row`], [`grouped`] |
//! | 31 | [`one_pass`], [`causal_tiles`], [`merge_parts`] |
//! | 40 | [`top_p`], [`padding_mask`], [`token_floor`] |
//! | 42 | `eight_bits`, `positions`, `probabilities` (feature `onnx`) |

mod attention;
mod detection;
mod embedding;
#[cfg(feature = "onnx")]
mod export;
mod flash;
mod fusion;
mod inference;
mod kernels;
mod matmul;
mod memory;
mod profiling;
mod reduction;
mod table;
mod timing;
mod training;
mod training_memory;
mod vector_add;
mod verdict;

pub use attention::{causal_mask, grouped, softmax_row};
pub use detection::{Candidate, Pairing, choose_device, fix_mismatch, will_it_run};
pub use embedding::{backward, gather_four, padding};
#[cfg(feature = "onnx")]
pub use export::{eight_bits, positions, probabilities};
pub use flash::{Part, causal_tiles, merge_parts, one_pass};
pub use fusion::{log_sum_exp, swiglu};
pub use inference::{Decode, padding_mask, token_floor, top_p};
pub use matmul::{
    ErrorSuspect, Fault, LOOP_TOOLS, ShareSuspect, TileSuspect, error_suspect, first_bank, memory_limit, mma_tile,
    product, product_loop, share_suspect, tile_suspect, wave_share,
};
pub use memory::{largest_batch, no_leak, pool_numbers};
pub use profiling::{Cause, FAST_SCALE, FAST_SUMS, case_one, case_two, fix_scale, fix_sums};
pub use reduction::{dot, largest, row_sums};
pub use table::{keep_fares, sums_by_zone};
pub use timing::{Curve, crossover, find_fault, time_kernel};
pub use training::{adamw, loss_scale};
pub use training_memory::{conv_bytes, fitting_batch, mixed_bytes};
pub use vector_add::{axpy, scale, two_kinds};
pub use verdict::Verdict;
