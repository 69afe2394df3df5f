//! `warpsim FILE.ptx`: what the simulator makes of each kernel.

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [path] = args.as_slice() else {
        eprintln!("usage: warpsim FILE.ptx\nnext: name one PTX file, as NVRTC prints it");
        return ExitCode::from(2);
    };
    match look(path) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("warpsim: {message}");
            ExitCode::from(2)
        }
    }
}

/// Prints the kernels of a file; true if all can run.
fn look(path: &str) -> Result<bool, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}\nnext: check the path"))?;
    let survey = warpsim::survey(&text).map_err(|e| e.to_string())?;
    for kernel in &survey.kernels {
        let order = if kernel.ordered { ", blocks in order" } else { "" };
        println!(
            "{}: {} parameters, {} instructions, {} bytes shared, {} bytes local{order}",
            kernel.name,
            kernel.parameters.len(),
            kernel.instructions,
            kernel.shared_bytes,
            kernel.local_bytes
        );
    }
    for (name, errors) in &survey.refused {
        println!("{name}: cannot run");
        for error in errors {
            println!("  {}", error.to_string().replace('\n', "\n  "));
        }
    }
    Ok(survey.refused.is_empty())
}
