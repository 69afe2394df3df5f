//! Source code on a page: a kernel as a listing, and what changed between two kernels.
//!
//! Plain data: text comes in, and what shows itself goes out. `Ladder::source` and `Ladder::diff` give these.

use gpulab::html::{escape, marked};
use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};
use std::fmt;
use std::ops::Range;

#[cfg(test)]
mod tests;

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

/// Two kernels compared line by line: unified, with line numbers and a few lines around each change. As the last
/// expression of a cell it shows itself.
///
/// The three lines that each kernel of the course begins with are no code: they stand above the comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a comparison shows itself as the last expression of a cell, without a semicolon"]
pub struct Diff {
    /// The kernel before.
    pub before: Listing,
    /// The kernel after.
    pub after: Listing,
}

impl Diff {
    /// Lines that came and lines that went, the heading apart. A line that is only indented anew is neither.
    pub fn changed(&self) -> (usize, usize) {
        let rows = self.rows();
        let count = |which: fn(&Row) -> bool| rows.iter().filter(|row| which(row)).count();
        (count(|row| matches!(row, Row::Added { .. })), count(|row| matches!(row, Row::Removed { .. })))
    }

    fn rows(&self) -> Vec<Row> {
        let skip = if headed(&self.before.text) && headed(&self.after.text) { HEAD.len() } else { 0 };
        rows(&lines(&self.before.text), &lines(&self.after.text), skip)
    }

    fn title(&self) -> String {
        let (added, removed) = self.changed();
        let moved = self.rows().into_iter().map(|row| match row {
            Row::Gap(_, moved) => moved,
            Row::Same { moved, .. } => usize::from(moved),
            _ => 0,
        });
        let moved: usize = moved.sum();
        let moved = if moved == 0 { String::new() } else { format!(", {moved} with another indent (>)") };
        format!("{} → {}: {added} lines added, {removed} removed{moved}", self.before.name, self.after.name)
    }

    /// The new kernel's idea, what it changes, and the constants where they are not the old ones.
    fn notes(&self) -> Vec<(&'static str, String)> {
        let mut notes: Vec<(&str, String)> = Vec::new();
        if headed(&self.after.text) {
            let said = |what: &str| header(&self.after.text, what).to_string();
            notes.extend([("idea", said("idea")), ("changed", said("changed"))]);
        }
        let constants = self.constants();
        if !constants.is_empty() {
            notes.push(("constants", constants));
        }
        notes
    }

    /// `TILE = 32 (16 before), STAGES = 4 (new), ROWS (gone)`; empty where all are the old ones.
    fn constants(&self) -> String {
        let (old, new) = (&self.before.constants, &self.after.constants);
        let value = |of: &[(String, String)], name: &str| of.iter().find(|own| own.0 == name).map(|own| own.1.clone());
        let came = new.iter().filter_map(|(name, now)| match value(old, name) {
            Some(before) if before == *now => None,
            Some(before) => Some(format!("{name} = {now} ({before} before)")),
            None => Some(format!("{name} = {now} (new)")),
        });
        let gone = old.iter().filter(|(name, _)| value(new, name).is_none()).map(|(name, _)| format!("{name} (gone)"));
        came.chain(gone).collect::<Vec<String>>().join(", ")
    }

