//! Text on a page: verdicts, findings.

/// What is right, or best: dark enough for white letters upon it.
pub const GOOD: &str = "#00785a";
/// What is wrong, likewise.
pub const BAD: &str = "#b34a00";

/// HTML of a word in white on a ground of this color, which is read on light and on dark pages alike: no color of letters has
/// enough contrast on both.
///
/// ```
/// use gpulab_measure::html::{GOOD, badge};
///
/// assert!(badge("PASS", GOOD).contains(">PASS</strong>"));
/// ```
pub fn badge(text: &str, ground: &str) -> String {
    let style = format!("background:{ground};color:#fff;padding:.05em .4em;border-radius:.25em");
    format!("<strong style=\"{style}\">{}</strong>", escape(text))
}

/// HTML of a text in which code stands between backticks.
pub fn marked(text: &str) -> String {
    let parts: Vec<String> = text.split('`').map(escape).collect();
    if parts.len().is_multiple_of(2) {
        return escape(text);
    }
    let tagged = parts.iter().enumerate();
    tagged.map(|(at, part)| if at % 2 == 1 { format!("<code>{part}</code>") } else { part.clone() }).collect()
}

/// HTML of plain text.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_between_backticks_is_set_as_code() {
        assert_eq!(marked("`a < b`, not `c`"), "<code>a &lt; b</code>, not <code>c</code>");
        assert_eq!(marked("no code & one ` alone"), "no code &amp; one ` alone");
    }
}
