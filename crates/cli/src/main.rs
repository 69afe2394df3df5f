//! The program `gpulab`: what this machine has, and what a notebook must not do in its own process.

#[cfg(feature = "onnx")]
mod benchmark;
mod demo;
#[cfg(feature = "onnx")]
mod export;
#[cfg(feature = "nn")]
mod gpt;
mod monitor;
mod options;
mod report;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "nn")]
mod train;
mod train_sharded;
mod verify;

use clap::{CommandFactory, Parser};
use gpulab::error::Result;
use gpulab_lessons::{contest, machine};
use options::{Command, Data, Gpulab};
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Gpulab::try_parse().map(|gpulab| answer(gpulab.command)) {
        Ok(Ok(text)) => {
            print(text.trim_end());
            ExitCode::SUCCESS
        }
        Ok(Err(error)) => refuse(&error),
        // `--help` and `--version`.
        Err(text) if !text.use_stderr() => {
            print(text.render().to_string().trim_end());
            ExitCode::SUCCESS
        }
        Err(error) => refuse(&with_next(&error, &named(std::env::args_os().skip(1)))),
    }
}

/// A line to the standard output. A reader that ended (`gpulab verify | head -1`, or Ctrl-C at `gpulab train | tee`) is no
/// error, and no reason to panic: a training run is still to be kept.
fn print(text: impl Display) {
    let _ = writeln!(std::io::stdout(), "{text}");
}

fn refuse(problem: &dyn Display) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{problem}");
    ExitCode::from(2)
}

fn answer(command: Command) -> Result<String> {
    match command {
        Command::Verify { json: false } => Ok(machine::detect().to_string()),
        Command::Verify { json: true } => Ok(verify::json(&machine::detect())),
        Command::Demo(demo) => demo::run(demo),
        #[cfg(feature = "nn")]
        Command::Data(Data::Mnist { hub }) => {
            gpulab_nn::data::fetch_mnist(None, &gpulab_nn::data::mnist_sources(hub.as_deref()))
        }
        #[cfg(feature = "nn")]
        Command::Data(Data::Gpt { name }) => gpt::fetch(&name),
        #[cfg(feature = "nn")]
        Command::Train(options) => train::train(options),
        #[cfg(feature = "nn")]
        Command::TrainGpt(options) => gpt::train(options),
        #[cfg(feature = "nn")]
        Command::Generate(options) => gpt::generate(&options),
        #[cfg(feature = "onnx")]
        Command::ExportOnnx(options) => export::export(options),
        #[cfg(feature = "onnx")]
        Command::TrtBenchmark(options) => benchmark::trt_benchmark(&options),
        Command::Contest { task, gpu } => contest(&task, gpu),
        Command::Report(options) => report::of_results(options),
        Command::Monitor(options) => monitor::monitor(&options),
        Command::TrainSharded(options) => train_sharded::train(&options),
        #[cfg(feature = "serve")]
        Command::Serve(options) => serve::serve(&options),
        #[cfg(not(all(feature = "onnx", feature = "serve")))]
        other => Err(absent(&other)),
    }
}

/// The entry comes whole before anything is run; the verdict is the last line, behind whatever the kernel prints.
fn contest(task: &str, gpu: bool) -> Result<String> {
    let task = contest::Task::named(task)?;
    let source = std::io::read_to_string(std::io::stdin()).map_err(|error| {
        gpulab::Error::invalid(format!("the entry cannot be read: {error}"), "give a text in UTF-8")
    })?;
    Ok(contest::answer(task, &source, gpu).to_string())
}

/// A command that this program was built without.
#[cfg(not(all(feature = "onnx", feature = "serve")))]
fn absent(command: &Command) -> gpulab::error::Error {
    let (name, with, build) = match command {
        Command::Verify { .. }
        | Command::Demo(_)
        | Command::Contest { .. }
        | Command::Report(_)
        | Command::Monitor(_)
        | Command::TrainSharded(_) => {
            unreachable!("these are in every build")
        }
        Command::Data(Data::Mnist { .. }) => ("data mnist", "nn", "`make mnist`"),
        Command::Data(Data::Gpt { .. }) => {
            let build = "`cargo run --release -p gpulab-cli --features nn -- data gpt openai-community/gpt2`";
            ("data gpt", "nn", build)
        }
        Command::Train(_) => ("train", "nn", "`make train-cpu`, `make train-cuda` or `make train-mps`"),
        Command::TrainGpt(_) => ("train-gpt", "nn", "`make train-gpt`"),
        Command::Generate(_) => {
            ("generate", "nn", "`cargo run --release -p gpulab-cli --features nn -- generate \"The warp\"`")
        }
        Command::ExportOnnx(_) => ("export-onnx", "onnx", "`make export-onnx`"),
        Command::TrtBenchmark(_) => ("trt-benchmark", "onnx", "`make trt-benchmark`"),
        Command::Serve(_) => ("serve", "serve", "`make serve`"),
    };
    gpulab::error::Error::unsupported(
        format!("`gpulab {name}` needs the feature `{with}`, and this program was built without it"),
        format!("run {build}, which builds one with it"),
    )
}

/// clap's message, with the next step as the last line, which a value's own error may have already.
fn with_next(error: &clap::Error, command: &str) -> String {
    let text = error.render().to_string();
    let text = text.trim_end().trim_end_matches("For more information, try '--help'.").trim_end();
    match text.contains("\nnext: ") {
        true => text.to_string(),
        false => format!("{text}\n\nnext: `{command} --help` lists what it takes"),
    }
}

