//! Checks the kernels of chained attention on the GPU, and prints what each step takes of its time, at several lengths of
//! 16,384 tokens in all, 16 heads of 128 numbers, causal: `cargo run --release -p gpulab-kernels --example attention_steps`.
//! Arguments: lengths in place of 512 to 8192. The rows go to metrics.csv, as those of lesson 30.

use gpulab::cpu::{AttentionMask, AttentionShape};
use gpulab::prelude::*;
use gpulab_kernels::*;

const TOKENS: usize = 16_384;

fn main() -> Result<()> {
    let gpu = Gpu::open_index(0)?;
    println!("{gpu}");
    let mut lengths: Vec<usize> = std::env::args().skip(1).filter_map(|length| length.parse().ok()).collect();
    if lengths.is_empty() {
        lengths = vec![512, 1024, 2048, 4096, 8192];
    }
    let kinds = [(Attention::new(&gpu)?, "f32", 4), (Attention::bf16(&gpu)?, "bf16", 2)];
    for (attention, dtype, _) in &kinds {
        for (q_heads, kv_heads, length, width) in [(16, 4, 1000, 128), (8, 8, 777, 80), (4, 1, 2048, 64)] {
            let shape = AttentionShape { batch: 2, q_heads, kv_heads, length, width };
            attention.check(shape, &AttentionMask::causal().padded(&[length, length / 3]), 5, 3.0)?;
            println!("right in {dtype}: {shape}");
        }
    }
    // As in the lesson: same experiment, same shapes, same plan.
    let (plan, mask) = (Bench::default().samples(11).budget_ms(300.0), AttentionMask::causal());
    let layer = |length| AttentionShape { batch: TOKENS / length, q_heads: 16, kv_heads: 16, length, width: 128 };
    let all = Lesson::start("30_attention").measure("own kernels", |_| {
        let mut rows = Vec::new();
        for (attention, ..) in &kinds {
            for &length in &lengths {
                rows.extend(attention.time_steps(layer(length), &mask, &plan)?);
            }
        }
        Ok(rows)
    })?;
    for (_, dtype, number) in &kinds {
        for &length in &lengths {
            let of = |row: &&Measurement| row.dtype == *dtype && row.size == length as u64;
            let rows: Vec<Measurement> = all.iter().filter(of).cloned().collect();
            println!("{}", AttentionWork::chained(layer(length), &mask, *number)?.timed(&rows));
            println!("{}", AttentionWork::fused(layer(length), &mask, *number)?.timed(&rows));
            for row in rows.iter().filter(|row| row.experiment.starts_with("all steps")) {
                println!("{dtype}, {length}: {}: {} ms\n", row.experiment, row.summary);
            }
        }
    }
    Ok(())
}
