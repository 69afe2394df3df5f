//! Packs the PTX for machines without NVRTC: `make ptx` calls it, with the pinned NVRTC.
//!
//! Argument: a folder with a folder for each lesson, which holds what `GPULAB_PTX_LOG` kept there. The course's kernels
//! are compiled here. Lessons that have no folder keep what the pack has for them.

use gpulab::error::Result;
use gpulab::launch::Source;
use gpulab::sim::{self, shipped};
use gpulab_kernels::ladder::{OPERATORS, RUNGS};
use lzma_rust2::{LzmaOptions, LzmaWriter};
use shipped::{Pack, Packed};
use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

fn main() {
    let log = PathBuf::from(std::env::args().nth(1).unwrap_or_else(|| stop("name the folder of what was compiled")));
    if let Err(error) = compile_all(&log) {
        stop(&error.to_string());
    }
    let path = Pack::path();
    let before = match path.exists() {
        true => Pack::read(&path).unwrap_or_else(|error| stop(&error.to_string())),
        false => Pack::default(),
    };
    let mut pack = Pack::default();
    read(&log, &log, &mut pack).unwrap_or_else(|error| stop(&format!("cannot read {}: {error}", log.display())));
    let renewed: BTreeSet<String> = pack.0.values().flat_map(|kernel| kernel.users.iter().cloned()).collect();
    let notebooks = path.with_file_name("..").join("notebooks");
    let lesson = |user: &String| notebooks.join(format!("{user}.ipynb")).is_file();
    for (key, kernel) in before.0 {
        let users: Vec<String> =
            kernel.users.into_iter().filter(|user| !renewed.contains(user) && lesson(user)).collect();
        if !users.is_empty() {
            let kept = pack.0.entry(key).or_insert_with(|| Packed { text: kernel.text, ..Packed::default() });
            kept.users.extend(users);
        }
    }
    let bytes = pack.bytes(compress);
    if let Err(error) = std::fs::write(&path, &bytes) {
        stop(&format!("cannot write {}: {error}", path.display()));
    }
    let text: usize = pack.0.values().map(|kernel| kernel.text.len()).sum();
    println!("{}: {} kernels' PTX, {text} bytes, packed {}", path.display(), pack.0.len(), bytes.len());
}

/// Each rung and operator, compiled into a folder of its own.
fn compile_all(log: &Path) -> Result<()> {
    let rungs = RUNGS.iter().map(|rung| (rung.path, rung.source()));
    for (path, source) in rungs.chain(OPERATORS.iter().map(|operator| (operator.path, operator.source()))) {
        let source: Source = source?;
        shipped::log_in(&log.join("course").join(path), &source, || sim::compile(&source))?;
    }
    Ok(())
}

/// Adds what lies in a folder and below it; its path says who compiles it.
fn read(log: &Path, folder: &Path, pack: &mut Pack) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(log, &path, pack)?;
            continue;
        }
        let (key, user) = (path.file_name().unwrap_or_default(), folder.strip_prefix(log).unwrap_or(folder));
        let text = std::fs::read_to_string(&path)?;
        let kernel = pack.0.entry(key.to_string_lossy().into_owned()).or_default();
        // Two lessons may have got different PTX from a compiler that does not always give the same.
        if kernel.text.is_empty() || text < kernel.text {
            kernel.text = text;
        }
        kernel.users.insert(user.to_string_lossy().into_owned());
    }
    Ok(())
}

fn compress(text: &[u8]) -> Vec<u8> {
    let options =
        LzmaOptions { dict_size: 8 << 20, nice_len: LzmaOptions::NICE_LEN_MAX, ..LzmaOptions::with_preset(9) };
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(text.len() as u64)).expect("good options");
    writer.write_all(text).expect("a vector takes all");
    writer.finish().expect("a vector takes all")
}

fn stop(text: &str) -> ! {
    eprintln!("error: {text}");
    std::process::exit(1)
}
