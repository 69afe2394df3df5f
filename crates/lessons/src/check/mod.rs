//! Checks of exercises. A check never fails a notebook: its verdict is ordinary output, `PASS` or `NOT YET` with what is
//! wrong and where. What that means, and how to go on, it says when it is asked: [`Verdict::hint`].
//!
//! | lesson | checks |
//! | --- | --- |
//! | 01 | [`choose_device`], [`fix_mismatch`], [`will_it_run`], [`share_batch`], [`layer_batch`] |
//! | 02 | [`time_kernel`], [`find_fault`], [`crossover`], [`which_is_faster`], [`launch_bound`] |
//! | 03 | [`no_leak`], [`largest_batch`], [`pool_numbers`], [`best_chunks`] |
//! | 10 | [`axpy`], [`scale`], [`two_kinds`] |
//! | 11 | [`largest`], [`row_sums`], [`dot`] |
//! | 12 | [`tiled`], [`thin`], [`four_rows`] |
//! | 13 | [`gather_four`], [`padding`], [`backward`] |
//! | 14 | [`swiglu`], [`log_sum_exp`] |
//! | 15 | [`keep_fares`], [`group_by_zone`] |
//! | 15a | [`pass_bytes`], [`triangle_bytes`] |
//! | 16 | [`case_one`], [`write_rows`], [`case_two`], [`write_bins`] |
//! | 01 | [`choose_device`], [`fix_mismatch`], [`will_it_run`] |
//! | 02 | [`time_kernel`], [`find_fault`], [`crossover`] |
//! | 03 | [`no_leak`], [`largest_batch`], [`pool_numbers`] |
//! | 10 | [`scale`], [`two_kinds`], [`planes`], [`shifted_sectors`] |
//! | 11 | [`row_sums`], [`dot`], [`scan`], [`least_occupancy`], [`diagnose_total`] |
//! | 12 | [`tiled`], [`thin`], [`four_rows`] |
//! | 13 | [`gather_four`], [`scatter_add`], [`straddling_rows`] |
//! | 14 | [`log_sum_exp`], [`add_rms_norm`], [`fused_share`] |
//! | 15 | [`keep_fares`], [`sums_by_zone`] |
//! | 16 | [`case_one`], [`fix_scale`], [`case_two`], [`fix_sums`] |
//! | 20 | [`adamw`], [`loss_scale`] |
//! | 21 | [`mixed_bytes`], [`conv_bytes`], [`fitting_batch`] |
//! | 30 | [`causal_mask`], [`softmax_row`], [`grouped`] |
//! | 31 | [`one_pass`], [`causal_tiles`], [`merge_parts`] |
//! | 40 | [`top_p`], [`padding_mask`], [`token_floor`] |
//! | 42 | `eight_bits`, `within_deadline`, `left_in_f32`, `cache_bytes` (feature `onnx`) |

mod add_rms_norm;
mod attention;
mod compare;
mod detection;
mod embedding;
#[cfg(feature = "onnx")]
mod export;
mod flash;
mod fusion;
mod hidden_total;
mod inference;
mod judged;
mod kernels;
mod matmul;
mod memory;
mod paper;
mod profiling;
mod reduction;
mod share;
mod on_paper;
mod planes;
mod profiling;
mod reduction;
mod scan;
mod scatter_add;
mod table;
mod timing;
mod training;
mod training_memory;
mod vector_add;
mod verdict;

pub use add_rms_norm::add_rms_norm;
pub use attention::{causal_mask, grouped, softmax_row};
pub use compare::which_is_faster;
pub use detection::{Candidate, Pairing, choose_device, fix_mismatch, will_it_run};
pub use embedding::{backward, gather_four, padding};
#[cfg(feature = "onnx")]
pub use export::{Served, cache_bytes, eight_bits, left_in_f32, slow_model, within_deadline};
pub use flash::{Part, causal_tiles, merge_parts, one_pass};
pub use fusion::{log_sum_exp, swiglu};
pub use hidden_total::{Excess, TotalReport, diagnose_total, revealed_total, total_report, total_us};
pub use inference::{Decode, padding_mask, token_floor, top_p};
pub use matmul::{four_rows, thin, tiled};
pub use memory::{largest_batch, no_leak, pool_numbers};
pub use paper::{best_chunks, launch_bound, layer_batch};
pub use profiling::{Cause, FAST_SCALE, FAST_SUMS, case_one, case_two, fix_scale, fix_sums};
pub use reduction::{dot, largest, row_sums};
pub use share::{Worker, share_batch};
pub use on_paper::{fused_share, least_occupancy, shifted_sectors, straddling_rows};
pub use planes::planes;
pub use profiling::{Cause, FAST_SCALE, FAST_SUMS, case_one, case_two, fix_scale, fix_sums};
pub use reduction::{dot, largest, row_sums};
pub use scan::scan;
pub use scatter_add::scatter_add;
pub use table::{keep_fares, sums_by_zone};
pub use profiling::{Case, Cause, Evidence, case_one, case_two, write_bins, write_rows};
pub use reduction::{dot, largest, row_sums};
pub use table::{group_by_zone, keep_fares, pass_bytes, triangle_bytes};
pub use timing::{Curve, crossover, find_fault, time_kernel};
pub use training::{adamw, loss_scale};
pub use training_memory::{conv_bytes, fitting_batch, mixed_bytes};
pub use vector_add::{axpy, scale, two_kinds};
pub use verdict::{Hint, Verdict};
