//! Which lines changed between two texts, and which words of them.

use super::token::{Kind, Token};
use similar::{Algorithm, DiffOp, capture_diff_slices, group_diff_ops};
use std::ops::Range;

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
        gap(&mut rows, &old[shown_old..left_old], &new[shown..left]);
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
    gap(&mut rows, &old[shown_old..], &new[shown..]);
    rows
}

/// The lines without their indentation.
fn code<'a, 'b>(lines: &'b [Vec<Token<'a>>]) -> Vec<&'b [Token<'a>]> {
    let indented = |line: &[Token<'_>]| line.first().is_some_and(|token| token.kind == Kind::Space);
    lines.iter().map(|line| &line[usize::from(indented(line))..]).collect()
}

fn gap(rows: &mut Vec<Row>, old: &[Vec<Token<'_>>], new: &[Vec<Token<'_>>]) {
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
