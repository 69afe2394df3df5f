//! A kernel's source, with line numbers and colours.

use super::page::{frame, line};
use super::token::lines;
use gpulab::html::escape;
use std::fmt;

/// The source of one kernel. As the last expression of a cell it shows itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a listing shows itself as the last expression of a cell, without a semicolon"]
pub struct Listing {
    /// The file's name, such as `reduction/03_whole_warps.cu`.
    pub name: String,
    /// Its text.
    pub text: String,
    /// The constants that go into the compiler beside it, such as `TILE` and 32.
    pub constants: Vec<(String, String)>,
}

impl Listing {
    /// The listing as a piece of a page.
    pub fn html(&self) -> String {
        let lines = lines(&self.text);
        let digits = lines.len().to_string().len();
        let body: String = lines
            .iter()
            .zip(1..)
            .map(|(tokens, n)| {
                format!("<span class=\"l\"><span class=\"n\"> {n:>digits$}  </span>{}</span>", line(tokens, &[]))
            })
            .collect();
        let title = format!("<strong>{}</strong><small>{}</small>", escape(&self.name), escape(&self.with()));
        frame(&title, &body, digits + 3)
    }

    /// ` with TILE = 32`.
    fn with(&self) -> String {
        let constants: Vec<String> = self.constants.iter().map(|(name, value)| format!("{name} = {value}")).collect();
        if constants.is_empty() { String::new() } else { format!(" with {}", constants.join(", ")) }
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        gpulab::table::show(&self.to_string(), &self.html());
    }
}

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}{}", self.name, self.with())?;
        let digits = self.text.lines().count().to_string().len();
        self.text.lines().zip(1..).try_for_each(|(line, n)| writeln!(f, "{n:>digits$}  {line}"))
    }
}
