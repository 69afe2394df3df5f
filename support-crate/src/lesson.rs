//! What a notebook holds on to: which lesson it is, which GPU it runs on, and where its figures go.
//!
//! On a machine with a GPU everything is live. Without one, GPU parts come from the recorded run, and say so.

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::measurement::{Backend, Measurement, MemoryPoint, Span};
use crate::{cpu, results};
use serde_json::{Value, json};

/// One running lesson. Everything that it measures is tagged with its name and appended to `results/metrics.csv`.
///
/// # Examples
/// ```standalone_crate
/// use gpulab::prelude::*;
/// # let folder = std::env::temp_dir().join(format!("gpulab-example-{}", std::process::id()));
/// # // SAFETY: this program has no other thread yet.
/// # unsafe { std::env::set_var("GPULAB_RESULTS", &folder) };
/// let lesson = Lesson::start("10_vector_add"); // prints what it runs on
/// let n = 1 << 16;
///
/// // On a GPU this measures; elsewhere it gives the rows of the recorded run, marked as such.
/// let rows = lesson.measure("addition over size", |gpu| {
///     let (a, mut c) = (gpu.zeros::<f32>(n)?, gpu.zeros::<f32>(n)?);
///     let ms = gpu.time(&Bench::default(), |_| c.copy_from_buffer(&a))?;
///     Ok(vec![Measurement::new("copy", gpu.backend(), n, "rate", "GB/s", ms.gb_per_s(8 * n))])
/// })?;
/// assert!(rows.median_at("copy", n) > 0.0);
/// assert_eq!(rows[0].recorded, lesson.gpu().is_none());
///
/// // A CPU is always there.
/// let x = cpu::random_f32(n, 1);
/// let rows = lesson.measure_cpu("sum", || {
///     let ms = cpu::time(&Bench::default().samples(5), || cpu::sum(&x))?;
///     Ok(vec![Measurement::time_ms("all cores", Backend::Cpu, n, ms)])
/// })?;
/// assert_eq!((rows[0].lesson.as_str(), rows[0].recorded), ("10_vector_add", false));
///
/// // What only prints: without a GPU, what this cell printed in the recorded run.
/// let name = lesson.on_gpu("the name", |gpu| Ok(gpu.name().to_string()))?;
/// assert_eq!(name.is_some(), lesson.gpu().is_some());
/// # std::fs::remove_dir_all(folder).unwrap();
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Lesson {
    name: String,
    gpu: Option<Gpu>,
    cpu: String,
    commit: String,
}

impl Lesson {
    /// Starts the lesson of that notebook, such as `02_async_timing`, and prints what it runs on.
    ///
    /// A machine without a GPU is no error: the lesson then shows the recorded run where a GPU is needed, and kernels run
    /// in the simulator where [`Gpu::open`] is asked for. So it does on
    /// an NVIDIA GPU without NVRTC, and says how to add it.
    pub fn start(name: &str) -> Lesson {
        let (gpu, why) = match Gpu::open_with_compiler() {
            Ok(gpu) => (Some(gpu), None),
            Err(error) => (None, Some(error)),
        };
        let lesson = Lesson { name: name.to_string(), gpu, cpu: cpu::info().short_name(), commit: results::commit() };
        println!("CPU: {}", lesson.cpu);
        match (&lesson.gpu, why) {
            (Some(gpu), _) => println!("{gpu}"),
            (None, Some(Error::NoGpu { tried })) => {
                println!("GPU: none ({})", tried.join("; "));
                println!("     What needs one is shown from the recorded run, and labelled so.");
                println!(
                    "     Kernels run all the same: `Gpu::open()` gives a simulator, which checks and counts and has no times."
                );
            }
            // There is a GPU, and it does not work: that is news, and no reason to stop the lesson.
            (None, Some(error)) => println!("GPU: none that works; the recorded run is shown in its place\n{error}\n"),
            (None, None) => {}
        }
        lesson
    }

    /// The notebook's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The GPU, where there is one. Never the simulator, which [`Gpu::open`] gives.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.as_ref()
    }

    /// The CPU's short name, as it stands in legends.
    pub fn cpu_name(&self) -> &str {
        &self.cpu
    }
}

