//! CUDA C as text: what is a comment, what is a literal, where its words stand.

/// A word of a source: what stands between spaces and comments. A literal is never cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Word<'a> {
    /// The source line, counted from 1.
    pub line: usize,
    /// Its first byte in that line, counted from 1.
    pub column: usize,
    pub text: &'a str,
}

/// The source with each comment blanked out: everything else keeps its line and its column.
pub(crate) fn without_comments(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut before = ' ';
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let comment = comment(rest);
        let length = comment.or_else(|| literal(rest, before)).unwrap_or(first.len_utf8());
        let (piece, after) = rest.split_at(length);
        match comment {
            Some(_) => text.extend(piece.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' })),
            None => text.push_str(piece),
        }
        (before, rest) = (piece.chars().next_back().unwrap_or(first), after);
    }
    text
}

/// The words of a source that has no comments any more.
pub(crate) fn words(code: &str) -> Vec<Word<'_>> {
    let mut found = Vec::new();
    for (number, line) in code.lines().enumerate() {
        let (mut at, mut before) = (0, ' ');
        while let Some(gap) = line[at..].find(|c: char| !c.is_whitespace()) {
            let start = at + gap;
            at = start;
            while let Some(c) = line[at..].chars().next().filter(|c| !c.is_whitespace()) {
                at += literal(&line[at..], before).unwrap_or(c.len_utf8());
                before = c;
            }
            found.push(Word { line: number + 1, column: start + 1, text: &line[start..at] });
            before = ' ';
        }
    }
    found
}

/// The length of the comment that `text` begins with. Its line's end belongs to none, unless a backslash joins the next.
fn comment(text: &str) -> Option<usize> {
    if let Some(inside) = text.strip_prefix("/*") {
        return Some(inside.find("*/").map_or(text.len(), |at| at + 4));
    }
    let ends = text.starts_with("//").then(|| text.match_indices('\n').map(|(at, _)| at))?;
    Some(ends.into_iter().find(|&at| !text[..at].trim_end_matches('\r').ends_with('\\')).unwrap_or(text.len()))
}

/// The length of the literal that `text` begins with, `"…"` or `'…'`; it ends with its line at the latest.
fn literal(text: &str, before: char) -> Option<usize> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    // `1'000'000` is a number.
    if quote == '\'' && before.is_alphanumeric() {
        return None;
    }
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            '\n' => return Some(at),
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_everything_else_stays_where_it_is() {
        for (source, expected) in [
            ("a // b\nc", "a     \nc"),
            ("a /* é\n */ b", "a      \n    b"),
            ("a // b \\\n c\nd", "a       \n  \nd"),
            (r#"f("// no", '"'); // yes"#, r#"f("// no", '"');       "#),
            ("int n = 1'000; // '", "int n = 1'000;     "),
            ("\"open // \nint a; // b", "\"open // \nint a;     "),
            ("a /* never ends", "a              "),
        ] {
            assert_eq!(without_comments(source), expected, "{source:?}");
        }
    }

    #[test]
    fn words_know_their_place_and_literals_are_whole() {
        let word = |line, column, text| Word { line, column, text };
        let code = "int  a;\n\n  printf(\"a  b\\\" c\", 'x');";
        let expected = [word(1, 1, "int"), word(1, 6, "a;"), word(3, 3, r#"printf("a  b\" c","#), word(3, 22, "'x');")];
        assert_eq!(words(code), expected);
        assert_eq!(words(" \n\t\n"), []);
    }
}
