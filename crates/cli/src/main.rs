//! The program `gpulab`: what this machine has, and what a notebook must not do in its own process.

use gpulab::topics::Size;
use gpulab::{demo, machine};
use std::io::Write;
use std::process::ExitCode;

const HELP: &str = "\
gpulab looks at this machine for the course's notebooks.

usage:
  gpulab verify           what was found: CPU, GPUs, drivers, libraries, and how to add what is missing
  gpulab verify --json    the same for programs
  gpulab demo late-error  a kernel that writes outside its buffer, and when that comes to light
  gpulab demo ladder SIZE RUNG …      one run of each rung, for ncu and nsys: gpulab demo ladder 4194304 reduction/02_tree
  gpulab demo launch FILE KERNEL N    one launch of a kernel (const float *, float *, int), for compute-sanitizer
  gpulab demo out-of-memory BATCH MIB the forward pass of the course's CNN in a process that may take so much memory
  gpulab data mnist [--hub OWNER/NAME]  fetches MNIST into data/mnist/, from mirrors or a data set of the Hugging Face hub (`make mnist`)
  gpulab data gpt OWNER/NAME      fetches a GPT-2 from the Hugging Face hub into models/hub/, such as openai-community/gpt2
  gpulab train            the CNN of lesson 20 learns to read digits (`make train-cpu`, `train-cuda`, `train-mps`)
  gpulab train-gpt        a small GPT learns the course's own text (`make train-gpt`)
  gpulab generate PROMPT  what it goes on with; --model DIR for a GPT-2 checkpoint
  gpulab export-onnx      the trained CNN and the small GPT as ONNX files (`make export-onnx`); check FILE looks at one
  gpulab trt-benchmark    latency of that CNN, or of --model FILE: candle, ONNX Runtime on CPU, CUDA, TensorRT (`make trt-benchmark`)
  gpulab report           results/metrics.csv: CPU against GPU by experiment (`make report`); [--results FILE] [--out FOLDER]
  gpulab --help           this text
  gpulab --version        the version
";

fn main() -> ExitCode {
    // Not `args`, which panics where an argument is not UTF-8.
    let arguments: Vec<String> = std::env::args_os().skip(1).map(|a| a.to_string_lossy().into_owned()).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match answer(&arguments) {
        Ok(text) => {
            // A reader that went away (`gpulab verify | head -1`) is no mistake, and no reason to panic.
            let _ = writeln!(std::io::stdout(), "{}", text.trim_end());
            ExitCode::SUCCESS
        }
        Err(problem) => {
            let _ = writeln!(std::io::stderr(), "{problem}");
            ExitCode::from(2)
        }
    }
}

fn answer(arguments: &[&str]) -> Result<String, String> {
    match arguments {
        ["verify"] => Ok(machine::detect().to_string()),
        ["verify", "--json"] | ["--json", "verify"] => Ok(machine::detect().to_json()),
        ["demo", "late-error"] => demo::late_error().map_err(|error| error.to_string()),
        ["demo", "out-of-memory", batch, mib] => {
            demo::out_of_memory(number(batch)?, number(mib)? as u64).map_err(|error| error.to_string())
        }
        ["demo", "ladder", size, rungs @ ..] if !rungs.is_empty() => {
            let size = Size::from_name(size).map_err(|error| error.to_string())?;
            demo::ladder(size, rungs).map_err(|error| error.to_string())
        }
        ["demo", "launch", file, kernel, n] => {
            demo::launch(file, kernel, number(n)?).map_err(|error| error.to_string())
        }
        ["data", "mnist"] => candle::mnist(None),
        ["data", "mnist", "--hub", name] => candle::mnist(Some(name)),
        ["data", "gpt", name] => candle::gpt(name),
        ["train", options @ ..] => candle::train(options),
        ["train-gpt", options @ ..] => candle::train_gpt(options),
        ["generate", options @ ..] => candle::generate(options),
        ["export-onnx", options @ ..] => onnx::export(options),
        ["trt-benchmark", options @ ..] => runtime::benchmark(options),
        ["report", options @ ..] => arrays::write_report(options),
        ["--help" | "-h" | "help"] | ["verify", "--help" | "-h"] => Ok(HELP.to_string()),
        ["--version" | "-V"] => Ok(format!("gpulab {}", env!("CARGO_PKG_VERSION"))),
        [] => Err(format!("gpulab was not told what to do\nnext: run `gpulab verify`\n\n{}", HELP.trim_end())),
        _ => Err(format!("gpulab does not know `{}`\nnext: `gpulab --help` lists what it does", arguments.join(" "))),
    }
}

/// What is there only when the program was built with polars.
#[cfg(feature = "arrays")]
mod arrays {
    use gpulab::arrays::{Report, report, report::of_file};
    use std::path::{Path, PathBuf};