    /// The comparison as a piece of a page.
    pub fn html(&self) -> String {
        let (before, after) = (lines(&self.before.text), lines(&self.after.text));
        let digits = before.len().max(after.len()).to_string().len();
        let row = |class: &str, old: Option<usize>, sign: char, new: Option<usize>, code: String| {
            let number = |n: Option<usize>| format!("{:>digits$}", n.map_or(String::new(), |n| n.to_string()));
            format!(
                "<span class=\"l{class}\"><span class=\"n\"> {} {} {} </span>{code}</span>",
                number(old),
                number(new),
                escape(&sign.to_string())
            )
        };
        let rows = self.rows();
        let body: String = rows
            .iter()
            .map(|it| match it {
                Row::Gap(count, moved) => format!("<span class=\"l gap\"> {}</span>", gap(*count, *moved)),
                Row::Same { before: old, after: new, moved } => {
                    row("", Some(*old), if *moved { '>' } else { ' ' }, Some(*new), line(&after[new - 1], &[]))
                }
                Row::Removed { before: old, marked } => {
                    row(" del", Some(*old), '−', None, line(&before[old - 1], marked))
                }
                Row::Added { after: new, marked } => row(" add", None, '+', Some(*new), line(&after[new - 1], marked)),
            })
            .collect();
        let notes: String =
            self.notes().iter().map(|(what, text)| format!("<br><em>{what}:</em> {}", marked(text))).collect();
        frame(&format!("<strong>{}</strong>{notes}", escape(&self.title())), &body, 2 * digits + 5)
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        gpulab::table::show(&self.to_string(), &self.html());
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.title())?;
        self.notes().iter().try_for_each(|(what, text)| writeln!(f, "{what}: {text}"))?;
        let (old, new): (Vec<&str>, Vec<&str>) =
            (self.before.text.lines().collect(), self.after.text.lines().collect());
        let digits = old.len().max(new.len()).to_string().len();
        for row in self.rows() {
            match row {
                Row::Gap(count, moved) => writeln!(f, "{}", gap(count, moved))?,
                Row::Same { before, after, moved } => {
                    let sign = if moved { '>' } else { ' ' };
                    writeln!(f, "{before:>digits$} {after:>digits$} {sign} {}", new[after - 1])?;
                }
                Row::Removed { before, .. } => writeln!(f, "{before:>digits$} {:digits$} - {}", "", old[before - 1])?,
                Row::Added { after, .. } => writeln!(f, "{:digits$} {after:>digits$} + {}", "", new[after - 1])?,
            }
        }
        Ok(())
    }
}

fn gap(lines: usize, moved: usize) -> String {
    let plural = if lines == 1 { "" } else { "s" };
    match moved {
        0 => format!("… {lines} unchanged line{plural}"),
        moved if moved == lines => format!("… {lines} unchanged line{plural}, all with another indent"),
        _ => format!("… {lines} unchanged line{plural}, {moved} of them with another indent"),
    }
}

/// How the lines begin that head each kernel of the course.
const HEAD: [&str; 3] = ["// idea:", "// changed:", "// constants:"];

fn headed(text: &str) -> bool {
    let mut lines = text.lines();
    HEAD.iter().all(|head| lines.next().is_some_and(|line| line.starts_with(head)))
}

/// What a kernel's heading says about `what`, such as `idea`; empty where it says nothing.
pub(crate) fn header<'a>(text: &'a str, what: &str) -> &'a str {
    let said = |line: &'a str| line.strip_prefix("// ")?.strip_prefix(what)?.strip_prefix(':');
    text.lines().take(HEAD.len()).find_map(said).map_or("", str::trim)
}

/// Unchanged lines that are shown around a change.
const AROUND: usize = 3;
/// Below this share of equal words two groups of lines are different code, and no words are marked.
const ALIKE: f64 = 0.4;

/// A line of the comparison, or a gap of lines that did not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Row {
    /// So many lines left out, and how many of them moved further in or out.
    Gap(usize, usize),
    /// In both texts, perhaps further in or out; numbers count from 1.
    Same { before: usize, after: usize, moved: bool },
    /// In the text before alone; which tokens are gone.
    Removed { before: usize, marked: Vec<bool> },
    /// In the text after alone; which tokens are new.
    Added { after: usize, marked: Vec<bool> },
}

/// Compares two texts, cut into tokens line by line, from line `from` on (counted from 0).
pub(super) fn rows(before: &[Vec<Token<'_>>], after: &[Vec<Token<'_>>], from: usize) -> Vec<Row> {
    let (from_before, from_after) = (from.min(before.len()), from.min(after.len()));
    let (old, new) = (&before[from_before..], &after[from_after..]);
    // A loop around old lines moves them in: that is no new code.
    let (old_code, new_code) = (code(old), code(new));
    let ops = capture_diff_slices(Algorithm::Patience, &old_code, &new_code);
    let changed = |ops: &[DiffOp]| ops.iter().any(|op| !matches!(op, DiffOp::Equal { .. }));
    let mut rows = Vec::new();
    let (mut shown_old, mut shown) = (0, 0);
    for group in group_diff_ops(ops, AROUND) {
        if !changed(&group) {
            continue;
        }
        let (left_old, left) = (group[0].old_range().start, group[0].new_range().start);
        push_gap(&mut rows, &old[shown_old..left_old], &new[shown..left]);
        (shown_old, shown) = group.last().map_or((left_old, left), |op| (op.old_range().end, op.new_range().end));
        for op in group {
            let (gone, come) = (op.old_range(), op.new_range());
            if let DiffOp::Equal { .. } = op {
                rows.extend(gone.zip(come).map(|(b, a)| Row::Same {
                    before: from_before + b + 1,
                    after: from_after + a + 1,
                    moved: old[b] != new[a],
                }));
                continue;
            }
            let (removed, added) = marks(&old[gone.clone()], &new[come.clone()]);
            let removed = gone.zip(removed);
            rows.extend(removed.map(|(at, marked)| Row::Removed { before: from_before + at + 1, marked }));
            let added = come.zip(added);
            rows.extend(added.map(|(at, marked)| Row::Added { after: from_after + at + 1, marked }));
        }
    }
    push_gap(&mut rows, &old[shown_old..], &new[shown..]);
    rows
}