impl Lesson {
    /// Measures on the GPU. `experiment` names the measurement in `results/metrics.csv`; the rows' own names are its
    /// curves. Without a GPU the recorded rows of that experiment come back, marked as recorded.
    ///
    /// # Errors
    /// What `work` returns; without a GPU, an error when nothing was recorded under that name.
    pub fn measure(
        &self,
        experiment: &str,
        work: impl FnOnce(&Gpu) -> Result<Vec<Measurement>>,
    ) -> Result<Vec<Measurement>> {
        match &self.gpu {
            Some(gpu) => Ok(self.store(experiment, gpu.name(), work(gpu)?)),
            None => self.recorded_gpu(experiment),
        }
    }

    /// [`Lesson::measure`] for what may be forbidden or missing on a machine with a GPU, as profilers are: where `work` says so,
    /// its reason is printed, and the recorded rows come back.
    ///
    /// # Errors
    /// What `work` returns besides [`Error::Unsupported`] and [`Error::Driver`]; an error when nothing was recorded under
    /// that name.
    pub fn measure_if_allowed(
        &self,
        experiment: &str,
        work: impl FnOnce(&Gpu) -> Result<Vec<Measurement>>,
    ) -> Result<Vec<Measurement>> {
        let Some(gpu) = &self.gpu else { return self.recorded_gpu(experiment) };
        match work(gpu) {
            Ok(rows) => Ok(self.store(experiment, gpu.name(), rows)),
            Err(error @ (Error::Unsupported { .. } | Error::Driver { .. })) => {
                println!("not measured here: {error}\n");
                self.recorded_gpu(experiment)
            }
            Err(error) => Err(error),
        }
    }

    /// Measures on the CPU, always live.
    ///
    /// # Errors
    /// What `work` returns.
    pub fn measure_cpu(
        &self,
        experiment: &str,
        work: impl FnOnce() -> Result<Vec<Measurement>>,
    ) -> Result<Vec<Measurement>> {
        Ok(self.store(experiment, &self.cpu, work()?))
    }

    /// [`Lesson::measure`] for a result with a type of its own. What `work` gives comes back as it is; `to_rows` says what of it
    /// is stored, and `from_rows` makes such a result of recorded rows.
    ///
    /// # Errors
    /// As [`Lesson::measure`].
    pub fn measure_as<T>(
        &self,
        experiment: &str,
        work: impl FnOnce(&Gpu) -> Result<T>,
        to_rows: impl FnOnce(&T, Backend) -> Vec<Measurement>,
        from_rows: impl FnOnce(&[Measurement]) -> T,
    ) -> Result<T> {
        let Some(gpu) = &self.gpu else { return Ok(from_rows(&self.recorded_gpu(experiment)?)) };
        let result = work(gpu)?;
        self.store(experiment, gpu.name(), to_rows(&result, gpu.backend()));
        Ok(result)
    }

    /// [`Lesson::measure_as`] for what may be forbidden or missing, as [`Lesson::measure_if_allowed`].
    ///
    /// # Errors
    /// As [`Lesson::measure_if_allowed`].
    pub fn measure_as_if_allowed<T>(
        &self,
        experiment: &str,
        work: impl FnOnce(&Gpu) -> Result<T>,
        to_rows: impl FnOnce(&T, Backend) -> Vec<Measurement>,
        from_rows: impl Fn(&[Measurement]) -> T,
    ) -> Result<T> {
        match self.measure_as(experiment, work, to_rows, &from_rows) {
            // Of recorded rows neither is said.
            Err(error @ (Error::Unsupported { .. } | Error::Driver { .. })) => {
                println!("not measured here: {error}\n");
                Ok(from_rows(&self.recorded_gpu(experiment)?))
            }
            other => other,
        }
    }

    /// [`Lesson::measure`] for the pool's numbers, step by step.
    ///
    /// # Errors
    /// As [`Lesson::measure`].
    pub fn measure_memory(
        &self,
        experiment: &str,
        work: impl FnOnce(&Gpu) -> Result<Vec<MemoryPoint>>,
    ) -> Result<Vec<MemoryPoint>> {
        self.measure_as(
            experiment,
            work,
            |points, backend| MemoryPoint::to_rows(points, backend),
            MemoryPoint::from_rows,
        )
    }

    /// [`Lesson::measure`] for who worked from when to when.
    ///
    /// # Errors
    /// As [`Lesson::measure`].
    pub fn measure_spans(&self, experiment: &str, work: impl FnOnce(&Gpu) -> Result<Vec<Span>>) -> Result<Vec<Span>> {
        self.measure_as(experiment, work, |spans, backend| Span::to_rows(spans, backend), Span::from_rows)
    }

