//! `warpsim`: see [`warpsim::cli`].

use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    ExitCode::from(warpsim::cli::main(&args, &mut std::io::stdout(), &mut std::io::stderr()))
}
