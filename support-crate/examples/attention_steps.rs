//! Checks the kernels of chained attention on the GPU, and prints what each step takes of its time, at several lengths of
//! 16,384 tokens in all, 16 heads of 128 numbers, causal: `cargo run --release -p gpulab --example attention_steps`.
//! Arguments: lengths in place of 512, 1024, 2048 and 4096.

use gpulab::prelude::*;

const TOKENS: usize = 16_384;

fn main() -> Result<()> {
    let gpu = Gpu::open_index(0)?;
    println!("{gpu}");
    let mut lengths: Vec<usize> = std::env::args().skip(1).filter_map(|length| length.parse().ok()).collect();
    if lengths.is_empty() {
        lengths = vec![512, 1024, 2048, 4096];
    }
    let plan = Bench::default().samples(11).budget_ms(500.0);
    for (attention, number) in [(Attention::new(&gpu)?, 4), (Attention::bf16(&gpu)?, 2)] {
        for (q_heads, kv_heads, length, width) in [(16, 4, 1000, 128), (8, 8, 777, 80), (4, 1, 2048, 64)] {
            let shape = AttentionShape { batch: 2, q_heads, kv_heads, length, width };
            attention.check(shape, &AttentionMask::causal().padded(&[length, length / 3]), 5, 3.0)?;
            println!("right, {number} bytes a number: {shape}");
        }
        for &length in &lengths {
            let shape = AttentionShape { batch: TOKENS / length, q_heads: 16, kv_heads: 16, length, width: 128 };
            let mask = AttentionMask::causal();
            let rows = attention.time_steps(shape, &mask, &plan)?;
            println!("{}", AttentionWork::chained(shape, &mask, number)?.timed(&rows));
            println!("{}", AttentionWork::fused(shape, &mask, number)?.timed(&rows));
            for row in rows.iter().filter(|row| row.experiment.starts_with("all steps")) {
                println!("{}: {} ms\n", row.experiment, row.summary);
            }
        }
    }
    Ok(())
}
