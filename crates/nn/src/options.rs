//! What stands behind a command: `--name value`, `--flag`, and words.

use gpulab::error::{Error, Result};
use std::collections::BTreeMap;
use std::str::FromStr;

/// A command's options, each taken out once; what is left over nobody knows.
#[derive(Debug)]
pub struct Options {
    values: BTreeMap<String, String>,
    /// What is no option, in order.
    pub words: Vec<String>,
    usage: &'static str,
}

impl Options {
    /// Sorts arguments. `flags` are the options without a value; `usage` is shown with each error.
    ///
    /// # Errors
    /// [`Error::Invalid`] when an option has no value, or comes twice.
    pub fn new(arguments: &[&str], flags: &[&str], usage: &'static str) -> Result<Options> {
        let mut options = Options { values: BTreeMap::new(), words: Vec::new(), usage };
        let mut rest = arguments.iter();
        while let Some(argument) = rest.next() {
            let Some(name) = argument.strip_prefix("--") else {
                options.words.push((*argument).to_string());
                continue;
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None if flags.contains(&name) => (name, Some("yes")),
                None => (name, rest.next().copied()),
            };
            let value = value.ok_or_else(|| options.wrong(format!("`--{name}` has no value")))?;
            if options.values.insert(name.to_string(), value.to_string()).is_some() {
                return Err(options.wrong(format!("`--{name}` is given twice")));
            }
        }
        Ok(options)
    }

    /// The option's value, or `usual`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is of another kind.
    pub fn get<T: FromStr>(&mut self, name: &str, usual: T) -> Result<T> {
        match self.values.remove(name) {
            None => Ok(usual),
            Some(value) => value.parse().map_err(|_| self.wrong(format!("`--{name} {value}` makes no sense"))),
        }
    }

    /// Whether the flag stands there.
    pub fn flag(&mut self, name: &str) -> bool {
        self.values.remove(name).is_some()
    }

    /// An error when an option is left that nobody took out.
    ///
    /// # Errors
    /// [`Error::Invalid`] names it.
    pub fn done(&self) -> Result<()> {
        match self.values.keys().next() {
            None => Ok(()),
            Some(name) => Err(self.wrong(format!("there is no option `--{name}`"))),
        }
    }

    /// An error that shows how the command is used.
    pub fn wrong(&self, what: String) -> Error {
        Error::Invalid { what, fix: format!("use it so:\n{}", self.usage) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_flags_and_words_are_told_apart() {
        let mut options =
            Options::new(&["--steps", "5", "--resume", "a b", "--rate=0.5"], &["resume"], "usage").unwrap();
        assert_eq!(options.get("steps", 1).unwrap(), 5);
        assert_eq!(options.get("rate", 1.0).unwrap(), 0.5);
        assert_eq!(options.get("batch-size", 12).unwrap(), 12);
        assert!(options.flag("resume") && !options.flag("greedy") && options.words == ["a b"]);
        options.done().unwrap();
    }

    #[test]
    fn what_makes_no_sense_is_named_with_the_usage() {
        let wrong = |arguments: &[&str]| -> Result<()> {
            let mut options = Options::new(arguments, &["resume"], "gpulab x --steps N")?;
            options.get("steps", 1u64)?;
            options.done()
        };
        for (arguments, part) in [
            (&["--steps"][..], "`--steps` has no value"),
            (&["--steps", "many"], "`--steps many`"),
            (&["--steps", "1", "--steps", "2"], "twice"),
            (&["--stps", "1"], "no option `--stps`"),
        ] {
            let text = wrong(arguments).unwrap_err().to_string();
            assert!(text.contains(part) && text.contains("next: use it so:\ngpulab x --steps N"), "{text}");
        }
    }
}
