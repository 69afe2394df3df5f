//! What a check says, also about code that panics.

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

impl Verdict {
    pub(super) fn pass(exercise: &str) -> Verdict {
        Verdict { exercise: exercise.to_string(), wrong: None }
    }

    pub(super) fn not_yet(exercise: &str, what: impl Into<String>, hint: &str) -> Verdict {
        Verdict { exercise: exercise.to_string(), wrong: Some((what.into(), hint.to_string())) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_red_verdict_says_what_and_how_to_go_on() {
        let verdict = Verdict::not_yet("time it", "took 4 µs", "wait first");
        assert!(!verdict.passed());
        assert_eq!(verdict.text(), "NOT YET: time it\ntook 4 µs\nhint: wait first");
        assert_eq!(Verdict::pass("time it").text(), "PASS: time it");
    }

    #[test]
    fn code_and_caret_keep_their_columns() {
        assert_eq!(paragraphs("took `4 µs`\nagain"), "took <code>4 µs</code><br>again");
        let shown = paragraphs("does not compile\n  a < b\n    ^ here");
        assert!(shown.starts_with("does not compile<pre style=\"font-family:"), "{shown}");
        assert!(shown.contains("monospace") && shown.ends_with(">  a &lt; b\n    ^ here</pre>"), "{shown}");
    }
}
