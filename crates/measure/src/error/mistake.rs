//! A mistake that a kernel made while it ran.

use std::fmt;

/// One mistake of a kernel, in the words of its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// What kind of mistake it is.
    pub kind: String,
    /// File and line, and the first block and thread that made it.
    pub place: String,
    /// Number and text of the source line, where they are known.
    pub line: Option<(u32, String)>,
    /// What happened there, each access of it.
    pub what: Vec<String>,
    /// What to do about it.
    pub fix: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind, self.place)?;
        if let Some((number, text)) = &self.line {
            write!(f, "\n{number:>5} | {text}")?;
        }
        self.what.iter().try_for_each(|what| write!(f, "\n      ^ {what}"))
    }
}

/// The message of [`Error::Mistakes`](super::Error::Mistakes).
pub(super) fn message(kernel: &str, shown: &[Mistake], more: usize) -> String {
    if let ([only], 0) = (shown, more) {
        return format!("`{kernel}` has a mistake\n{only}\nnext: {}", only.fix);
    }
    let mut text = format!("`{kernel}` has {} mistakes", shown.len() + more);
    for mistake in shown {
        text += &format!("\n{mistake}\n      mend: {}", mistake.fix);
    }
    if more > 0 {
        text += &format!("\nand {more} more");
    }
    text + "\nnext: mend the first one (others often follow from it) and run the cell again"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_mistake_ends_with_its_mend_and_several_with_the_first() {
        let mistake = Mistake {
            kind: "access out of bounds".to_string(),
            place: "kernel.cu:3, block (1, 0, 0), thread (5, 0, 0)".to_string(),
            line: Some((3, "    c[i] = a[i];".to_string())),
            what: vec!["reads 4 bytes past the end of `a`".to_string(), "writes 4 bytes".to_string()],
            fix: "guard the access".to_string(),
        };
        let one = message("k", std::slice::from_ref(&mistake), 0);
        assert!(
            one.contains("    3 |     c[i] = a[i];\n      ^ reads 4 bytes past the end of `a`\n      ^ writes")
                && one.ends_with("\nnext: guard the access")
        );
        let many = message("k", &[mistake.clone(), Mistake { line: None, ..mistake }], 4);
        assert!(
            many.starts_with("`k` has 6 mistakes\n") && many.contains("\nand 4 more\nnext: mend the first"),
            "{many}"
        );
        assert_eq!(many.matches("mend: guard the access").count(), 2);
    }
}
