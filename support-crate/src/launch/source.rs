//! A kernel's source text and the constants that go in with it.

use crate::error::{Error, Result};
use std::path::{Path, PathBuf};

/// How many complaints an excerpt shows: later errors often follow from the first.
const EXCERPT: usize = 5;

/// CUDA C (or Metal) source, from a string or a file, with `#define`d constants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// What the compiler calls the file in its messages.
    pub name: String,
    /// The text.
    pub text: String,
    /// `-DNAME=VALUE`, in order.
    pub defines: Vec<(String, String)>,
    /// The folder that the file lies in: headers beside it may be included.
    pub folder: Option<PathBuf>,
}

impl Source {
    /// Source written in the notebook.
    pub fn text(text: &str) -> Source {
        Source { name: "kernel.cu".to_string(), text: text.to_string(), defines: Vec::new(), folder: None }
    }

    /// Source in a file.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read.
    pub fn file(path: impl AsRef<Path>) -> Result<Source> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|error| Error::File {
            path: path.to_path_buf(),
            during: "read the kernel".to_string(),
            text: error.to_string(),
            fix: match error.kind() {
                std::io::ErrorKind::InvalidData => {
                    "save the file as plain text (UTF-8) and run the cell again".to_string()
                }
                _ => format!(
                    "check the path; the course's own kernels lie in {}",
                    gpulab_measure::repository().join("crates/kernels").display()
                ),
            },
        })?;
        let name = path.file_name().map_or_else(|| "kernel.cu".into(), |name| name.to_string_lossy().into_owned());
        Ok(Source { name, text, defines: Vec::new(), folder: path.parent().map(Path::to_path_buf) })
    }

    /// The lines that a compiler complains about, each with its complaint. Lines count from 1; others are passed over.
    pub(crate) fn excerpt<'a>(&self, complaints: impl Iterator<Item = (usize, &'a str)>) -> String {
        let lines: Vec<&str> = self.text.lines().collect();
        let at = |(number, complaint): (usize, &str)| {
            let line = lines.get(number.checked_sub(1)?)?;
            Some(format!("{number:>5} | {line}\n      ^ {complaint}\n"))
        };
        let all: Vec<String> = complaints.filter_map(at).collect();
        let mut text = all[..all.len().min(EXCERPT)].concat();
        if all.len() > EXCERPT {
            text += &format!("  … and {} more\n", all.len() - EXCERPT);
        }
        text
    }

    /// The same source with `NAME` defined as `value`, as `-DNAME=value` does.
    pub fn define(mut self, name: &str, value: impl ToString) -> Source {
        self.defines.push((name.to_string(), value.to_string()));
        self
    }
}

impl From<&str> for Source {
    fn from(text: &str) -> Source {
        Source::text(text)
    }
}

impl From<&String> for Source {
    fn from(text: &String) -> Source {
        Source::text(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_says_where_the_kernels_are() {
        let message = Source::file("no/such.cu").unwrap_err().to_string();
        assert!(message.contains("no/such.cu") && message.contains("kernels"), "{message}");
    }
}
