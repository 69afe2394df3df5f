//! What each number format and each method leaves of SmolLM2 (`make model`): bits, error, loss and perplexity on the course's held-out
//! text, and, where candle or this course's own products multiply in these bits, tokens per second. Writes a CSV file as it goes, and
//! beside it a page that says where and how (`.md`):
//!
//! `cargo run --release -p gpulab-nn --example record_quantization -- results/quantization/smollm2.csv`
//!
//! Stopped and started again it goes on: rows that the file has are not computed anew. Tokens per second come last, and in rounds: what else the machine does then slows all contestants down alike.
//!
//! The file that the model comes in has its layers in Q4_1 already. So all errors are measured against what that file says, and a
//! format that can hold each of its blocks (Q4_1 itself above all) looks better here than it would on the original weights.

use candle_core::quantized::GgmlDType::{Q2K, Q3K, Q4_0, Q4_1, Q4K, Q6K, Q8_0};
use gpulab::measurement::Summary;
use gpulab_nn::gpt::Text;
use gpulab_nn::llama::{ChatModel, Llama, WeightDtype};
use gpulab_nn::quantize::{Format, Method, MiniFloat, Share, quantize, token_ms};
use gpulab_nn::{DType, Device};
use std::path::{Path, PathBuf};

/// Tokens that calibrate the methods that look at them; of these, tokens on which other formats' errors are taken.
const CALIBRATION: usize = 4096;
const SAMPLE: usize = 256;
/// Tokens that are predicted, and how many are seen at a time.
const HELD_OUT: usize = 1024;
const WINDOW: usize = 256;
/// Tokens in the cache, tokens that are timed each time, and how often.
const CONTEXT: usize = 64;
const TIMED: usize = 5;
const ROUNDS: usize = 5;

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
        int(4, true, group),
        int(2, true, group),
        ggml(Q8_0),
        ggml(Q4K),
        ggml(Q4_0),
        ggml(Q6K),
        ggml(Q2K),
        ggml(Q4_1),
        ggml(Q3K),
        gptq(3, true, group),
        awq(3, true, group),
        int(4, true, Share::Group(32)),
        int(4, true, Share::Row),
        int(8, false, Share::Tensor),
        Method::Round(Format::Mx(MiniFloat::E4M3)),
        scaled(MiniFloat::E2M1),
        awq(4, false, Share::Row),
    ]
}

/// A row of the file.
struct Row {
    name: String,
    bits_a_weight: f64,
    weight_error: f64,
    output_error: f64,
    loss: f64,
    /// What multiplies in these bits, to be timed.
    llama: Option<Llama>,
    tokens_per_s: Option<f64>,
}

const HEADER: &str = "method,bits_a_weight,bytes,weight_error,output_error,loss_nats,perplexity,tokens_per_s";

impl Row {
    fn line(&self, weights: f64) -> String {
        let speed = self.tokens_per_s.map_or(String::new(), |speed| format!("{speed:.2}"));
        format!(
            "\"{}\",{:.3},{:.0},{:.5},{:.5},{:.4},{:.3},{speed}",
            self.name,
            self.bits_a_weight,
            self.bits_a_weight * weights / 8.0,
            self.weight_error,
            self.output_error,
            self.loss,
            self.loss.exp()
        )
    }
}

/// The rows of an earlier run. Bits follow from the bytes, which are exact, and the loss from the perplexity, which has more digits.
fn read(path: &Path, weights: f64) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let row = |line: &str| {
        let (name, numbers) = line.strip_prefix('"')?.split_once("\",")?;
        let numbers: Vec<Option<f64>> = numbers.split(',').map(|text| text.parse().ok()).collect();
        Some(Row {
            name: name.to_string(),
            bits_a_weight: 8.0 * numbers[1]? / weights,
            weight_error: numbers[2]?,
            output_error: numbers[3]?,
            loss: numbers[5]?.ln(),
            llama: None,
            tokens_per_s: numbers[6],
        })
    };
    text.lines().filter_map(row).collect()
}

/// The whole file, anew.
fn write(path: &Path, rows: &[Row], weights: f64) -> gpulab::Result<()> {
    let lines: Vec<String> =
        std::iter::once(HEADER.to_string()).chain(rows.iter().map(|row| row.line(weights))).collect();
    save(path, &(lines.join("\n") + "\n"))
}

fn save(path: &Path, text: &str) -> gpulab::Result<()> {
    let io = |error| gpulab::Error::file(path, "write", error, "name a file that can be written");
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(io)?;
    }
    std::fs::write(path, text).map_err(io)
}

/// Times all that multiply in their own bits, in rounds, and puts the median into their rows.
fn time(rows: &mut [Row]) -> gpulab::Result<()> {
    let mut ms: Vec<Vec<f64>> = vec![Vec::new(); rows.len()];
    for _ in 0..ROUNDS {
        for (row, ms) in rows.iter().zip(&mut ms) {
            if let Some(llama) = &row.llama {
                ms.extend(token_ms(llama, CONTEXT, TIMED)?);
            }
        }
    }
    for (row, ms) in rows.iter_mut().zip(ms) {
        if !ms.is_empty() {
            row.tokens_per_s = Some(1e3 / Summary::of(&ms).median);
        }
    }
    Ok(())
}

