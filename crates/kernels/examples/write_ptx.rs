//! Writes the PTX beside each of the course's kernels: `make ptx` calls it, with the pinned NVRTC.

use gpulab_kernels::ladder::{OPERATORS, RUNGS};
use gpulab::sim;

fn main() {
    let rungs = RUNGS.iter().map(|rung| (rung.source(), rung.ptx_file()));
    for (source, path) in rungs.chain(OPERATORS.iter().map(|operator| (operator.source(), operator.ptx_file()))) {
        let written = source.and_then(|source| sim::compile(&source)).map(|ptx| std::fs::write(&path, ptx));
        match written {
            Ok(Ok(())) => println!("{}", path.display()),
            Ok(Err(error)) => {
                stop(&format!("cannot write {}: {error}\nnext: see that the folder is writable", path.display()))
            }
            Err(error) => stop(&error.to_string()),
        }
    }
}

fn stop(text: &str) -> ! {
    eprintln!("{text}");
    std::process::exit(1)
}
