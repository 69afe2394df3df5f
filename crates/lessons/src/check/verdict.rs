//! What a check says, also about code that panics or does not come back, and its hints, one after the other.

use gpulab::error::Error;
use gpulab::html::{BAD, GOOD, badge, escape, marked};
use serde_json::json;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, Once};
use std::time::Duration;

/// The outcome of one check. As the last expression of a cell it shows itself, with machine-readable metadata beside:
/// what is wrong, and where. [`Verdict::hint`] says more when asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a verdict shows itself as the last expression of a cell, without a semicolon"]
pub struct Verdict {
    exercise: String,
    /// `None` when it passed.
    wrong: Option<Told>,
}

/// What is wrong, and the hints.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    what: String,
    /// What the symptom means.
    meaning: String,
    /// How to go on, for those who ask twice.
    idea: Option<String>,
}

/// A hint of a [`Verdict`]; as the last expression of a cell it shows itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a hint shows itself as the last expression of a cell, without a semicolon"]
pub struct Hint {
    text: String,
    next: Option<String>,
}

impl Hint {
    /// The next hint, nearer to the solution; the last one stays.
    pub fn hint(self) -> Hint {
        match self.next {
            Some(text) => Hint { text, next: None },
            None => self,
        }
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        let more = match self.next {
            Some(_) => "one more, nearer to the solution: `.hint().hint()`",
            None => "that is the last hint",
        };
        let html = format!("<em>hint: {}</em><br><small>{}</small>", marked(&self.text), marked(more));
        print!(
            "EVCXR_BEGIN_CONTENT text/plain\nhint: {}\n({more})\nEVCXR_END_CONTENT\n\
             EVCXR_BEGIN_CONTENT text/html\n{html}\nEVCXR_END_CONTENT\n",
            self.text
        );
    }
}

/// Why an answer does not pass yet.
pub(super) enum NotYet {
    /// What the check saw, and a hint.
    Wrong(String, &'static str),
    /// What the check saw, what that means, and how to go on.
    Told(String, &'static str, &'static str),
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

/// Ends a check: what it saw and where; what that means, for who asks; and the idea, for who asks again.
pub(super) fn told<T>(what: impl Into<String>, meaning: &'static str, idea: &'static str) -> Check<T> {
    Err(NotYet::Told(what.into(), meaning, idea))
}

/// Ends a check where something is wrong, as [`told`] does.
pub(super) fn none_told(what: Option<String>, meaning: &'static str, idea: &'static str) -> Check {
    what.map_or(Ok(()), |what| told(what, meaning, idea))
}

/// The verdict on an exercise whose answer is Rust, also where it panics. [`timed`] also ends an answer that does not come back.
pub(super) fn verdict(exercise: &str, check: impl FnOnce() -> Check) -> Verdict {
    Verdict::of(exercise, ask("", check).and_then(|checked| checked), |_| "run the notebook from the top")
}

/// What an answer in Rust may take.
const LIMIT: Duration = Duration::from_secs(10);

thread_local! {
    /// Whether panics of this thread print nothing.
    static QUIET: Cell<bool> = const { Cell::new(false) };
    /// What the answer was asked last, for who waits for it.
    static ASKED: RefCell<Option<Arc<Mutex<String>>>> = const { RefCell::new(None) };
}

/// [`verdict`] under a time limit: an answer that has not come back by then is told so, with what it was asked. It runs on a
/// thread of its own, which nobody can end from outside.
pub(super) fn timed(exercise: &str, check: impl FnOnce() -> Check + Send + 'static) -> Verdict {
    timed_for(exercise, LIMIT, check)
}

fn timed_for(exercise: &str, limit: Duration, check: impl FnOnce() -> Check + Send + 'static) -> Verdict {
    let outcome = within_limit(limit, move || ask("", check).and_then(|checked| checked));
    Verdict::of(exercise, outcome, |_| "run the notebook from the top")
}

/// [`ask`] under a time limit, for an answer that stands beside a kernel: a launch's shape from the problem's size.
pub(super) fn ask_timed<T: Send + 'static>(case: &str, work: impl FnOnce() -> T + Send + 'static) -> Check<T> {
    let case = case.to_string();
    within_limit(LIMIT, move || ask(&case, work))
}

/// What `work` comes to, on a thread of its own, or that it has not come back.
fn within_limit<T: Send + 'static>(limit: Duration, work: impl FnOnce() -> Check<T> + Send + 'static) -> Check<T> {
    let asked = Arc::new(Mutex::new(String::new()));
    let (note, (done, outcome)) = (Arc::clone(&asked), channel());
    let work = move || {
        ASKED.set(Some(note));
        // Nobody listens any more when it comes too late.
        let _ = done.send(work());
    };
    // As much stack as the main thread has.
    let worker = std::thread::Builder::new().name("answer".to_string()).stack_size(8 << 20).spawn(work);
    match worker.map(|_| outcome.recv_timeout(limit)) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(_)) => {
            let case = asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone();
            let case = if case.is_empty() { case } else { format!("{case}: ") };
            let what = format!(
                "{case}your code has not come back after {} s. It goes on, until the kernel is restarted",
                limit.as_secs_f64()
            );
            told(
                what,
                "a loop in your code has no end: what it waits for does not come",
                "look at the condition of each loop: which line of its body brings it nearer to its end?",
            )
        }
        Err(error) => wrong(format!("no thread for your code: {error}"), "run the cell again"),
    }
}

