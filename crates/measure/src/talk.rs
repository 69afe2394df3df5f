//! How a recorder (`examples/record_*`) talks with the process that started it (`env/baselines/record_*.py`), which times a peer
//! alternately with it: a line to stdout, and one from stdin. What the lines say stands in each recorder's `partner.rs`.

use crate::{Error, Result};
use std::io::{BufRead, Write};
use std::str::FromStr;

/// Writes a line, and waits for one: a number, or JSON.
pub fn ask<T: FromStr>(line: &str) -> Result<T> {
    let mut answer = String::new();
    let mut out = std::io::stdout();
    let told = writeln!(out, "{line}").and_then(|()| out.flush());
    match told.and_then(|()| std::io::stdin().lock().read_line(&mut answer)) {
        Ok(1..) => answer.trim().parse().map_err(|_| unexpected(&answer)),
        _ => Err(unexpected("nothing: it has ended")),
    }
}

/// What was sent in place of what was asked for.
pub fn unexpected(answer: &str) -> Error {
    Error::invalid(
        format!("the other process answered {answer}"),
        "look at what it printed; without `--talk` this one runs alone",
    )
}