/// The lines without their indentation.
fn code<'a, 'b>(lines: &'b [Vec<Token<'a>>]) -> Vec<&'b [Token<'a>]> {
    let indented = |line: &[Token<'_>]| line.first().is_some_and(|token| token.kind == Kind::Space);
    lines.iter().map(|line| &line[usize::from(indented(line))..]).collect()
}

fn push_gap(rows: &mut Vec<Row>, old: &[Vec<Token<'_>>], new: &[Vec<Token<'_>>]) {
    if !new.is_empty() {
        rows.push(Row::Gap(new.len(), old.iter().zip(new).filter(|(old, new)| old != new).count()));
    }
}

/// For each line of both groups which of its tokens the other group lacks.
fn marks(old: &[Vec<Token<'_>>], new: &[Vec<Token<'_>>]) -> (Vec<Vec<bool>>, Vec<Vec<bool>>) {
    let (old_words, new_words) = (words(old), words(new));
    let texts = |of: &[Word<'_>]| of.iter().map(|word| word.text.to_string()).collect::<Vec<String>>();
    let (a, b) = (texts(&old_words), texts(&new_words));
    let ops = capture_diff_slices(Algorithm::Myers, &a, &b);
    let equal: usize = ops.iter().filter(|op| matches!(op, DiffOp::Equal { .. })).map(|op| op.new_range().len()).sum();
    let alike = (2 * equal) as f64 >= ALIKE * (a.len() + b.len()) as f64 && !a.is_empty() && !b.is_empty();
    let mut gone = blank(old);
    let mut come = blank(new);
    for op in ops.iter().filter(|op| alike && !matches!(op, DiffOp::Equal { .. })) {
        mark(&mut gone, &old_words, op.old_range());
        mark(&mut come, &new_words, op.new_range());
    }
    join(&mut gone, old);
    join(&mut come, new);
    (gone, come)
}

/// The space between two marked tokens is marked too: three new words are one mark.
fn join(marked: &mut [Vec<bool>], lines: &[Vec<Token<'_>>]) {
    for (marked, line) in marked.iter_mut().zip(lines) {
        for at in 1..line.len().saturating_sub(1) {
            marked[at] |= line[at].kind == Kind::Space && marked[at - 1] && marked[at + 1];
        }
    }
}

/// A token with its place: line of the group, number in the line.
struct Word<'a> {
    text: &'a str,
    line: usize,
    at: usize,
}

/// The code: an indentation that changed is no news, and a comment is one token, whose line is coloured anyway.
fn words<'a>(lines: &[Vec<Token<'a>>]) -> Vec<Word<'a>> {
    let all = lines.iter().enumerate().flat_map(|(line, tokens)| {
        tokens.iter().enumerate().map(move |(at, token)| (token.kind, Word { text: token.text, line, at }))
    });
    all.filter(|(kind, _)| !matches!(kind, Kind::Space | Kind::Comment)).map(|(_, word)| word).collect()
}

