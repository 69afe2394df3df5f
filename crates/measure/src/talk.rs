//! How a recorder (`examples/record_*`) talks with the process that started it (`env/baselines/record_*.py`), which times a peer
//! alternately with it: a line to stdout, and one from stdin. What the lines say stands in each recorder's `partner.rs`.

use crate::{Error, Result};
use std::io::{BufRead, Write};

/// Writes a line, and waits for one.
pub fn ask(line: &str) -> Result<String> {
    let mut answer = String::new();
    let mut out = std::io::stdout();
    let told = writeln!(out, "{line}").and_then(|()| out.flush());
    match told.and_then(|()| std::io::stdin().lock().read_line(&mut answer)) {
        Ok(1..) => Ok(answer),
        _ => Err(unexpected("nothing: it has ended")),
    }
}

/// What was sent in place of what was asked for.
pub fn unexpected(answer: &str) -> Error {
    Error::Invalid {
        what: format!("the other process answered {answer}"),
        fix: "look at what it printed; without `--talk` this one runs alone".to_string(),
    }
}
