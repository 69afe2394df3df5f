//! What changed from one kernel to another.

use super::Listing;
use super::compare::{Row, rows};
use super::page::{frame, line};
use super::token::lines;
use gpulab::html::{escape, marked};
use std::fmt;

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
        let moved = if moved == 0 { String::new() } else { format!(", {moved} moved in or out (>)") };
        format!("{} → {}: {added} lines came, {removed} went{moved}", self.before.name, self.after.name)
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
        0 => format!("… {lines} line{plural} as before"),
        moved if moved == lines => format!("… {lines} line{plural} as before, moved in or out"),
        _ => format!("… {lines} line{plural} as before, but for {moved} further in or out"),
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