/// The program with the subcommands that the arguments begin with.
fn named(arguments: impl Iterator<Item = std::ffi::OsString>) -> String {
    let (mut name, mut command) = ("gpulab".to_string(), &Gpulab::command());
    for argument in arguments {
        let Some(inner) = command.find_subcommand(&argument) else { break };
        command = inner;
        name = format!("{name} {}", command.get_name());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::error::ErrorKind;

    fn refused(arguments: &str) -> (ErrorKind, String) {
        let words = || arguments.split_whitespace();
        let error = Gpulab::try_parse_from(["gpulab"].into_iter().chain(words())).unwrap_err();
        (error.kind(), with_next(&error, &named(words().map(Into::into))))
    }

    #[test]
    fn the_options_fit_together() {
        Gpulab::command().debug_assert();
    }

    #[test]
    fn what_it_does_not_know_is_refused_with_the_next_step() {
        for (arguments, kind, asks) in [
            ("", ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand, "gpulab"),
            ("verfiy", ErrorKind::InvalidSubcommand, "gpulab"),
            ("verify --jsn", ErrorKind::UnknownArgument, "gpulab verify"),
            ("verify --json x", ErrorKind::UnknownArgument, "gpulab verify"),
            ("demo ladder 9", ErrorKind::MissingRequiredArgument, "gpulab demo ladder"),
            ("demo launch x y z", ErrorKind::ValueValidation, "gpulab demo launch"),
            ("demo out-of-memory 0 40", ErrorKind::ValueValidation, "gpulab demo out-of-memory"),
            ("data gpt", ErrorKind::MissingRequiredArgument, "gpulab data gpt"),
            ("train --device tpu", ErrorKind::InvalidValue, "gpulab train"),
            ("train --dtype f8", ErrorKind::InvalidValue, "gpulab train"),
            ("train --kernels cudnn", ErrorKind::InvalidValue, "gpulab train"),
            ("train --epochs x", ErrorKind::ValueValidation, "gpulab train"),
            ("train --epochs 0", ErrorKind::ValueValidation, "gpulab train"),
            ("train --learning-rate 0", ErrorKind::ValueValidation, "gpulab train"),
            ("train --seed 1 --seed 2", ErrorKind::ArgumentConflict, "gpulab train"),
            ("train now", ErrorKind::UnknownArgument, "gpulab train"),
            ("train-gpt --steps x", ErrorKind::ValueValidation, "gpulab train-gpt"),
            ("train-gpt now", ErrorKind::UnknownArgument, "gpulab train-gpt"),
            ("generate --dtype tf32 x", ErrorKind::InvalidValue, "gpulab generate"),
            ("generate --top-p 1.5 x", ErrorKind::ValueValidation, "gpulab generate"),
            ("export-onnx bert", ErrorKind::InvalidValue, "gpulab export-onnx"),
            ("export-onnx --outside 0.5", ErrorKind::ValueValidation, "gpulab export-onnx"),
            ("export-onnx check", ErrorKind::MissingRequiredArgument, "gpulab export-onnx check"),
            ("trt-benchmark --batches 1,0", ErrorKind::ValueValidation, "gpulab trt-benchmark"),
            ("trt-benchmark --modell x", ErrorKind::UnknownArgument, "gpulab trt-benchmark"),
            ("contest", ErrorKind::MissingRequiredArgument, "gpulab contest"),
            ("report --out", ErrorKind::InvalidValue, "gpulab report"),
            ("monitor --interval 0", ErrorKind::ValueValidation, "gpulab monitor"),
            ("monitor --gpu x", ErrorKind::ValueValidation, "gpulab monitor"),
            ("monitor --replay a --job b", ErrorKind::ArgumentConflict, "gpulab monitor"),
            ("monitor train", ErrorKind::UnknownArgument, "gpulab monitor"),
            ("serve --host here", ErrorKind::ValueValidation, "gpulab serve"),
            ("serve --port 70000", ErrorKind::ValueValidation, "gpulab serve"),
            ("serve --batch 0", ErrorKind::ValueValidation, "gpulab serve"),
        ] {
            let (refused, text) = refused(arguments);
            assert_eq!(refused, kind, "{arguments}: {text}");
            let next = format!("\nnext: `{asks} --help` lists what it takes");
            assert!(text.ends_with(&next) && !text.contains("For more information"), "{text}");
        }
    }

    #[test]
    fn the_next_step_of_a_value_is_the_only_one() {
        let (kind, text) = refused("demo ladder - reduction/02_tree");
        assert_eq!((kind, text.matches("next: ").count()), (ErrorKind::ValueValidation, 1), "{text}");
    }

    #[test]
    fn every_command_has_help() {
        let all = Gpulab::command();
        let names: Vec<&str> = all.get_subcommands().map(|command| command.get_name()).collect();
        assert_eq!(names.len(), 13);
        for name in names {
            let error = Gpulab::try_parse_from(["gpulab", name, "--help"]).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::DisplayHelp, "{name}");
        }
    }

    #[cfg(not(feature = "nn"))]
    #[test]
    fn a_command_that_is_not_built_in_names_the_one_that_builds_it() {
        for arguments in [
            &["train", "--epochs", "3"][..],
            &["train-gpt"],
            &["generate", "a"],
            &["data", "mnist"],
            &["data", "gpt", "openai-community/gpt2"],
            &["export-onnx", "check", "x.onnx"],
            &["trt-benchmark"],
            &["serve"],
        ] {
            let command = Gpulab::try_parse_from([&["gpulab"], arguments].concat()).unwrap().command;
            let error = answer(command).unwrap_err();
            assert!(
                matches!(&error, gpulab::Error::Unsupported { fix, .. } if fix.contains("make ") || fix.contains("cargo run"))
            );
        }
    }
}
