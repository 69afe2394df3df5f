//! `gpulab serve`: a model behind OpenAI's interface, until Ctrl-C.

use crate::options::{Device, RandomShape, Serve};
use gpulab::error::{Error, Result};
use gpulab_nn::engine::EngineConfig;
use gpulab_nn::gpt::Text;
use gpulab_nn::llama::model_path;
use gpulab_nn::{DeviceKind, Gpu};
use gpulab_serve::Limits;
use gpulab_serve::server::{BatchedModel, CandleModel, GpuReading, Options, Server, log_to_stderr};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Tokens in a block of the KV cache.
const BLOCK: usize = 16;
const TOKEN: &str = "GPULAB_SERVE_TOKEN";

/// Loads the model and serves it.
///
/// # Errors
/// As [`CandleModel::load`] and [`Server::start`]; [`Error::Invalid`] when the cache has no room for a block.
pub fn serve(options: &Serve) -> Result<String> {
    log_to_stderr(options.verbose);
    let default = || if model_path().exists() { model_path() } else { Text::folder() };
    let path = options.model.clone().unwrap_or_else(default);
    let most = options.context.unwrap_or(usize::MAX);
    let model = match options.random {
        Some(shape) => Loaded::random(shape, options.device, most)?,
        None => Loaded::open(&path, options.device, most)?,
    };
    let (own, bytes_a_token) = match &model {
        Loaded::Candle(model) => (model.context(), model.cache_bytes_a_token()),
        Loaded::Batched(model) => (model.context(), model.cache_bytes_a_token()),
    };
    let context = own.min(most);
    let blocks = blocks(options.cache_mib, bytes_a_token)?;
    let settings = Options {
        address: (options.host, options.port).into(),
        token: token(options.token_file.as_deref())?,
        limits: Limits {
            sequences: options.batch,
            step_tokens: options.step_tokens.max(options.batch),
            queue: options.queue,
            context,
            ..Limits::default()
        },
        chunked_prefill: options.chunked_prefill_size,
        blocks,
        block_size: BLOCK,
        body_bytes: options.body_kib << 10,
        most_new: options.max_tokens,
        answer_limit: Duration::from_secs_f64(options.time_limit),
        gpu: (options.device == Device::Cuda).then(watched_gpu).flatten(),
        ..Options::default()
    };
    let (with_token, header) = match settings.token {
        Some(_) => (", with a token", format!("-H \"Authorization: Bearer ${TOKEN}\" ")),
        None => ("", String::new()),
    };
    let (model, text) = match model {
        Loaded::Candle(model) => model.with_cache(&settings),
        Loaded::Batched(model) => model.with_cache(&settings),
    }?;
    let name = text.name().to_string();
    let server = Server::start(model, text, settings)?;
    let interrupts = on_interrupt()?;
    let address = server.address();
    // Whoever read has gone away; the server has not.
    let _ = writeln!(
        std::io::stdout(),
        "{name} at http://{address}{with_token}: a context of {context} tokens, a KV cache of {}, up to {} requests in a batch\n\
         next: open it in a browser, or\n  curl http://{address}/v1/completions {header}-H 'Content-Type: application/json' \
         -d '{{\"prompt\": \"The warp\", \"max_tokens\": 40}}'",
        blocks * BLOCK,
        options.batch
    );
    let _ = interrupts.recv();
    let _ = writeln!(std::io::stdout(), "answers in flight come to their end; Ctrl-C again ends at once");
    server.stop();
    Ok(format!("{name} is not served any more"))
}

/// A Mac has no NVML.
#[cfg(target_os = "macos")]
fn watched_gpu() -> Option<Arc<Mutex<GpuReading>>> {
    None
}

