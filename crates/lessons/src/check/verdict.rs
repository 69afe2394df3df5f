//! What a check says, also about code that panics.

use gpulab::error::Error;
use gpulab::html::{escape, marked};
use serde_json::json;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};

/// The outcome of one check. As the last expression of a cell it shows itself, with machine-readable metadata beside.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a verdict shows itself as the last expression of a cell, without a semicolon"]
pub struct Verdict {
    exercise: String,
    /// `None` when it passed; else what is wrong, and a hint.
    wrong: Option<(String, String)>,
}

/// Why an answer does not pass yet.
pub(super) enum NotYet {
    /// What the check saw, and a hint.
    Wrong(String, &'static str),
    /// The check, or the kernel that it launched, ended with this error.
    Error(Error),
}

impl From<Error> for NotYet {
    fn from(error: Error) -> NotYet {
        NotYet::Error(error)
    }
}

/// What the steps of a check return: `?` ends it at the first mistake.
pub(super) type Check<T = ()> = Result<T, NotYet>;

/// Ends a check: what it saw, and a hint.
pub(super) fn wrong<T>(what: impl Into<String>, hint: &'static str) -> Check<T> {
    Err(NotYet::Wrong(what.into(), hint))
}

/// Ends a check where something is wrong.
pub(super) fn none_wrong(what: Option<String>, hint: &'static str) -> Check {
    what.map_or(Ok(()), |what| wrong(what, hint))
}

/// The verdict on an exercise whose answer is Rust.
pub(super) fn verdict(exercise: &str, check: impl FnOnce() -> Check) -> Verdict {
    Verdict::of(exercise, check(), |_| "run the notebook from the top")
}

impl Verdict {
    /// `hint` is that for an error.
    pub(super) fn of(exercise: &str, outcome: Check, hint: impl FnOnce(&Error) -> &'static str) -> Verdict {
        let wrong = outcome.err().map(|not_yet| match not_yet {
            NotYet::Wrong(what, hint) => (what, hint.to_string()),
            NotYet::Error(error) => (error.to_string(), hint(&error).to_string()),
        });
        Verdict { exercise: exercise.to_string(), wrong }
    }

    /// True when the exercise is solved.
    pub fn passed(&self) -> bool {
        self.wrong.is_none()
    }

    /// `PASS` or `NOT YET`, what is wrong, and the hint.
    pub fn text(&self) -> String {
        match &self.wrong {
            None => format!("PASS: {}", self.exercise),
            Some((what, hint)) => format!("NOT YET: {}\n{what}\nhint: {hint}", self.exercise),
        }
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        let (verdict, what, hint) = match &self.wrong {
            None => ("PASS", "", ""),
            Some((what, hint)) => ("NOT YET", what.as_str(), hint.as_str()),
        };
        // Middle tones, legible on light and on dark pages.
        let color = if self.passed() { "#00946c" } else { "#d55e00" };
        let mut html = format!(
            "<div style=\"border-left:4px solid {color};padding:.2em .8em\"><strong style=\"color:{color}\">{verdict}\
             </strong> <code>{}</code>",
            escape(&self.exercise)
        );
        if !self.passed() {
            html += &format!("<br>{}<br><em>hint: {}</em>", paragraphs(what), marked(hint));
        }
        html += "</div>";
        let data = json!({"exercise": self.exercise, "verdict": verdict, "what": what, "hint": hint});
        print!(
            "EVCXR_BEGIN_CONTENT text/plain\n{}\nEVCXR_END_CONTENT\n\
             EVCXR_BEGIN_CONTENT text/html\n{html}\nEVCXR_END_CONTENT\n\
             EVCXR_BEGIN_CONTENT application/vnd.gpulab.verdict+json\n{data}\nEVCXR_END_CONTENT\n",
            self.text()
        );
    }
}

/// HTML of a text of one or more lines. Lines that are aligned with blanks, such as a compiler's code and caret, keep
/// their columns.
fn paragraphs(text: &str) -> String {
    let aligned = |line: &str| line.starts_with(' ') || line.contains("  ");
    let told: Vec<String> = text.lines().take_while(|line| !aligned(line)).map(marked).collect();
    let told = told.join("<br>");
    let columns: Vec<&str> = text.lines().skip_while(|line| !aligned(line)).collect();
    if columns.is_empty() {
        return told;
    }
    let font = "font-family:var(--jp-code-font-family,monospace);overflow-x:auto;margin:.3em 0";
    format!("{told}<pre style=\"{font}\">{}</pre>", escape(&columns.join("\n")))
}

/// What `work` returns, or the text of its panic. The panic prints nothing meanwhile.
pub(super) fn run<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    let hook = take_hook();
    // Its text goes into the verdict; on stderr it would look like a failure of the notebook.
    set_hook(Box::new(|_| {}));
    let outcome = catch_unwind(AssertUnwindSafe(work));
    set_hook(hook);
    outcome.map_err(|payload| {
        let text = payload.downcast_ref::<&str>().map(ToString::to_string);
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        format!("your code panicked: {}", text.as_deref().unwrap_or("without a message"))
    })
}

/// The hint for a panic.
pub(super) const PANIC_HINT: &str = "make it return instead of panicking, also for the odd cases; `todo!()` panics too";

/// [`run`], where a panic ends the check; `case` says what the answer was asked, or nothing.
pub(super) fn ask<T>(case: &str, work: impl FnOnce() -> T) -> Check<T> {
    let before = if case.is_empty() { String::new() } else { format!("{case}: ") };
    run(work).or_else(|panic| wrong(before + &panic, PANIC_HINT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_red_verdict_says_what_and_how_to_go_on() {
        let red = verdict("time it", || wrong("took 4 µs", "wait first"));
        assert!(!red.passed());
        assert_eq!(red.text(), "NOT YET: time it\ntook 4 µs\nhint: wait first");
        assert_eq!(verdict("time it", || Ok(())).text(), "PASS: time it");
    }

    #[test]
    fn code_and_caret_keep_their_columns() {
        assert_eq!(paragraphs("took `4 µs`\nagain"), "took <code>4 µs</code><br>again");
        let shown = paragraphs("does not compile\n  a < b\n    ^ here");
        assert!(shown.starts_with("does not compile<pre style=\"font-family:"), "{shown}");
        assert!(shown.contains("monospace") && shown.ends_with(">  a &lt; b\n    ^ here</pre>"), "{shown}");
    }
}