    /// The recorded reference rows of an experiment, GPU and CPU, to lay over live ones. While the reference itself is
    /// being recorded, it would lie over itself: then only what other programs recorded beside it.
    ///
    /// # Errors
    /// [`Error::Invalid`] when nothing was recorded under that name, [`Error::File`], [`Error::Damaged`].
    pub fn recorded(&self, experiment: &str) -> Result<Vec<Measurement>> {
        let reference = results::reference(&self.name);
        let recording = results::file() == results::recorded_file(&reference);
        let mut rows = match recording {
            true => results::recorded_by_programs(&reference, &self.name)?,
            false => results::recorded_lesson(&reference, &self.name)?,
        };
        rows.retain_mut(|row| match curve_name(&row.experiment, experiment).map(str::to_string) {
            Some(curve) => {
                row.experiment = curve;
                true
            }
            None => false,
        });
        if rows.is_empty() && !recording {
            return Err(Error::invalid(
                format!("the recorded run has no experiment `{experiment}` of lesson {}", self.name),
                "run this cell on a machine with a GPU; the rest of the notebook works without it",
            ));
        }
        Ok(rows)
    }

    /// Where the GPU's figures come from: empty when live, else the recorded machine's name. For `recorded_on` of charts.
    pub fn recorded_on(&self) -> String {
        match &self.gpu {
            Some(_) => String::new(),
            None => self.recorded_machine().unwrap_or_else(|_| "a recorded run".to_string()),
        }
    }

    /// The name of the recorded GPU.
    pub(super) fn recorded_machine(&self) -> Result<String> {
        let reference = results::reference(&self.name);
        let rows = results::recorded_lesson(&reference, &self.name)?;
        let gpu = rows.iter().find(|row| row.backend == Backend::Cuda);
        Ok(gpu.map_or(reference, |row| row.machine.clone()))
    }

    fn recorded_gpu(&self, experiment: &str) -> Result<Vec<Measurement>> {
        let mut rows = self.recorded(experiment)?;
        rows.retain(|row| matches!(row.backend, Backend::Cuda | Backend::Metal));
        if let Some(row) = rows.first() {
            let (date, count) = (row.time.get(..10).unwrap_or(""), rows.len());
            println!("recorded on {}, {date}: {count} row{}", row.machine, if count == 1 { "" } else { "s" });
        }
        Ok(rows)
    }

    /// Tags rows that were measured on `machine` with lesson, time and commit, and stores them. What cannot be stored is
    /// still the reader's: the rows come back either way.
    pub fn store(&self, experiment: &str, machine: &str, mut rows: Vec<Measurement>) -> Vec<Measurement> {
        let time = results::now_utc();
        for row in &mut rows {
            row.time.clone_from(&time);
            row.commit.clone_from(&self.commit);
            row.lesson.clone_from(&self.name);
            row.machine = machine.to_string();
        }
        let mut stored = rows.clone();
        for row in &mut stored {
            row.experiment = stored_name(experiment, &row.experiment);
        }
        if let Err(error) = results::append(&stored) {
            println!("NOT SAVED: the figures are in your variable, but not in metrics.csv.\n{error}");
        }
        rows
    }
}

/// How a curve of an experiment is called in `metrics.csv`.
fn stored_name(experiment: &str, curve: &str) -> String {
    if experiment == curve { curve.to_string() } else { format!("{experiment}: {curve}") }
}

/// The curve that such a name stands for; `None` when it is of another experiment.
fn curve_name<'a>(stored: &'a str, experiment: &str) -> Option<&'a str> {
    match stored.strip_prefix(experiment)? {
        "" => Some(stored),
        rest => rest.strip_prefix(": "),
    }
}

impl Lesson {
    /// Runs `work` on the GPU and gives what it returns. Without a GPU, prints what this very cell printed in the
    /// recorded run, found by `title`, and gives `None`.
    ///
    /// # Errors
    /// What `work` returns.
    pub fn on_gpu<T>(&self, title: &str, work: impl FnOnce(&Gpu) -> Result<T>) -> Result<Option<T>> {
        match &self.gpu {
            Some(gpu) => work(gpu).map(Some),
            None => {
                self.replay(title);
                Ok(None)
            }
        }
    }