fn page(command: &str, weights: f64) -> String {
    let (cpu, cores) = (gpulab::cpu::info().short_name(), std::thread::available_parallelism().map_or(1, usize::from));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("not known").to_string();
    let rows = [
        ("commit", gpulab::results::commit()),
        ("ended (UTC)", gpulab::results::now_utc()),
        ("command", format!("`{command}`")),
        ("CPU", format!("{cpu} ({cores} cores may be used)")),
        ("load average at the end", load),
        ("model", format!("SmolLM2-135M-Instruct, Q4_1; {weights} weights in the layers' matrices are rounded")),
        ("calibration of GPTQ and AWQ", format!("{CALIBRATION} tokens of the course's training text")),
        ("errors of outputs", format!("on up to {SAMPLE} tokens of that text")),
        ("perplexity", format!("over {HELD_OUT} tokens of the course's held-out text, in windows of {WINDOW}")),
        (
            "tokens per second",
            format!(
                "one text, {CONTEXT} tokens in the cache; the median of {} tokens in {ROUNDS} rounds",
                ROUNDS * TIMED
            ),
        ),
    ];
    let table: String = rows.iter().map(|(what, is)| format!("| {what} | {is} |\n")).collect();
    format!(
        "# SmolLM2 in fewer bits\n\nWritten by the example `record_quantization`; nothing here is typed by hand. The rows are in \
         [smollm2.csv](smollm2.csv).\n\n| what | |\n| --- | --- |\n{table}\n\
         Bits include scales; embedding and norms stay as they are. Errors are root mean squares over those of what the file \
         says, which is Q4_1: so a format that can hold each of its blocks looks better here than it would on the original weights. \
         Rows without tokens per second are formats that nothing here multiplies in: their values, unpacked to f32, were used. Where \
         256 does not divide a row, a k-quant is what llama.cpp takes in its place.\n"
    )
}

fn main() -> gpulab::Result<()> {
    let path = PathBuf::from(std::env::args().nth(1).unwrap_or("results/quantization/smollm2.csv".to_string()));
    let command = "cargo run --release -p gpulab-nn --example record_quantization -- results/quantization/smollm2.csv";
    let device = Device::Cpu;
    let dense = ChatModel::smollm2(&device, WeightDtype::Dense(DType::F32))?;
    let text = Text::course()?;
    let tokens = |bytes: &[u8], count: usize| -> gpulab::Result<Vec<u32>> {
        let mut tokens = dense.tokenizer.encode(&String::from_utf8_lossy(&bytes[..(8 * count).min(bytes.len())]))?;
        tokens.truncate(count);
        Ok(tokens)
    };
    let (calibration, held_out) = (tokens(&text.train, CALIBRATION)?, tokens(&text.held_out, HELD_OUT)?);
    let weights = dense.llama.config().projection_count() as f64;
    let mut rows = read(&path, weights);
    let known: Vec<String> = rows.iter().map(|row| row.name.clone()).collect();
    let mut add = |name: &str, bits: f64, errors: (f64, f64), llama: Llama, multiplies: bool| -> gpulab::Result<()> {
        if let Some(row) = rows.iter_mut().find(|row| row.name == name) {
            row.llama = multiplies.then_some(llama);
            return Ok(());
        }
        let loss = llama.loss(&held_out, WINDOW)?;
        rows.push(Row {
            name: name.to_string(),
            bits_a_weight: bits,
            weight_error: errors.0,
            output_error: errors.1,
            loss,
            llama: multiplies.then_some(llama),
            tokens_per_s: None,
        });
        println!("{}", rows[rows.len() - 1].line(weights));
        write(&path, &rows, weights)?;
        save(&path.with_extension("md"), &page(command, weights))
    };
    let none = (0.0, 0.0);
    add("f32, as the file says", 32.0, none, dense.llama.clone(), true)?;
    add("bf16", 16.0, none, ChatModel::smollm2(&device, WeightDtype::Dense(DType::BF16))?.llama, true)?;
    let stored = ChatModel::smollm2(&device, WeightDtype::AsStored)?.llama;
    add("Q4_1 as stored, inputs in int8", 5.0, none, stored, true)?;
    for method in methods().into_iter().filter(|method| !known.contains(&method.name())) {
        let tokens = if matches!(method, Method::Round(_)) { SAMPLE } else { CALIBRATION };
        let done = quantize(&dense.llama, method, &calibration[..tokens])?;
        let mean = |of: fn(&gpulab_nn::quantize::MatrixError) -> f64| {
            done.errors.iter().map(of).sum::<f64>() / done.errors.len() as f64
        };
        let (errors, bits) = ((mean(|error| error.weights), mean(|error| error.outputs)), done.bits_a_weight());
        let multiplies = matches!(method, Method::Round(Format::Ggml(_)));
        add(&method.name(), bits, errors, done.llama, multiplies)?;
    }
    time(&mut rows)?;
    write(&path, &rows, weights)?;
    save(&path.with_extension("md"), &page(command, weights))
}