    /// `gpulab report [--results FILE] [--out FOLDER]`.
    pub fn write_report(options: &[&str]) -> Result<String, String> {
        let (file, folder) = match options {
            [] => (None, gpulab::results::dir()),
            ["--results", file] => (Some(file), gpulab::results::dir()),
            ["--out", folder] => (None, PathBuf::from(folder)),
            ["--results", file, "--out", folder] | ["--out", folder, "--results", file] => {
                (Some(file), PathBuf::from(folder))
            }
            _ => {
                return Err(format!(
                    "gpulab report does not know `{}`\nnext: gpulab report [--results FILE] [--out FOLDER]",
                    options.join(" ")
                ));
            }
        };
        let made: gpulab::Result<Report> = file.map_or_else(report, |file| of_file(Path::new(file)));
        let saved = made.and_then(|report| Ok((report.save(&folder)?, report)));
        let (files, report) = saved.map_err(|error| error.to_string())?;
        let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
        Ok(format!("{}\nwritten: {}", report.text(), files.join(", ")))
    }
}

#[cfg(not(feature = "arrays"))]
mod arrays {
    pub fn write_report(_: &[&str]) -> Result<String, String> {
        Err("`gpulab report` needs polars, and this program was built without\nnext: run `make report`".to_string())
    }
}

/// What is there only when the program was built with candle.
#[cfg(feature = "candle")]
mod candle {
    use gpulab::data;
    use gpulab::nn::cnn;
    use gpulab::nn::gpt::command;

    pub fn mnist(hub: Option<&str>) -> Result<String, String> {
        data::fetch_mnist(None, &data::mnist_sources(hub)).map_err(|error| error.to_string())
    }

    pub fn gpt(name: &str) -> Result<String, String> {
        command::fetch(name).map_err(|error| error.to_string())
    }

    pub fn train(options: &[&str]) -> Result<String, String> {
        cnn::command::train(options).map_err(|error| error.to_string())
    }

    pub fn train_gpt(options: &[&str]) -> Result<String, String> {
        command::train(options).map_err(|error| error.to_string())
    }

    pub fn generate(options: &[&str]) -> Result<String, String> {
        command::generate(options).map_err(|error| error.to_string())
    }
}

#[cfg(not(feature = "candle"))]
mod candle {
    fn absent(name: &str, make: &str) -> Result<String, String> {
        Err(format!("`gpulab {name}` needs candle, and this program was built without\nnext: {make}"))
    }

    pub fn mnist(_hub: Option<&str>) -> Result<String, String> {
        absent("data", "run `make mnist`, which builds one with it")
    }

    pub fn gpt(_name: &str) -> Result<String, String> {
        absent("data", "run `cargo run --release -p gpulab --features candle -- data gpt openai-community/gpt2`")
    }

    pub fn train(_options: &[&str]) -> Result<String, String> {
        absent("train", "run `make train-cpu`, `make train-cuda` or `make train-mps`, which build one with it")
    }

    pub fn train_gpt(_options: &[&str]) -> Result<String, String> {
        absent("train-gpt", "run `make train-gpt`")
    }

    pub fn generate(_options: &[&str]) -> Result<String, String> {
        absent("generate", "run `cargo run --release -p gpulab --features candle -- generate \"The warp\"`")
    }
}

/// What is there only when the program was built with ONNX's types.
#[cfg(feature = "export")]
mod onnx {
    pub fn export(options: &[&str]) -> Result<String, String> {
        gpulab::export::command::export(options).map_err(|error| error.to_string())
    }
}

#[cfg(not(feature = "export"))]
mod onnx {
    pub fn export(_: &[&str]) -> Result<String, String> {
        Err("`gpulab export-onnx` needs the feature `export`, and this program was built without\n\
             next: run `make export-onnx`"
            .to_string())
    }
}

/// Running ONNX files takes ONNX Runtime, and the CNN to compare with.
#[cfg(all(feature = "export", feature = "ort"))]
mod runtime {
    pub fn benchmark(options: &[&str]) -> Result<String, String> {
        gpulab::runtime::command::trt_benchmark(options).map_err(|error| error.to_string())
    }
}

#[cfg(not(all(feature = "export", feature = "ort")))]
mod runtime {
    pub fn benchmark(_: &[&str]) -> Result<String, String> {
        Err("`gpulab trt-benchmark` needs the features `export` and `ort`, and this program was built without\n\
             next: run `make trt-benchmark`"
            .to_string())
    }
}

fn number(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| format!("`{text}` is no number of elements\nnext: give a whole number, such as 4194304"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_that_it_does_not_know_are_named_with_the_next_step() {
        for arguments in [&["verfiy"][..], &["verify", "--jsn"], &["verify", "--json", "x"], &["demo", "ladder", "9"]] {
            let problem = answer(arguments).unwrap_err();
            assert!(problem.contains(&arguments.join(" ")) && problem.contains("\nnext: "), "{problem}");
        }
        assert!(answer(&["demo", "launch", "x", "y", "z"]).unwrap_err().contains("`z` is no number"));
        assert!(answer(&["demo", "ladder", "-", "y"]).unwrap_err().contains("`-` is no size"));
        assert!(answer(&[]).unwrap_err().contains("next: run `gpulab verify`"));
    }

    #[test]
    fn help_and_version_answer() {
        assert!(answer(&["--help"]).unwrap().contains("gpulab verify --json"));
        assert!(answer(&["-V"]).unwrap().starts_with("gpulab "));
    }
}
