//! A table of figures as text and as a piece of a page, for what shows itself in both forms.

use crate::html::{GOOD, badge, escape, marked};

/// A table: the first column holds names, the others figures.
#[derive(Debug, Clone, Default)]
pub struct Table {
    /// Stands above it; may be empty.
    pub title: String,
    /// The columns' headings.
    pub heads: Vec<String>,
    /// The cells, row by row.
    pub rows: Vec<Vec<Cell>>,
    /// How many columns behind the first hold text that may wrap; the others hold figures.
    pub text_columns: usize,
    /// Lines below it.
    pub notes: Vec<String>,
}

/// One figure or name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cell {
    /// What it says.
    pub text: String,
    /// The best of its column: bold and green, `*` in text.
    pub best: bool,
    /// Needs attention: on an orange ground, `!` in text.
    pub flagged: bool,
}

impl Cell {
    /// A cell of plain text.
    pub fn of(text: impl Into<String>) -> Cell {
        Cell { text: text.into(), best: false, flagged: false }
    }

    /// The same cell, flagged where `flagged` is true.
    pub fn flagged(mut self, flagged: bool) -> Cell {
        self.flagged = flagged;
        self
    }
}

impl Table {
    /// Lines of text; columns are as wide as their widest cell.
    pub fn text(&self) -> String {
        let sign = |cell: &Cell| match (cell.flagged, cell.best) {
            (true, true) => "!*",
            (true, false) => "!",
            (false, true) => "*",
            (false, false) => "",
        };
        let signs = |at: usize| self.rows.iter().filter_map(|row| row.get(at)).map(|cell| sign(cell).len()).max();
        let room: Vec<usize> = (0..self.heads.len()).map(|at| signs(at).unwrap_or(0)).collect();
        // Figures stand above each other, with room for the marks behind them.
        let shown = |(at, cell): (usize, &Cell)| format!("{}{:2$}", cell.text, sign(cell), room[at]);
        // Heads of several words take several lines, so that narrow figures stand close together.
        let words: Vec<Vec<&str>> = self
            .heads
            .iter()
            .enumerate()
            .map(|(at, head)| if at == 0 { vec![&**head] } else { head.split(' ').collect() })
            .collect();
        let high = words.iter().map(Vec::len).max().unwrap_or(0);
        let word = |words: &Vec<&str>, line: usize| {
            (line + words.len()).checked_sub(high).map_or(String::new(), |at| words[at].to_string())
        };
        let mut lines: Vec<Vec<String>> =
            (0..high).map(|line| words.iter().map(|words| word(words, line)).collect()).collect();
        lines.extend(self.rows.iter().map(|row| row.iter().enumerate().map(shown).collect::<Vec<String>>()));
        let columns = self.heads.len();
        let length = |text: &String| text.chars().count();
        let wide: Vec<usize> = (0..columns)
            .map(|at| lines.iter().filter_map(|line| line.get(at)).map(length).max().unwrap_or(0))
            .collect();
        let mut text = if self.title.is_empty() { String::new() } else { format!("{}\n", self.title) };
        for line in &lines {
            let cells = line.iter().zip(&wide).enumerate().map(|(at, (cell, wide))| match at {
                0 => format!("{cell:wide$}"),
                _ => format!("{cell:>wide$}"),
            });
            text += cells.collect::<Vec<String>>().join("  ").trim_end();
            text.push('\n');
        }
        self.notes.iter().for_each(|note| text += &format!("{note}\n"));
        text
    }

    /// The table as a piece of a page, in the page's own colours.
    pub fn html(&self) -> String {
        const CELL: &str = "padding:.1em .5em .1em .2em;text-align:right;white-space:nowrap;vertical-align:top";
        const NAME: &str = "padding:.1em .7em .1em 0;text-align:left;white-space:nowrap;vertical-align:top";
        const SENTENCE: &str = "padding:.1em .7em .1em .2em;text-align:left;vertical-align:top";
        let style = |at: usize| match at {
            0 => NAME,
            at if at <= self.text_columns => SENTENCE,
            _ => CELL,
        };
        let heads = self.heads.iter().enumerate();
        let heads: String = heads
            .map(|(at, head)| {
                let head = if at == 0 { escape(head) } else { marked(head).replace(' ', "<br>") };
                format!("<th style=\"{};vertical-align:bottom\">{head}</th>", style(at))
            })
            .collect();
        let rows: String = self
            .rows
            .iter()
            .map(|row| {
                let cells = row.iter().enumerate().map(|(at, cell)| {
                    let text = if cell.best { badge(&cell.text, GOOD) } else { escape(&cell.text) };
                    // A middle tone, legible on light and on dark pages.
                    let ground = if cell.flagged { ";background:rgba(213,94,0,.28)" } else { "" };
                    format!("<td style=\"{}{ground}\">{text}</td>", style(at))
                });
                format!("<tr>{}</tr>\n", cells.collect::<String>())
            })
            .collect();
        let title =
            if self.title.is_empty() { String::new() } else { format!("<strong>{}</strong>", escape(&self.title)) };
        let notes: Vec<String> = self.notes.iter().map(|note| marked(note).replace('\n', "<br>")).collect();
        format!(
            "<div class=\"gpulab-table\" tabindex=\"0\" style=\"overflow-x:auto;color:var(--jp-content-font-color1,inherit)\">{title}\
             <table style=\"margin:.4em 0;font-size:92%;color:inherit;table-layout:auto;border-collapse:collapse\">\
             <thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table><small>{}</small></div>\n",
            notes.join("<br>")
        )
    }

    /// What the notebook calls to show a value.
    pub fn show(&self) {
        show(&self.text(), &self.html());
    }
}

/// Shows both forms, in one output of the cell.
pub fn show(text: &str, html: &str) {
    print!(
        "EVCXR_BEGIN_CONTENT text/plain\n{text}EVCXR_END_CONTENT\n\
         EVCXR_BEGIN_CONTENT text/html\n{html}EVCXR_END_CONTENT\n"
    );
}

/// Lets a value of a type that implements `Display` be the last expression of a cell, which then shows that text.
#[macro_export]
macro_rules! show_as_text {
    ($type:ty) => {
        impl $type {
            /// What the notebook calls to show a value.
            pub fn evcxr_display(&self) {
                print!("EVCXR_BEGIN_CONTENT text/plain\n{}EVCXR_END_CONTENT\n", self);
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_marks_show_in_both_forms() {
        let best = Cell { best: true, ..Cell::of("5") };
        let table = Table {
            title: "T < U".to_string(),
            heads: ["rung", "bank conflicts"].map(str::to_string).to_vec(),
            rows: vec![vec![Cell::of("01"), best], vec![Cell::of("02_long"), Cell::of("1,024").flagged(true)]],
            notes: vec!["`x` counts".to_string()],
            text_columns: 0,
        };
        assert_eq!(
            table.text(),
            "T < U\n              bank\nrung     conflicts\n01              5*\n02_long     1,024!\n`x` counts\n"
        );
        let html = table.html();
        for text in ["T &lt; U", "bank<br>conflicts", ">5</strong>", ".28)\">1,024<", "<code>x</code> counts"] {
            assert!(html.contains(text), "{text}: {html}");
        }
    }
}
