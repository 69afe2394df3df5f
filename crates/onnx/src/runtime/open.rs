//! A file turned into a session.

use super::library::{self, BRING_IT};
use super::provider::Provider;
use super::said::{not_opened, said};
use super::{log, nodes};
use gpulab::error::{Error, Result};
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use std::path::Path;

/// Opens the file on the provider. `threads` is the CPU's; `profile` is the beginning of a file's name for a trace.
pub(super) fn session(
    path: &Path,
    provider: &Provider,
    threads: Option<usize>,
    profile: Option<&Path>,
) -> Result<Session> {
    let environment = library::environment()?;
    readable(path)?;
    let failed = |error: &ort::Error| said("no session was begun", error, BRING_IT);
    let begin = || -> ort::Result<ort::session::builder::SessionBuilder> {
        let mut builder = Session::builder(environment)?
            .with_optimization_level(GraphOptimizationLevel::All)?
            .with_config_entry(nodes::RECORD.0, nodes::RECORD.1)?;
        if let Some(threads) = threads {
            builder = builder.with_intra_threads(threads)?;
        }
        if let Some(profile) = profile {
            builder = builder.with_profiling(profile)?;
        }
        Ok(builder)
    };
    let builder = begin().map_err(|error| failed(&error))?;
    let mut builder = provider.register(builder)?;
    log::clear();
    builder.commit_from_file(path).map_err(|error| not_opened(path, &library::version().unwrap_or_default(), &error))
}

/// A missing or an empty file has the system's own words.
fn readable(path: &Path) -> Result<()> {
    let wrong = |text: String, fix: &str| {
        Err(Error::File { path: path.to_path_buf(), during: "open".to_string(), text, fix: fix.to_string() })
    };
    match std::fs::metadata(path) {
        Err(error) => {
            wrong(error.to_string(), "give the path of an .onnx file; lesson 42 and `make export-onnx` write some")
        }
        Ok(about) if about.is_dir() => wrong("it is a folder".to_string(), "give the .onnx file in it"),
        Ok(about) if about.len() == 0 => wrong("it is empty".to_string(), "export it again"),
        Ok(_) => Ok(()),
    }
}