impl Verdict {
    /// `hint` is that for an error.
    pub(super) fn of(exercise: &str, outcome: Check, hint: impl FnOnce(&Error) -> &'static str) -> Verdict {
        Verdict::of_kernel(exercise, outcome, |error| (error.to_string(), None, hint(error)))
    }

    /// `explain` gives an error's words, what they mean where that is known, and the idea.
    pub(super) fn of_kernel(
        exercise: &str,
        outcome: Check,
        explain: impl FnOnce(&Error) -> (String, Option<&'static str>, &'static str),
    ) -> Verdict {
        let wrong = outcome.err().map(|not_yet| match not_yet {
            NotYet::Wrong(what, hint) => Told { what, meaning: hint.to_string(), idea: None },
            NotYet::Told(what, meaning, idea) => {
                Told { what, meaning: meaning.to_string(), idea: Some(idea.to_string()) }
            }
            NotYet::Error(error) => match explain(&error) {
                (what, Some(meaning), idea) => {
                    Told { what, meaning: meaning.to_string(), idea: Some(idea.to_string()) }
                }
                (what, None, hint) => Told { what, meaning: hint.to_string(), idea: None },
            },
        });
        Verdict { exercise: exercise.to_string(), wrong }
    }

    /// True when the exercise is solved.
    pub fn passed(&self) -> bool {
        self.wrong.is_none()
    }

    /// The hidden source, once the diagnosis is right.
    pub(super) fn reveals<'a>(&self, source: &'a str) -> &'a str {
        if self.passed() { source } else { "The source shows itself when the diagnosis is right." }
    }

    /// What the mistake means: write it behind the check, `check::axpy(AXPY).hint()`. Behind a hint it gives the next one,
    /// nearer to the solution.
    pub fn hint(self) -> Hint {
        match self.wrong {
            None => Hint { text: format!("{} is solved", self.exercise), next: None },
            Some(told) => Hint { text: told.meaning, next: told.idea },
        }
    }

    /// `PASS` or `NOT YET`, what is wrong, and all hints. [`Verdict::shown`] is what a cell shows.
    pub fn text(&self) -> String {
        match &self.wrong {
            None => self.shown(),
            Some(Told { what, meaning, idea }) => {
                let idea = idea.as_ref().map_or(String::new(), |idea| format!("\nhint: {idea}"));
                format!("NOT YET: {}\n{what}\nhint: {meaning}{idea}", self.exercise)
            }
        }
    }

    /// `PASS` or `NOT YET`, and what is wrong.
    pub fn shown(&self) -> String {
        match &self.wrong {
            None => format!("PASS: {}", self.exercise),
            Some(told) => format!("NOT YET: {}\n{}\n{MORE}", self.exercise, told.what),
        }
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        let none = Told { what: String::new(), meaning: String::new(), idea: None };
        let Told { what, meaning, .. } = self.wrong.as_ref().unwrap_or(&none);
        let verdict = if self.passed() { "PASS" } else { "NOT YET" };
        let color = if self.passed() { GOOD } else { BAD };
        let mut html = format!(
            "<div style=\"border-left:4px solid {color};padding:.2em .8em\">{} <code>{}</code>",
            badge(verdict, color),
            escape(&self.exercise)
        );
        if !self.passed() {
            html += &format!("<br>{}<br><small>{}</small>", paragraphs(what), marked(MORE));
        }
        html += "</div>";
        let data = json!({"exercise": self.exercise, "verdict": verdict, "what": what, "hint": meaning});
        print!(
            "EVCXR_BEGIN_CONTENT text/plain\n{}\nEVCXR_END_CONTENT\n\
             EVCXR_BEGIN_CONTENT text/html\n{html}\nEVCXR_END_CONTENT\n\
             EVCXR_BEGIN_CONTENT application/vnd.gpulab.verdict+json\n{data}\nEVCXR_END_CONTENT\n",
            self.shown()
        );
    }
}