    fn replay(&self, title: &str) {
        let run = results::recorded_file(&results::reference(&self.name));
        let path = run.with_file_name(format!("{}.ipynb", self.name));
        let found = std::fs::read_to_string(&path).ok().and_then(|text| printed_by(&text, title));
        match found {
            Some(text) => {
                println!("recorded on {}:", self.recorded_on());
                text.lines().for_each(|line| println!("│ {line}"));
            }
            None => println!(
                "No GPU here, and the recorded run of `{}` has no output of the step `{title}`.\n\
                 next: go on with the next cell, or run this one on a machine with a GPU",
                self.name
            ),
        }
    }
}

impl Lesson {
    /// From now on this notebook sends the teacher's machine its predictions, what it measured of them, the exercises' verdicts, and
    /// which cells have run: `address` and `code` stand on the teacher's screen (`make class`). No name and no code of yours is sent. Cells
    /// never wait for it, and what cannot be sent is kept for later.
    ///
    /// The relay between Jupyter and this process sends, since it sees what cells show; elsewhere than in a notebook this prints a
    /// few lines and does nothing.
    pub fn join(&self, address: &str, code: &str) {
        tell_relay(&json!({"lesson": self.name, "address": address, "code": code}));
    }

    /// [`Lesson::join`] under a name, which the teacher's table then shows.
    pub fn join_as(&self, address: &str, code: &str, name: &str) {
        tell_relay(&json!({"lesson": self.name, "address": address, "code": code, "name": name}));
    }

    /// Sends a kernel's source to the contest of the class that this notebook has joined, if the teacher holds one for that task
    /// (`transpose`, `row_sums`); the cell shows whether it is right, and its place.
    pub fn submit(&self, task: &str, source: &str) {
        tell_relay(&json!({"lesson": self.name, "task": task, "source": source}));
    }

    /// Ends what [`Lesson::join`] began, and deletes what the teacher's machine has of this notebook.
    pub fn leave(&self) {
        tell_relay(&json!({"lesson": self.name}));
    }
}

/// Says it in the cell's output, where the relay takes it out (`env/relay`).
fn tell_relay(asked: &Value) {
    println!("EVCXR_BEGIN_CONTENT application/vnd.gpulab.class+json\n{asked}\nEVCXR_END_CONTENT");
}

/// What the cell with `on_gpu("title"` printed, in a notebook that was executed.
fn printed_by(notebook: &str, title: &str) -> Option<String> {
    let notebook: Value = serde_json::from_str(notebook).ok()?;
    let wanted = format!("on_gpu(\"{title}\"");
    let cell = notebook["cells"].as_array()?.iter().find(|cell| text_of(&cell["source"]).contains(&wanted))?;
    let printed: String = cell["outputs"]
        .as_array()?
        .iter()
        .filter(|output| output["output_type"] == "stream")
        .map(|output| text_of(&output["text"]))
        .collect();
    (!printed.trim().is_empty()).then_some(printed)
}

/// Notebooks keep text as one string or as a list of lines.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(lines) => lines.iter().filter_map(Value::as_str).collect(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_curve_keeps_its_name_on_the_way_to_the_file_and_back() {
        for (experiment, curve) in [("copy", "copy"), ("copy", "pinned"), ("copy: far", "a: b")] {
            assert_eq!(curve_name(&stored_name(experiment, curve), experiment), Some(curve));
        }
        assert_eq!(curve_name("copying: pinned", "copy"), None);
        assert_eq!(curve_name("other", "copy"), None);
    }

    #[test]
    fn finds_the_cell_by_its_title_and_keeps_only_what_was_printed() {
        let notebook = r#"{"cells": [
            {"source": "lesson.on_gpu(\"one\", …", "outputs": [{"output_type": "stream", "text": "first\n"}]},
            {"source": ["x\n", "lesson.on_gpu(\"two\", …"], "outputs": [
                {"output_type": "stream", "name": "stdout", "text": ["a\n", "b\n"]},
                {"output_type": "display_data", "data": {"text/plain": "c"}}]},
            {"source": "lesson.on_gpu(\"three\", …", "outputs": []}]}"#;
        assert_eq!(printed_by(notebook, "one").unwrap(), "first\n");
        assert_eq!(printed_by(notebook, "two").unwrap(), "a\nb\n");
        assert_eq!(printed_by(notebook, "three"), None);
        assert_eq!(printed_by(notebook, "four"), None);
        assert_eq!(printed_by("no notebook", "one"), None);
    }
}
