//! Charts of measurements, ready to be the last line of a cell.
//!
//! | you have | you call |
//! | --- | --- |
//! | times over several sizes | [`time_over_size`], a curve for each experiment and machine |
//! | rates over several sizes | [`bandwidth_over_size`], or [`over_size`] for any other metric |
//! | a few figures to compare | [`bars`] |
//! | what a whole consists of, bar beside bar | [`stacked`] |
//! | the rungs of a ladder beside their peers | [`ladder`] |
//! | operations per byte against operations a second | [`roofline`] |
//! | the memory pool's numbers, step by step | [`memory_life`] |
//! | who worked from when to when | [`timeline`] |
//! | numbers over time, such as power and clocks | [`over_time`] |
//! | a histogram, or a figure for each of many channels | [`columns`] |
//! | a table of numbers, such as attention's weights | [`heat_map`] |
//!
//! Each gives a chart that takes a title and your predictions, and shows itself; `draw()` gives the [`Figure`], which
//! can be saved. A chart never fails: what cannot be drawn is left out, and a line below the chart says so.
//!
//! ```
//! use gpulab_measure::measurement::{Backend, Measurement, Summary};
//! let rows: Vec<Measurement> = [256, 512, 1024]
//!     .map(|n| Measurement::time_ms("matmul", Backend::Cpu, n, Summary::of(&[(n as f64).powi(3) * 1e-8])))
//!     .to_vec();
//! let chart = gpulab_measure::plot::time_over_size(&rows).title("Matrix multiply").x_label("matrix side n");
//! assert!(chart.draw().svg().contains("Matrix multiply"));
//! ```

/// What every chart has beside its own settings.
macro_rules! chart {
    ($chart:ident) => {
        impl $chart {
            /// The title; a good one says what the chart shows.
            pub fn title(mut self, title: &str) -> $chart {
                self.title = title.to_string();
                self
            }

            /// What the notebook calls to show the chart.
            pub fn evcxr_display(&self) {
                self.draw().evcxr_display();
            }
        }
    };
}

mod bars;
pub mod canvas;
mod columns;
mod curves;
pub mod frame;
mod heat_map;
mod ladder;
mod memory;
mod over_size;
mod over_time;
mod roofline;
mod stacked;
mod timeline;

pub use bars::BarChart;
pub use canvas::Figure;
pub use columns::ColumnChart;
pub use curves::crossing;
pub use heat_map::HeatMap;
pub use ladder::{LadderChart, is_rung, percent};
pub use memory::MemoryChart;
pub use over_size::SizeChart;
pub use over_time::{TimeChart, TimePanel};
pub use roofline::{Reached, Roofline};
pub use stacked::StackedChart;
pub use timeline::Timeline;

use crate::measurement::{Measurement, MemoryPoint, Span};

/// Times over sizes, both axes logarithmic; rows of another metric than `time` are passed over.
///
/// One curve for each experiment, machine, backend, element type, and whether it was recorded.
/// See [`SizeChart`] for what can be added.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::{Backend, Measurement, Summary};
/// use gpulab_measure::plot;
/// let row = |n: usize| Measurement::time_ms("copy", Backend::Cpu, n, Summary::of(&[n as f64 / 1e6]));
/// let chart = plot::time_over_size(&[row(1 << 10), row(1 << 20)]).title("A copy");
/// assert!(chart.draw().svg().contains("A copy"));
/// ```
pub fn time_over_size(rows: &[Measurement]) -> SizeChart {
    SizeChart::new(rows, Some("time"))
}

/// Rates over sizes, both axes logarithmic; rows of another metric than `bandwidth` are passed over.
pub fn bandwidth_over_size(rows: &[Measurement]) -> SizeChart {
    SizeChart::new(rows, Some("bandwidth"))
}

/// Any one metric over sizes, both axes logarithmic: that of the first row. Rows of another metric or unit are
/// left out, and a line below the chart counts them.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::{Backend, Measurement, Summary};
/// use gpulab_measure::plot;
/// let row = |n: usize| Measurement::new("copy", Backend::Cpu, n, "rate", "GB/s", Summary::of(&[20.0]));
/// let chart = plot::over_size(&[row(1 << 10), row(1 << 20)])
///     .title("A copy")
///     .x_label("elements")
///     .prediction_value("your prediction", 25.0);
/// let svg = chart.draw().svg();
/// assert!(["A copy", "elements", "your prediction"].iter().all(|text| svg.contains(text)));
/// ```
pub fn over_size(rows: &[Measurement]) -> SizeChart {
    SizeChart::new(rows, None)
}

/// One horizontal bar for each row, in the order given, with value, unit and ratio written beside it.
///
/// The metric and unit are those of the first row; rows of another are left out, and a line below counts them.
///
/// # Examples
/// ```
/// use gpulab_measure::measurement::{Backend, Measurement, Summary};
/// use gpulab_measure::plot;
/// let row = |name: &str, ms: f64| Measurement::time_ms(name, Backend::Cpu, 1024, Summary::of(&[ms]));
/// let chart = plot::bars(&[row("one core", 12.0), row("all cores", 3.0)])
///     .title("A sum")
///     .prediction("your prediction", 2.0);
/// let svg = chart.draw().svg(); // in a notebook the chart as the last line shows itself
/// assert!(["A sum", "all cores", "your prediction"].iter().all(|text| svg.contains(text)));
/// ```
pub fn bars(rows: &[Measurement]) -> BarChart {
    BarChart::new(rows)
}

/// Horizontal bars made of parts: a bar for each experiment, a part for each of its metrics, in the order given.
pub fn stacked(rows: &[Measurement]) -> StackedChart {
    StackedChart::new(rows)
}

/// One horizontal bar for each rung and peer, with its share of one peer; rows of another metric than `rate` are passed
/// over.
pub fn ladder(rows: &[Measurement]) -> LadderChart {
    LadderChart::new(rows)
}

/// Operations per byte against operations a second, under the roofs of memory and arithmetic.
pub fn roofline(points: &[Reached]) -> Roofline {
    Roofline::new(points)
}

/// The memory pool's numbers over the steps of a buffer's life.
pub fn memory_life(points: &[MemoryPoint]) -> MemoryChart {
    MemoryChart::new(points)
}

/// Who worked from when to when: one lane each for the host, the copy engine, a stream …
pub fn timeline(spans: &[Span]) -> Timeline {
    Timeline::new(spans)
}

/// Numbers over time in seconds, a panel each.
pub fn over_time(panels: &[TimePanel]) -> TimeChart {
    TimeChart::new(panels)
}

/// A table of numbers from 0 up, row by row, as cells of one colour, each as strong as its number. NaN is an empty cell.
pub fn heat_map(values: &[f64], rows: &[&str], columns: &[&str]) -> HeatMap {
    HeatMap::new(values, rows, columns)
}

/// Upright bars side by side, one for each value from 0 up, over the numbers from `range.0` to `range.1`: a histogram's counts, or a
/// figure for each channel.
pub fn columns(values: &[f64], range: (f64, f64)) -> ColumnChart {
    ColumnChart::new(values, range)
}

#[cfg(test)]
mod tests;