/// The numbers of the GPU that CUDA opens, read by NVML once a second; nothing where NVML does not answer.
#[cfg(not(target_os = "macos"))]
fn watched_gpu() -> Option<Arc<Mutex<GpuReading>>> {
    use gpulab_monitor::{NvmlSource, Sample, SampleSource};
    let id = Gpu::open().ok()?.pci_bus_id().ok()?;
    let index = NvmlSource::open(&[]).ok()?.nvml().device_by_pci_bus_id(id.as_str()).ok()?.index().ok()?;
    let mut source = NvmlSource::open(&[index]).ok()?;
    let name = source.gpus().first()?.name.clone();
    let reading = Arc::new(Mutex::new(GpuReading { name, ..GpuReading::default() }));
    let shared = reading.clone();
    // It ends with the program: the server is what others wait for.
    std::thread::spawn(move || {
        while let Ok(samples) = source.sample() {
            let Some(Sample { utilization_percent, memory_used_bytes, memory_total_bytes, power_w, .. }) =
                samples.into_iter().next()
            else {
                return;
            };
            let mut now = shared.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *now = GpuReading {
                name: std::mem::take(&mut now.name),
                utilization_percent,
                memory_used_bytes,
                memory_total_bytes,
                power_w,
            };
            drop(now);
            std::thread::sleep(Duration::from_secs(1));
        }
    });
    Some(reading)
}

/// A model before its cache is there, and who computes its steps.
enum Loaded {
    Candle(CandleModel),
    /// On an NVIDIA GPU, for Llamas that the course's kernels take.
    Batched(BatchedModel),
}

impl Loaded {
    fn random(shape: RandomShape, device: Device, context: usize) -> Result<Loaded> {
        let (name, config) = match shape {
            RandomShape::Llama1B => ("random-llama-1b", EngineConfig::LLAMA_1B),
        };
        if device != Device::Cuda {
            return Err(Error::unsupported(
                "random weights anywhere but on an NVIDIA GPU",
                "add --device cuda, or serve a model (--model)",
            ));
        }
        let config = EngineConfig { context: context.min(config.context), ..config };
        Ok(Loaded::Batched(BatchedModel::random(name, config, &Gpu::open()?)))
    }

    fn open(path: &Path, device: Device, context: usize) -> Result<Loaded> {
        if device == Device::Cuda && path.is_file() {
            match BatchedModel::load(path, &Gpu::open()?, context) {
                Ok(model) => return Ok(Loaded::Batched(model)),
                Err(Error::Unsupported { what, .. }) => eprintln!("candle computes the steps: {what}"),
                Err(error) => return Err(error),
            }
        }
        Ok(Loaded::Candle(CandleModel::load(path, &DeviceKind::from(device).open()?)?))
    }
}

/// How many blocks so much memory holds.
fn blocks(mib: usize, bytes_a_token: usize) -> Result<usize> {
    match (mib << 20) / (bytes_a_token * BLOCK) {
        0 => Err(Error::invalid(
            format!(
                "a KV cache of {mib} MiB has no room for a block: {BLOCK} tokens take {} bytes",
                bytes_a_token * BLOCK
            ),
            "give it more (--cache-mib)",
        )),
        blocks => Ok(blocks),
    }
}

/// The token of a file, or of the environment: an argument could be read by everybody on this machine.
fn token(file: Option<&Path>) -> Result<Option<String>> {
    let text = match file {
        Some(path) => Some(std::fs::read_to_string(path).map_err(Error::io(
            path,
            "read the token of",
            "write the token into that file, and let nobody else read it",
        ))?),
        None => std::env::var(TOKEN).ok(),
    };
    Ok(text.map(|text| text.trim().to_string()))
}

/// Hears of Ctrl-C and SIGTERM; the second one ends the program at once.
fn on_interrupt() -> Result<mpsc::Receiver<()>> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let set = ctrlc::set_handler(move || {
        if sender.try_send(()).is_err() {
            std::process::exit(130);
        }
    });
    set.map_err(|error| {
        Error::unsupported(format!("Ctrl-C cannot be handled here: {error}"), "start it as a process of its own")
    })?;
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_in_whole_blocks() {
        // SmolLM2: 30 layers, 3 heads of 64 numbers, keys and values in f32.
        assert_eq!(blocks(256, 2 * 30 * 3 * 64 * 4).unwrap(), 364);
        assert!(blocks(1, 1 << 20).unwrap_err().to_string().contains("--cache-mib"));
    }

    #[test]
    fn a_token_file_without_its_line_end_or_not_there() {
        let path = std::env::temp_dir().join(format!("gpulab-token-{}", std::process::id()));
        std::fs::write(&path, "s3cret\n").unwrap();
        assert_eq!(token(Some(&path)).unwrap().as_deref(), Some("s3cret"));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(token(Some(&path)), Err(Error::File { .. })));
    }
}
