//! Checks of exercises. A check never fails a notebook: its verdict is ordinary output, `PASS` or `NOT YET` with what is
//! wrong and where. What that means, and how to go on, it says when it is asked: [`Verdict::hint`].
//!
//! | lesson | checks |
//! | --- | --- |
//! | 01 | [`fix_mismatch`], [`will_it_run`], [`share_batch`], [`layer_batch`] |
//! | 02 | [`time_kernel`], [`find_fault`], [`which_is_faster`], [`launch_bound`], [`diagnose_idle`] |
//! | 03 | [`no_leak`], [`largest_batch`], [`best_chunks`] |
//! | 10 | [`scale`], [`planes`], [`shifted_sectors`] |
//! | 11 | [`dot`], [`scan`], [`least_occupancy`], [`diagnose_total`] |
//! | 12a | [`product`], [`memory_limit`], [`tile_suspect`] |
//! | 12b | [`product_loop`], [`wave_share`], [`share_suspect`] |
//! | 12c | [`mma_tile`], [`first_bank`], [`error_suspect`] |
//! | 12d | [`wgmma_tile`], [`narrow_product`], [`ring_suspect`] |
//! | 13 | [`gather_four`], [`scatter_add`], [`straddling_rows`] |
//! | 14 | [`log_sum_exp`], [`add_rms_norm`], [`fused_share`] |
//! | 15 | [`keep_fares`], [`group_by_zone`] |
//! | 15a | [`masked_normalise`], [`pass_bytes`] |
//! | 16 | [`case_one`], [`case_two`], [`write_bins`] |
//! | 17a | [`transpose`], [`particle_sectors`], [`diagnose_count`] |
//! | 17b | [`wide_softmax`], [`least_side`], [`diagnose_rows`] |
//! | 20 | [`adamw`], [`enough_images`], [`resume_run`] |
//! | 20a | [`conv_gradient`], [`nan_origin`], [`bytes_well_used`] |
//! | 21 | [`step_memory`], [`sixteen_bit_gpu`], [`choose_algorithms`], [`diagnose_growth`] |
//! | 22 | [`bigram`], [`model_of_a_day`], [`diagnose_long_text`] |
//! | 22a | [`cross_entropy`], [`sequences_that_fit`], [`step_cures`] |
//! | 30 | [`softmax_row`], [`longest_sequence`], [`diagnose_leak`] |
//! | 31a | [`one_pass`], [`tile_loop`], [`queries_per_block`] |
//! | 31b | [`weigh`], [`tensor_busy`], [`diagnose_traffic`] |
//! | 40 | [`decode_step`], [`token_floor`], [`step_remedies`], [`diagnose_serving`] |
//! | 41 | [`pack_words`], [`scale_search`], [`quantized_matvec`], [`four_bit_gain`], [`diagnose_scales`] |
//! | 42 | `eight_bits`, `left_in_f32`, `cache_bytes`, `own_graph` (feature `onnx`) |
//! | 50 | [`lora_forward`], [`qlora_memory`], [`diagnose_adapter`] |
//! | 51 | [`spmv_eight`], [`break_even`], [`diagnose_sparse`] |
//! | 51a | [`two_four`], [`two_four_bytes`], [`diagnose_places`] |
//! | 60 | [`ring_all_reduce`], [`ring_balance`], [`diagnose_parallel`] |
//! | 61 | [`sharded_step`], [`fewest_gpus`], [`micro_batches`], [`diagnose_checkpoint`] |
//! | 62 | [`hysteresis`], [`run_energy`], [`diagnose_slow`] |
//! | 63 | [`scheduler_step`], [`batch_for_latency`], [`littles_law`], [`diagnose_server`] |
//! | 90 | [`add_layer_norm`], [`linear4`], [`sample`] |

mod add_rms_norm;
mod arrays;
mod attention;
mod bigram;
mod capstone;
mod collectives;
mod compare;
mod detection;
mod embedding;
#[cfg(feature = "onnx")]
mod export;
mod flash;
mod four_bits;
mod fusion;
mod gpt_step;
mod growth;
mod hidden_total;
mod hopper;
mod idle;
mod inference;
mod judged;
mod kernels;
mod leak;
mod lora;
mod matmul;
mod memory;
mod monitoring;
mod norm_rows;
mod on_paper;
mod planes;
mod profiling;
mod quantization;
mod reduction;
mod resume;
mod rust_kernels;
mod scan;
mod scatter_add;
mod scheduling;
mod serving;
mod sharding;
mod share;
mod sparsity;
mod table;
mod tiles;
mod timing;
mod train_gpt;
mod training;
mod training_memory;
mod vector_add;
mod verdict;