fn blank(lines: &[Vec<Token<'_>>]) -> Vec<Vec<bool>> {
    lines.iter().map(|line| vec![false; line.len()]).collect()
}

fn mark(lines: &mut [Vec<bool>], words: &[Word<'_>], range: Range<usize>) {
    for word in &words[range] {
        lines[word.line][word.at] = true;
    }
}

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Kind {
    Space,
    Comment,
    Keyword,
    /// What CUDA adds to C++: `__shared__`, `threadIdx`, `__syncthreads`.
    Cuda,
    Number,
    Text,
    /// A line for the preprocessor.
    Directive,
    Name,
    Sign,
}

/// A piece of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
}

const KEYWORDS: &str = "alignas asm auto bool break case char const constexpr continue default do double else enum extern \
    false float for if inline int long namespace nullptr operator return short signed sizeof static \
    static_assert struct switch template true typedef typename union unsigned using void volatile while \
    size_t float2 float4 int2 int4 uint2 uint4 uint8_t uint16_t uint32_t uint64_t int64_t";

const CUDA: &str = "threadIdx blockIdx blockDim gridDim warpSize atomicAdd wmma asm printf";

/// The tokens of each line. A comment between `/*` and `*/` may go over several.
pub(super) fn lines(text: &str) -> Vec<Vec<Token<'_>>> {
    let mut open = false;
    text.lines().map(|line| tokens(line, &mut open)).collect()
}

fn tokens<'a>(line: &'a str, open: &mut bool) -> Vec<Token<'a>> {
    let mut found = Vec::new();
    let mut rest = line;
    if line.trim_start().starts_with('#') && !*open {
        let end = line.find("//").unwrap_or(line.len());
        found.push(Token { kind: Kind::Directive, text: &line[..end] });
        rest = &line[end..];
    }
    while let Some(first) = rest.chars().next() {
        let (kind, length) = if *open || rest.starts_with("/*") {
            // Behind the opening, or where a comment goes on.
            let end = rest.find("*/").map(|at| at + 2);
            *open = end.is_none();
            (Kind::Comment, end.unwrap_or(rest.len()))
        } else if rest.starts_with("//") {
            (Kind::Comment, rest.len())
        } else {
            one(rest, first)
        };
        found.push(Token { kind, text: &rest[..length] });
        rest = &rest[length..];
    }
    found
}

/// Kind and length of the token that `rest` begins with; no comment.
fn one(rest: &str, first: char) -> (Kind, usize) {
    let while_ = |part: fn(char) -> bool| rest.find(|c| !part(c)).unwrap_or(rest.len());
    match first {
        c if c.is_whitespace() => (Kind::Space, while_(char::is_whitespace)),
        '"' => (Kind::Text, string(rest)),
        c if c.is_ascii_digit() => (Kind::Number, while_(|c| c.is_ascii_alphanumeric() || c == '.')),
        c if c.is_alphabetic() || c == '_' => {
            let end = while_(|c| c.is_alphanumeric() || c == '_');
            let kind = match &rest[..end] {
                word if listed(KEYWORDS, word) => Kind::Keyword,
                word if word.starts_with("__") || listed(CUDA, word) => Kind::Cuda,
                _ => Kind::Name,
            };
            (kind, end)
        }
        c => (Kind::Sign, c.len_utf8()),
    }
}

fn listed(words: &str, word: &str) -> bool {
    words.split(' ').any(|listed| listed == word)
}

/// The length of a text in quotes, or of all that is left where it is not closed.
fn string(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Once for each output. Colours of the changed lines are Okabe and Ito's, which colour-blind readers tell apart.
const STYLE: &str = include_str!("code.css");

/// One line of code. Tokens that are marked stand in `<b>`.
pub(super) fn line(tokens: &[Token<'_>], marked: &[bool]) -> String {
    let mut html = String::new();
    let is_marked = |at: usize| marked.get(at).copied().unwrap_or(false);
    for (at, token) in tokens.iter().enumerate() {
        let before = at > 0 && is_marked(at - 1);
        match (before, is_marked(at)) {
            (false, true) => html += "<b>",
            (true, false) => html += "</b>",
            _ => {}
        }
        let text = escape(token.text);
        match class(token.kind) {
            "" => html += &text,
            class => html += &format!("<span class=\"{class}\">{text}</span>"),
        }
    }
    if !tokens.is_empty() && is_marked(tokens.len() - 1) {
        html += "</b>";
    }
    html
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Comment => "c",
        Kind::Keyword => "k",
        Kind::Cuda => "u",
        Kind::Number => "m",
        Kind::Text => "s",
        Kind::Directive => "d",
        Kind::Space | Kind::Name | Kind::Sign => "",
    }
}

/// The box with all lines, whose line numbers are so many letters wide: what is too long goes on behind them.
pub(super) fn frame(title: &str, lines: &str, gutter: usize) -> String {
    format!(
        "<style>{STYLE}</style><div class=\"gpulab-code\" style=\"--gutter:{gutter}ch\">{title}<pre>{lines}</pre></div>\n"
    )
}
