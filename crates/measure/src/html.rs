//! Text on a page: verdicts, findings.

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
