//! Points for lesson 90's report pages: `cargo run --package gpulab-lessons --example grade_capstone -- FILE…`.

use gpulab_lessons::capstone::Capstone;
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let files: Vec<String> = std::env::args().skip(1).collect();
    if files.is_empty() {
        eprintln!("no report was given\nnext: give the files, such as results/capstone/report.html");
        return ExitCode::FAILURE;
    }
    let mut failed = false;
    for file in files {
        match Capstone::read(Path::new(&file)) {
            Ok(report) => println!("{file}: {}, {}\n{}", report.machine, report.time, report.grade().text()),
            Err(error) => {
                eprintln!("{error}");
                failed = true;
            }
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}
