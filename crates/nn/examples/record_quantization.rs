//! What each number format and each method leaves of SmolLM2 (`make model`): bits, error, loss and perplexity on the course's held-out
//! text, and, where candle or the CPU multiplies in these bits, tokens per second. Writes a CSV file as it goes:
//!
//! `cargo run --release -p gpulab-nn --example record_quantization -- results/quantization/smollm2.csv`
//!
//! The file that the model comes in has its layers in Q4_1 already. So all errors are measured against what that file says, and a
//! format that can hold each of its blocks (int4 with a zero point, groups of 32) looks better here than it would on the original weights.

use candle_core::quantized::GgmlDType::{Q2K, Q3K, Q4_0, Q4_1, Q4K, Q6K, Q8_0};
use gpulab_nn::gpt::Text;
use gpulab_nn::llama::{ChatModel, Llama, Precision};
use gpulab_nn::quantize::{Format, Method, MiniFloat, Share, quantize, token_ms};
use gpulab_nn::{DType, Device};
use std::io::Write;

/// Tokens that calibrate, tokens that are predicted, and how many are seen at a time.
const CALIBRATION: usize = 256;
const HELD_OUT: usize = 512;
const WINDOW: usize = 256;
/// Tokens in the cache, and tokens that are timed.
const CONTEXT: usize = 64;
const TIMED: usize = 15;

fn methods() -> Vec<Method> {
    let int = |bits, zero_point, share| Method::Round(Format::Int { bits, zero_point, share });
    let group = Share::Group(64);
    let ggml = |kind| Method::Round(Format::Ggml(kind));
    let scaled = |kind| Method::Round(Format::Float { kind, share: Share::Row });
    let gptq = |bits, zero_point, share| Method::Gptq { bits, zero_point, share };
    let awq = |bits, zero_point, share| Method::Awq { bits, zero_point, share };
    vec![
        int(8, false, Share::Row),
        int(4, false, Share::Tensor),
        int(4, false, Share::Row),
        gptq(4, false, Share::Row),
        int(4, false, group),
        gptq(4, false, group),
        awq(4, false, group),
        Method::Round(Format::Nf4 { block: 64 }),
        Method::Round(Format::Mx(MiniFloat::E2M1)),
        Method::Round(Format::Nvfp4),
        scaled(MiniFloat::E4M3),
        scaled(MiniFloat::E5M2),
        int(3, true, group),
        gptq(3, true, group),
        awq(3, true, group),
        ggml(Q8_0),
        ggml(Q6K),
        ggml(Q4K),
        ggml(Q4_0),
        ggml(Q3K),
        ggml(Q2K),
        ggml(Q4_1),
        int(4, true, group),
        int(4, true, Share::Group(32)),
        int(4, true, Share::Row),
        int(2, true, group),
        int(8, false, Share::Tensor),
        Method::Round(Format::Mx(MiniFloat::E4M3)),
        scaled(MiniFloat::E2M1),
        awq(4, false, Share::Row),
    ]
}

/// Tokens a second, by the median of the times.
fn tokens_per_s(llama: &Llama) -> gpulab::Result<f64> {
    let mut ms = token_ms(llama, CONTEXT, TIMED)?;
    ms.sort_by(f64::total_cmp);
    Ok(1e3 / ms[ms.len() / 2])
}

fn main() -> gpulab::Result<()> {
    let path = std::env::args().nth(1).unwrap_or("results/quantization/smollm2.csv".to_string());
    let device = Device::Cpu;
    let dense = ChatModel::smollm2(&device, Precision::Dense(DType::F32))?;
    let text = Text::course()?;
    let tokens = |bytes: &[u8], count: usize| -> gpulab::Result<Vec<u32>> {
        let mut tokens = dense.tokenizer.encode(&String::from_utf8_lossy(&bytes[..(8 * count).min(bytes.len())]))?;
        tokens.truncate(count);
        Ok(tokens)
    };
    let (calibration, held_out) = (tokens(&text.train, CALIBRATION)?, tokens(&text.held_out, HELD_OUT)?);
    let weights = dense.llama.config().projection_count() as f64;

    let io =
        |error: std::io::Error| gpulab::Error::file(path.as_ref(), "write", error, "name a file that can be written");
    if let Some(folder) = std::path::Path::new(&path).parent() {
        std::fs::create_dir_all(folder).map_err(io)?;
    }
    let mut file = std::fs::File::create(&path).map_err(io)?;
    writeln!(file, "method,bits_a_weight,bytes,weight_error,output_error,loss_nats,perplexity,tokens_per_s")
        .map_err(io)?;
    let mut row = |name: &str, bits: f64, errors: (f64, f64), loss: f64, speed: Option<f64>| {
        let speed = speed.map_or(String::new(), |speed| format!("{speed:.2}"));
        let line = format!(
            "\"{name}\",{bits:.3},{:.0},{:.5},{:.5},{loss:.4},{:.3},{speed}",
            bits * weights / 8.0,
            errors.0,
            errors.1,
            loss.exp()
        );
        println!("{line}");
        writeln!(file, "{line}").map_err(io)
    };
    let own = dense.llama.loss(&held_out, WINDOW)?;
    row("f32, as the file says", 32.0, (0.0, 0.0), own, Some(tokens_per_s(&dense.llama)?))?;
    let bf16 = ChatModel::smollm2(&device, Precision::Dense(DType::BF16))?.llama;
    row("bf16", 16.0, (0.0, 0.0), bf16.loss(&held_out, WINDOW)?, Some(tokens_per_s(&bf16)?))?;
    let stored = ChatModel::smollm2(&device, Precision::AsStored)?.llama;
    row(
        "Q4_1 as stored, inputs in int8",
        5.0,
        (0.0, 0.0),
        stored.loss(&held_out, WINDOW)?,
        Some(tokens_per_s(&stored)?),
    )?;
    for method in methods() {
        let done = quantize(&dense.llama, method, &calibration)?;
        let mean = |of: fn(&gpulab_nn::quantize::MatrixError) -> f64| {
            done.errors.iter().map(of).sum::<f64>() / done.errors.len() as f64
        };
        let speed = match method {
            Method::Round(Format::Ggml(_)) => Some(tokens_per_s(&done.llama)?),
            _ => None,
        };
        let errors = (mean(|error| error.weights), mean(|error| error.outputs));
        row(&method.name(), done.bits_a_weight(), errors, done.llama.loss(&held_out, WINDOW)?, speed)?;
    }
    Ok(())
}