pub use add_rms_norm::add_rms_norm;
pub use arrays::{MaskedNormalise, masked_normalise};
pub use attention::{longest_sequence, softmax_row};
pub use bigram::bigram;
#[cfg(test)]
pub(crate) use capstone::NORM_RIGHT;
pub use capstone::{add_layer_norm, linear4, sample};
pub use collectives::{
    Examples, ParallelFault, ParallelReport, diagnose_parallel, parallel_report, revealed_parallel, ring_all_reduce,
    ring_balance,
};
pub use compare::which_is_faster;
pub use detection::{Pairing, fix_mismatch, will_it_run};
pub use embedding::gather_four;
#[cfg(feature = "onnx")]
pub use export::{cache_bytes, eight_bits, left_in_f32, own_graph, slow_model};
pub use flash::{one_pass, queries_per_block, tensor_busy, tile_loop};
pub use fusion::log_sum_exp;
pub use gpt_step::{Cure, kernel_lists, sequences_that_fit, step_cures};
pub use growth::{Growth, diagnose_growth};
pub use hidden_total::{Excess, TotalReport, diagnose_total, revealed_total, total_report, total_us};
pub use hopper::{Traffic, TrafficReport, diagnose_traffic, revealed_traffic, traffic_report, weigh};
pub use idle::{Idle, IdleReport, diagnose_idle, idle_report, idle_spans, revealed_idle};
pub use inference::{Decode, decode_step, step_remedies, token_floor};
pub use leak::{Leak, diagnose_leak, leaking_weights, revealed_leak};
pub use lora::{
    AdapterFault, AdapterReport, AdapterShape, adapter_report, diagnose_adapter, lora_forward, qlora_memory,
    revealed_adapter,
};
pub use matmul::{
    ErrorSuspect, Fault, LOOP_TOOLS, RingFault, RingReport, RingSuspect, ShareSuspect, TileSuspect, error_suspect,
    first_bank, memory_limit, mma_tile, narrow_product, product, product_loop, ring_suspect, share_suspect,
    tile_suspect, wave_share, wgmma_tile,
};
pub use memory::{largest_batch, no_leak};
pub use monitoring::{SlowFault, diagnose_slow, hysteresis, revealed_slow, run_energy};
pub use on_paper::{
    best_chunks, fused_share, launch_bound, layer_batch, least_occupancy, shifted_sectors, straddling_rows,
};
pub use planes::planes;
pub use profiling::{Case, Cause, Evidence, case_one, case_two, write_bins};
pub use quantization::{
    ScaleFault, ScaleReport, Variation, diagnose_scales, four_bit_gain, pack_words, quantized_matvec, revealed_scales,
    scale_report, scale_search,
};
pub use reduction::dot;
pub use resume::{SmallRun, resume_run};
pub use rust_kernels::{
    CountFault, CountReport, count_report, count_report_checked, diagnose_count, particle_sectors, revealed_count,
    transpose,
};
pub use scan::scan;
pub use scatter_add::scatter_add;
pub use scheduling::{
    Sequence, ServerFault, ServerLoad, ServerState, ServerTrace, TraceLine, batch_for_latency, diagnose_server,
    littles_law, revealed_server, scheduler_step, server_trace,
};
pub use serving::{ServedText, Serving, diagnose_serving, revealed_serving, served_text};
pub use sharding::{
    CheckpointFault, CheckpointReport, checkpoint_report, diagnose_checkpoint, fewest_gpus, micro_batches,
    revealed_checkpoint, sharded_step,
};
pub use share::{Worker, share_batch};
pub use sparsity::{
    Compressed, PlacesFault, PlacesReport, SparseFault, SparseReport, break_even, diagnose_places, diagnose_sparse,
    places_report, revealed_places, revealed_sparse, sparse_report, spmv_eight, two_four, two_four_bytes,
};
pub use table::{group_by_zone, keep_fares, pass_bytes};
pub use tiles::{RowFault, RowReport, diagnose_rows, least_side, revealed_rows, row_report, wide_softmax};
pub use timing::{find_fault, time_kernel};
pub use train_gpt::{TrainFault, cross_entropy, diagnose_long_text, model_of_a_day};
pub use training::{adamw, bytes_well_used, conv_gradient, enough_images, nan_origin};
pub use training_memory::{
    AlgoPerf, ChooseAlgorithms, StepMemoryFormula, choose_algorithms, sixteen_bit_gpu, step_memory,
};
pub use vector_add::scale;
pub use verdict::{Hint, Verdict};
