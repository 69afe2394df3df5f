//! A table of numbers as a picture: the larger, the stronger the colour.

use super::canvas::{Align, BLUE, Canvas, FONT, Figure, INK, LINE, MARGIN, Pen, SMALL, WIDTH, figure, width};
use super::frame::{notes, nothing};
use crate::measurement::figures;

/// The side of a cell at most, in pixels.
const LARGEST: f64 = 62.0;
/// The side of a cell from which on it holds its number.
const WITH_NUMBER: f64 = 34.0;
/// Names are written beside cells of at least this side.
const WITH_NAME: f64 = 15.0;
/// How many numbers are read out one by one, at most.
const SAID: usize = 256;

/// A table of numbers from 0 up, a cell each; as the last expression of a cell it shows itself. NaN is drawn as an empty cell,
/// crossed out: what is hidden, and not what is 0.
#[derive(Debug, Clone)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct HeatMap {
    values: Vec<f64>,
    rows: Vec<String>,
    columns: Vec<String>,
    title: String,
    labels: (String, String),
}

chart!(HeatMap);

impl HeatMap {
    pub(super) fn new(values: &[f64], rows: &[&str], columns: &[&str]) -> HeatMap {
        let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
        let (rows, columns) = (words(rows), words(columns));
        HeatMap { values: values.to_vec(), rows, columns, title: String::new(), labels: Default::default() }
    }

    /// What rows and columns are, such as `query` and `key`.
    pub fn labels(mut self, rows: &str, columns: &str) -> HeatMap {
        self.labels = (rows.to_string(), columns.to_string());
        self
    }

    /// Draws the chart.
    pub fn draw(&self) -> Figure {
        let (rows, columns) = (self.rows.len(), self.columns.len());
        if self.values.is_empty() || self.values.len() != rows * columns {
            let remark = format!("{} numbers were given for {rows} rows of {columns}.", self.values.len());
            return nothing(&self.title, &[remark]);
        }
        let wrong = self.values.iter().filter(|value| **value < 0.0 || value.is_infinite()).count();
        let remarks = match wrong {
            0 => Vec::new(),
            _ => vec![format!("{wrong} numbers below 0, or infinite, are drawn as empty cells.")],
        };
        figure(&self.title, |canvas| {
            let y = canvas.title(&self.title);
            let y = self.cells(canvas, y);
            notes(canvas, &remarks, y) + MARGIN
        })
    }

