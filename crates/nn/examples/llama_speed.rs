//! Times a Llama on the CPU for `env/baselines/record_llama_cpp.py`, which asks line by line:
//!
//! - `prefill TOKENS`: milliseconds for a prompt of as many tokens, up to the logits after the last one;
//! - `decode TEXTS CONTEXT STEPS`: milliseconds a step, for one more token of each of as many texts that have so many already;
//! - `bytes`: of the weights.

use gpulab_nn::Device;
use gpulab_nn::gpt::{CausalModel, KvCache};
use gpulab_nn::llama::{GgufFile, Llama, WeightDtype};
use std::io::{BufRead, Write};
use std::time::Instant;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let path = std::env::args().nth(1).ok_or("name a GGUF file of a Llama")?;
    let llama = Llama::load(&GgufFile::open(path.as_ref())?, &Device::Cpu, WeightDtype::AsStored)?;
    let mut decoded = None;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (word, numbers) = line.split_once(' ').unwrap_or((&line, ""));
        let numbers = numbers.split_whitespace().map(str::parse).collect::<std::result::Result<Vec<usize>, _>>()?;
        let answer = match (word, &numbers[..]) {
            ("prefill", &[tokens]) => prefill(&llama, tokens)?,
            ("decode", &[texts, context, steps]) => decode(&llama, &mut decoded, [texts, context, steps])?,
            ("bytes", []) => llama.bytes() as f64,
            _ => return Err(format!("`{line}` is no question").into()),
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// Tokens that any vocabulary has; which ones they are changes no time.
fn tokens(count: usize) -> Vec<u32> {
    (0..count as u32).map(|i| 100 + i * 7 % 101).collect()
}

fn prefill(llama: &Llama, count: usize) -> Result<f64> {
    let begin = Instant::now();
    let (_, logits) = llama.prefill(&[tokens(count)], 0)?;
    logits.dims2()?;
    Ok(1e3 * begin.elapsed().as_secs_f64())
}

/// What was read is kept for the next question of these texts.
fn decode(llama: &Llama, kept: &mut Option<([usize; 3], KvCache)>, asked: [usize; 3]) -> Result<f64> {
    let [texts, context, steps] = asked;
    if kept.as_ref().is_none_or(|(own, _)| *own != asked) {
        *kept = None;
        *kept = Some((asked, llama.prefill(&vec![tokens(context); texts], steps)?.0));
    }
    let (_, cache) = kept.as_mut().expect("it was just put there");
    cache.truncate(context);
    let begin = Instant::now();
    for step in 0..steps {
        llama.step(&vec![100 + step as u32 % 100; texts], cache)?;
    }
    Ok(1e3 * begin.elapsed().as_secs_f64() / steps as f64)
}