/// Below what is wrong.
const MORE: &str = "stuck? `.hint()` behind the check says what this means, `.hint().hint()` how to go on";

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
    // Long lines scroll, by keys too.
    let keys = "tabindex=\"0\" role=\"group\" aria-label=\"lines of the message\"";
    format!("{told}<pre style=\"{font}\" {keys}>{}</pre>", escape(&columns.join("\n")))
}

/// What `work` returns, or the text of its panic. The panic prints nothing meanwhile.
pub(super) fn run<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    // Its text goes into the verdict; on stderr it would look like a failure of the notebook. The hook asks the thread that
    // panics: one that waits for others, or never comes back, changes nothing for them.
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        let before = take_hook();
        set_hook(Box::new(move |info| {
            if !QUIET.get() {
                before(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let outcome = catch_unwind(AssertUnwindSafe(work));
    QUIET.set(before);
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
    asking(case);
    let before = if case.is_empty() { String::new() } else { format!("{case}: ") };
    run(work).or_else(|panic| wrong(before + &panic, PANIC_HINT))
}

/// Notes what the answer is asked now, for [`timed`].
pub(super) fn asking(case: &str) {
    ASKED.with_borrow(|asked| {
        if let Some(asked) = asked {
            *asked.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = case.to_string();
        }
    });
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
    fn hints_come_one_after_the_other() {
        let red = verdict("time it", || told("took 4 µs", "that is the launch alone", "wait first"));
        assert!(red.shown().starts_with("NOT YET: time it\ntook 4 µs\n"), "{}", red.shown());
        assert!(!red.shown().contains("launch") && !red.shown().contains("wait"), "{}", red.shown());
        assert_eq!(red.clone().hint().text(), "that is the launch alone");
        assert_eq!(red.clone().hint().hint().text(), "wait first");
        assert_eq!(red.hint().hint().hint().text(), "wait first");
        assert_eq!(verdict("time it", || wrong("a", "b")).hint().hint().text(), "b");
        assert_eq!(verdict("time it", || Ok(())).hint().text(), "time it is solved");
    }

    #[test]
    fn what_does_not_come_back_gets_a_verdict() {
        let endless = || -> Check {
            ask("for 3 sizes", || {
                loop {
                    std::thread::sleep(Duration::from_millis(5));
                }
            })
        };
        let late = timed_for("time it", Duration::from_millis(300), endless).text();
        assert!(late.contains("for 3 sizes: your code has not come back after 0.3 s"), "{late}");
        // Panics of others are heard all the same, and caught here.
        assert!(timed("time it", || ask("", || panic!("at {}", 7))).text().contains("your code panicked: at 7"));
        assert!(timed("time it", || panic!("outside")).text().contains("your code panicked: outside"));
        assert!(timed("time it", || Ok(())).passed());
        assert!(verdict("time it", || panic!("no {}", "answer")).text().contains("your code panicked: no answer"));
    }

    /// A check that calls the reader's function must end where that function does not.
    #[test]
    fn every_answer_in_rust_has_a_time_limit() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/check");
        let (mut texts, mut folders) = (Vec::new(), vec![folder]);
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|extension| extension == "rs") {
                    texts.push(std::fs::read_to_string(path).unwrap());
                }
            }
        }
        let lines = || texts.iter().flat_map(|text| text.lines());
        let is_function = |line: &&str| line.contains(" = fn(");
        let aliases: Vec<String> = (lines().filter(is_function))
            .filter_map(|line| Some(format!(": {}", line.strip_prefix("pub type ")?.split_once(" =")?.0)))
            .collect();
        let (mut signature, mut judged, mut unlimited) = ("", 0, Vec::new());
        for line in lines() {
            if line.starts_with("pub fn ") {
                signature = line;
            }
            let calls = signature.contains(": fn(") || aliases.iter().any(|alias| signature.contains(alias));
            if calls && line.starts_with("    timed(\"") {
                judged += 1;
            }
            if calls && line.starts_with("    verdict(\"") {
                unlimited.push(signature);
            }
        }
        assert!(judged > 20, "{judged} checks of functions were found");
        assert!(unlimited.is_empty(), "`timed` in place of `verdict`: {unlimited:#?}");
    }

    #[test]
    fn code_and_caret_keep_their_columns() {
        assert_eq!(paragraphs("took `4 µs`\nagain"), "took <code>4 µs</code><br>again");
        let shown = paragraphs("does not compile\n  a < b\n    ^ here");
        assert!(shown.starts_with("does not compile<pre style=\"font-family:"), "{shown}");
        assert!(shown.contains("monospace") && shown.contains(" tabindex=\"0\" "), "{shown}");
        assert!(shown.ends_with(">  a &lt; b\n    ^ here</pre>"), "{shown}");
    }
}