    fn cells(&self, canvas: &mut Canvas<'_>, top: f64) -> f64 {
        let (rows, columns) = &self.labels;
        let label = if rows.is_empty() { String::new() } else { format!("{rows} ↓") };
        let names = self.rows.iter().chain([&label]).map(|name| width(name, FONT)).fold(0.0, f64::max);
        let left = MARGIN + names.min(WIDTH / 3.0) + 14.0;
        let side = ((WIDTH - MARGIN - left) / self.columns.len() as f64).min(LARGEST);
        let mut y = top;
        if !columns.is_empty() {
            canvas.text(&format!("{columns} →"), (left, y + LINE / 2.0), Align::Left);
            canvas.text(&label, (left - 10.0, y + LINE / 2.0), Align::Right);
            y += LINE + 4.0;
        }
        if side >= WITH_NAME {
            for (at, name) in self.columns.iter().enumerate() {
                // Names that are wider than their cell stand on two heights in turn.
                let low = if self.columns.iter().any(|name| width(name, FONT) > side) { at % 2 } else { 0 };
                canvas.text(name, (left + side * (at as f64 + 0.5), y + LINE * (low as f64 + 0.5)), Align::Middle);
            }
            let wide = self.columns.iter().any(|name| width(name, FONT) > side);
            y += LINE * if wide { 2.0 } else { 1.0 } + 4.0;
        }
        let fits = |value: &f64| *value >= 0.0 && value.is_finite();
        let most = self.values.iter().copied().filter(fits).fold(0.0, f64::max);
        // A screen reader that reads hundreds of numbers tells less than one that reads their range.
        if self.values.len() > SAID {
            let least = self.values.iter().copied().filter(fits).fold(most, f64::min);
            let empty = self.values.iter().filter(|value| !fits(value)).count();
            let (rows, columns) = (self.rows.len(), self.columns.len());
            let range = format!("from {} to {}, {empty} empty", figures_short(least), figures_short(most));
            canvas.describe(format!("{rows} rows of {columns} cells, {range}"));
        }
        for (row, name) in self.rows.iter().enumerate() {
            if self.values.len() <= SAID {
                let values = &self.values[row * self.columns.len()..][..self.columns.len()];
                let said = values.iter().map(|value| if fits(value) { figures_short(*value) } else { "empty".into() });
                canvas.describe(format!("{name}: {}", said.collect::<Vec<String>>().join(", ")));
            }
            let (above, below) = (y + side * row as f64, y + side * (row + 1) as f64);
            if side >= WITH_NAME {
                canvas.text(name, (left - 10.0, (above + below) / 2.0), Align::Right);
            }
            for column in 0..self.columns.len() {
                let value = self.values[row * self.columns.len() + column];
                let (from, to) = (left + side * column as f64, left + side * (column + 1) as f64);
                let (corner, other) = ((from + 0.5, above + 0.5), (to - 0.5, below - 0.5));
                if !fits(&value) {
                    let pen = Pen::solid(INK, 1.0).alpha(0.25);
                    canvas.outline(corner, other, &pen);
                    canvas.line((from + 0.5, below - 0.5), (to - 0.5, above + 0.5), &pen);
                    continue;
                }
                let share = if most > 0.0 { value / most } else { 0.0 };
                // Half of the strength at most where a number stands in the cell: it is to be read on light and dark pages.
                let strength = if side >= WITH_NUMBER { 0.55 } else { 0.95 };
                canvas.rect(corner, other, BLUE, 0.03 + share * strength);
                canvas.outline(corner, other, &Pen::solid(BLUE, 1.0).alpha(0.35));
                if side >= WITH_NUMBER {
                    let text =
                        if value >= 0.995 || value == 0.0 { figures_short(value) } else { format!("{value:.2}") };
                    if width(&text, SMALL) <= side - 4.0 {
                        canvas.small(&text, ((from + to) / 2.0, (above + below) / 2.0), Align::Middle);
                    }
                }
            }
        }
        y + side * self.rows.len() as f64 + LINE / 2.0
    }
}

/// `0`, `1`, else three figures.
fn figures_short(value: f64) -> String {
    if value.fract() == 0.0 { format!("{value}") } else { figures(value) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cell_has_its_number_and_hidden_ones_have_none() {
        let map = HeatMap::new(&[1.0, f64::NAN, 0.25, 0.75], &["I", "am"], &["I", "am"]).labels("query", "key");
        let svg = map.title("Weights").draw().svg();
        for text in ["Weights", "0.25", "0.75", "query ↓", "key →", "am"] {
            assert!(svg.contains(text), "{text}");
        }
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn large_tables_have_no_numbers_and_misfits_are_told() {
        let names = vec!["token"; 64];
        let svg = HeatMap::new(&[0.5; 64 * 64], &names, &names).draw().svg();
        assert!(svg.matches("0.50").count() == 2 && !svg.contains("token"), "{svg}");
        assert!(svg.contains("64 rows of 64 cells, from 0.500 to 0.500, 0 empty"), "{svg}");
        assert!(HeatMap::new(&[0.5; 3], &["a"], &["b"]).draw().svg().contains("3 numbers were given for 1 rows of 1"));
        let svg = HeatMap::new(&[-1.0, f64::INFINITY], &["a"], &["b", "c"]).draw().svg();
        assert!(svg.contains("2 numbers below 0"));
    }
}
