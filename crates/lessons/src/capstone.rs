//! Lesson 90's table, its report page, and the points that a program can give for it.

use crate::check;
use gpulab::error::{Error, Result};
use gpulab::html::escape;
use gpulab::measurement::figures;
use gpulab::plot::Figure;
use gpulab::results;
use gpulab::table::{Cell, Table, show};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What one step made of the model: on this machine, and in recorded runs. What was not measured is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CapstoneStage {
    /// What was done, such as `quantize`.
    pub name: String,
    /// The lesson that it comes from, such as `41`.
    pub lesson: String,
    /// Nats a byte on held-out text.
    pub nats: Option<f64>,
    /// Answers of the task that are right, in percent.
    pub task: Option<f64>,
    /// Bytes of the model's weights.
    pub bytes: Option<f64>,
    /// Tokens a second.
    pub speed: Option<f64>,
    /// Seconds that the step took: training, packing, exporting.
    pub seconds: Option<f64>,
    /// The same step in recorded runs.
    pub recorded: Vec<RecordedStage>,
}

/// A recorded row of a step.
#[derive(Debug, Clone, PartialEq)]
pub struct RecordedStage {
    /// The model and where, such as `gpt2-124M, H200`.
    pub of: String,
    /// What was measured, with its units.
    pub what: String,
    /// The file.
    pub source: String,
}

impl RecordedStage {
    /// What the file `source` says about a model somewhere.
    pub fn new(of: impl Into<String>, what: impl Into<String>, source: &str) -> RecordedStage {
        RecordedStage { of: of.into(), what: what.into(), source: source.to_string() }
    }
}

/// A row of a recorded file: its values by the names of their columns.
pub type Row = BTreeMap<String, String>;

/// The rows of a CSV file of this repository, such as `results/h200/decode_engine.csv`; none where it has not been recorded.
///
/// # Errors
/// [`Error::File`] when the file is there and cannot be read.
pub fn recorded_rows(file: &str) -> Result<Vec<Row>> {
    let path = gpulab::repository().join(file);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let failed = |error: csv::Error| {
        Error::file(&path, "read the recorded rows", error.to_string(), "take the file as the repository has it")
    };
    csv::Reader::from_path(&path).map_err(failed)?.deserialize().collect::<Result<_, _>>().map_err(failed)
}

/// One of the three kernels: the reader's text, and what a token of the model costs with it and without it.
#[derive(Debug, Clone, PartialEq)]
pub struct OwnKernel {
    /// `add_layer_norm`, `linear4` or `sample`.
    pub name: String,
    /// The text.
    pub source: String,
    /// Sectors that a token asks for: with the plain kernel, with this one. `None` while its check is red.
    pub sectors: Option<[u64; 2]>,
    /// The same in warp instructions.
    pub instructions: Option<[u64; 2]>,
}

/// The table that grows through the lesson, and all that the report says.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Capstone {
    /// Step by step.
    pub stages: Vec<CapstoneStage>,
    /// The reader's kernels.
    pub kernels: Vec<OwnKernel>,
    /// Predictions: what was asked, what was said, what was measured.
    pub predictions: Vec<(String, Option<f64>, f64)>,
    /// This machine.
    pub machine: String,
    /// As [`results::commit`] says it.
    pub commit: String,
    /// UTC.
    pub time: String,
}

/// The steps that a whole capstone has, in order.
pub const STAGES: [&str; 8] =
    ["first steps, here", "trained, shipped", "KV cache", "tune", "quantize", "prune", "export", "serve"];

/// Points, one line each: for what, how many of how many, and why not more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "points show themselves as the last expression of a cell, without a semicolon"]
pub struct Grade {
    /// For what, points, of how many, and what is missing.
    pub lines: Vec<(String, u32, u32, String)>,
}

/// Between these two the page keeps its figures for programs.
const OPEN: &str = "<script type=\"application/json\" id=\"capstone\">";
const CLOSE: &str = "</script>";

impl Capstone {
    /// An empty table of this machine.
    pub fn new(machine: &str) -> Capstone {
        Capstone {
            machine: machine.to_string(),
            commit: results::commit(),
            time: results::now_utc(),
            ..Capstone::default()
        }
    }

    /// Adds a step, or takes the place of the one with this name, when a cell runs again.
    pub fn add(&mut self, stage: CapstoneStage) {
        match self.stages.iter_mut().find(|own| own.name == stage.name) {
            Some(own) => *own = stage,
            None => self.stages.push(stage),
        }
    }

    /// The step of that name.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is none yet.
    pub fn stage(&self, name: &str) -> Result<&CapstoneStage> {
        self.stages.iter().find(|stage| stage.name == name).ok_or_else(|| {
            Error::invalid(format!("the table has no step `{name}`"), "run the notebook's cells from the top")
        })
    }

    /// The table, as it shows itself in a notebook.
    pub fn show(&self) {
        self.table().show();
    }

    fn table(&self) -> Table {
        let said = |value: Option<f64>| Cell::of(value.map_or("–".to_string(), figures));
        let row = |stage: &CapstoneStage| {
            let name = Cell::of(format!("{} ({})", stage.name, stage.lesson));
            let mega = stage.bytes.map(|bytes| bytes / 1e6);
            let mut cells = vec![name];
            cells.extend([stage.nats, stage.task, mega, stage.speed, stage.seconds].map(said));
            cells
        };
        let heads = ["step (lesson)", "nats a byte", "task %", "MB", "tokens/s", "seconds"].map(str::to_string);
        let notes = vec![format!("measured on {}", self.machine)];
        Table { heads: heads.to_vec(), rows: self.stages.iter().map(row).collect(), notes, ..Table::default() }
    }

    fn recorded_table(&self) -> Table {
        let none = RecordedStage::new("–", "not recorded", "");
        let rows = self.stages.iter().flat_map(|stage| {
            let found = if stage.recorded.is_empty() { std::slice::from_ref(&none) } else { stage.recorded.as_slice() };
            found.iter().map(|one| vec![stage.name.clone(), one.of.clone(), one.what.clone(), one.source.clone()])
        });
        Table {
            heads: ["step", "model, machine", "recorded", "in"].map(str::to_string).to_vec(),
            rows: rows.map(|row| row.into_iter().map(Cell::of).collect()).collect(),
            text_columns: 3,
            ..Table::default()
        }
    }

    fn kernel_table(&self) -> Table {
        let pair = |pair: Option<[u64; 2]>| match pair {
            Some([plain, own]) => format!("{plain} → {own}"),
            None => "not yet".to_string(),
        };
        let rows = self.kernels.iter().map(|one| vec![one.name.clone(), pair(one.sectors), pair(one.instructions)]);
        Table {
            heads: ["your kernel, one token", "sectors: plain → yours", "warp instructions"]
                .map(str::to_string)
                .to_vec(),
            rows: rows.map(|row| row.into_iter().map(Cell::of).collect()).collect(),
            notes: vec!["counted in the simulator".to_string()],
            ..Table::default()
        }
    }

    /// What the three kernels did, as it shows itself in a notebook.
    pub fn show_kernels(&self) {
        self.kernel_table().show();
    }

    fn prediction_table(&self) -> Table {
        let rows = self.predictions.iter().map(|(asked, said, is)| {
            [asked.clone(), said.map_or("none".to_string(), figures), figures(*is)].map(Cell::of).to_vec()
        });
        let heads = ["prediction", "yours", "measured"].map(str::to_string).to_vec();
        Table { heads, rows: rows.collect(), ..Table::default() }
    }

    /// The page, whole: it needs no other file and no network.
    pub fn page(&self, charts: &[Figure]) -> String {
        // The text of a kernel may hold anything; in a page's script `</` would end it.
        let data = self.to_json().to_string().replace("</", "<\\/");
        let charts: String = charts.iter().map(Figure::html).collect();
        let live: Vec<&str> = self.stages.iter().map(|stage| stage.name.as_str()).collect();
        let recorded = self.stages.iter().filter(|stage| !stage.recorded.is_empty());
        let recorded: Vec<&str> = recorded.map(|stage| stage.name.as_str()).collect();
        format!(
            "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width\">\n\
             <title>gpulab: capstone</title>\n<style>:root{{color-scheme:light dark}}\
             body{{font-family:sans-serif;max-width:64em;margin:2em auto;padding:0 1em;line-height:1.4;\
             background:light-dark(#fff,#16181c);color:light-dark(#1c1e21,#e4e6e9)}}dt{{font-weight:bold}}</style>\n\
             <h1>A language model, from training to serving</h1>\n\
             <dl><dt>Machine</dt><dd>{}</dd><dt>Commit</dt><dd>{}</dd><dt>Date (UTC)</dt><dd>{}</dd>\
             <dt>Measured here</dt><dd>{}</dd><dt>With recorded rows beside them</dt><dd>{}</dd></dl>\n\
             <h2>Step by step</h2>\n{}\n{charts}<h2>The same steps with larger models, recorded</h2>\n{}\n<h2>Three kernels</h2>\n{}\n<h2>Predictions</h2>\n{}\n{OPEN}{data}{CLOSE}\n</html>\n",
            escape(&self.machine),
            escape(&self.commit),
            escape(&self.time),
            escape(&live.join(", ")),
            escape(&recorded.join(", ")),
            self.table().html(),
            self.recorded_table().html(),
            self.kernel_table().html(),
            self.prediction_table().html(),
        )
    }

    /// Writes the page to `results/capstone/report.html`, and says where.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be written.
    pub fn write(&self, charts: &[Figure]) -> Result<PathBuf> {
        let path = results::dir().join("capstone").join("report.html");
        let failed = Error::io(&path, "write the report", "give the folder write permission, or free some space");
        std::fs::create_dir_all(path.parent().expect("a folder")).map_err(&failed)?;
        std::fs::write(&path, self.page(charts)).map_err(&failed)?;
        Ok(path)
    }

    fn to_json(&self) -> Value {
        let recorded = |one: &RecordedStage| json!({"of": one.of, "what": one.what, "source": one.source});
        let stage = |own: &CapstoneStage| {
            json!({"name": own.name, "lesson": own.lesson, "nats_per_byte": own.nats, "task_percent": own.task, "bytes": own.bytes,
                "tokens_per_s": own.speed, "seconds": own.seconds, "recorded": own.recorded.iter().map(recorded).collect::<Vec<_>>()})
        };
        let kernel = |own: &OwnKernel| json!({"name": own.name, "source": own.source, "sectors": own.sectors, "instructions": own.instructions});
        json!({
            "stages": self.stages.iter().map(stage).collect::<Vec<_>>(),
            "kernels": self.kernels.iter().map(kernel).collect::<Vec<_>>(),
            "predictions": self.predictions.iter().map(|(asked, said, is)| json!({"asked": asked, "said": said, "is": is})).collect::<Vec<_>>(),
            "machine": self.machine, "commit": self.commit, "time": self.time,
        })
    }

    /// Reads what [`Capstone::write`] wrote.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read, or is no such page.
    pub fn read(path: &Path) -> Result<Capstone> {
        let again = "run lesson 90 to its last cell, which writes results/capstone/report.html";
        let page = std::fs::read_to_string(path).map_err(Error::io(path, "read the report", again))?;
        let data = page.split_once(OPEN).and_then(|(_, rest)| rest.split_once(CLOSE)).map(|(data, _)| data);
        let damaged = |text: &str| Error::file(path, "read the report", text, again);
        let data: Value = serde_json::from_str(data.ok_or_else(|| damaged("it holds no figures for programs"))?)
            .map_err(|error| damaged(&error.to_string()))?;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let pair = |value: &Value| Some([value.get(0)?.as_u64()?, value.get(1)?.as_u64()?]);
        let recorded = |one: &Value| RecordedStage::new(text(&one["of"]), text(&one["what"]), &text(&one["source"]));
        let stage = |own: &Value| CapstoneStage {
            name: text(&own["name"]),
            lesson: text(&own["lesson"]),
            nats: own["nats_per_byte"].as_f64(),
            task: own["task_percent"].as_f64(),
            bytes: own["bytes"].as_f64(),
            speed: own["tokens_per_s"].as_f64(),
            seconds: own["seconds"].as_f64(),
            recorded: list(&own["recorded"]).iter().map(recorded).collect(),
        };
        let kernel = |own: &Value| OwnKernel {
            name: text(&own["name"]),
            source: text(&own["source"]),
            sectors: pair(&own["sectors"]),
            instructions: pair(&own["instructions"]),
        };
        let prediction =
            |own: &Value| (text(&own["asked"]), own["said"].as_f64(), own["is"].as_f64().unwrap_or(f64::NAN));
        Ok(Capstone {
            stages: list(&data["stages"]).iter().map(stage).collect(),
            kernels: list(&data["kernels"]).iter().map(kernel).collect(),
            predictions: list(&data["predictions"]).iter().map(prediction).collect(),
            machine: text(&data["machine"]),
            commit: text(&data["commit"]),
            time: text(&data["time"]),
        })
    }

    /// The points that a program can give, of 70. The kernels' texts are checked again, here; figures are looked at for being there
    /// and for fitting each other, not measured again.
    pub fn grade(&self) -> Grade {
        let mut lines = Vec::new();
        let mut line = |what: &str, most: u32, why_not: Option<String>| {
            let points = if why_not.is_none() { most } else { 0 };
            lines.push((what.to_string(), points, most, why_not.unwrap_or_default()));
        };
        for name in STAGES {
            let why_not = match self.stages.iter().find(|stage| stage.name == name) {
                None => Some("the step is missing".to_string()),
                Some(stage) => {
                    let asked = [
                        ("nats a byte", stage.nats, !["KV cache", "serve"].contains(&name)),
                        ("bytes", stage.bytes, true),
                        ("tokens/s", stage.speed, !["first steps, here", "trained, shipped"].contains(&name)),
                    ];
                    let sound = |value: Option<f64>| value.is_some_and(|value| value.is_finite() && value > 0.0);
                    let missing = asked.iter().find(|(_, value, needed)| *needed && !sound(*value));
                    missing.map(|(what, ..)| format!("no {what}"))
                }
            };
            line(&format!("step: {name}"), 2, why_not);
        }
        type Check = fn(&str) -> check::Verdict;
        let checks: [(&str, Check); 3] = [
            ("add_layer_norm", |source| check::add_layer_norm(source)),
            ("linear4", |source| check::linear4(source)),
            ("sample", |source| check::sample(source)),
        ];
        for (name, check) in checks {
            let own = self.kernels.iter().find(|own| own.name == name);
            let verdict = own.map(|own| check(&own.source));
            let why_not = match &verdict {
                None => Some("the report holds no such kernel".to_string()),
                Some(verdict) if !verdict.passed() => Some(verdict.shown().lines().nth(1).unwrap_or("").to_string()),
                Some(_) => None,
            };
            let passed = why_not.is_none();
            line(&format!("kernel: {name}"), 10, why_not);
            let fewer = own.and_then(|own| own.instructions).is_some_and(|[plain, own]| own < plain);
            let why_not =
                (!(passed && fewer)).then(|| "not fewer warp instructions than the plain kernel's".to_string());
            line(&format!("kernel: {name} in the model"), 2, why_not);
        }
        type Column = fn(&CapstoneStage) -> Option<f64>;
        let of = |name: &str, what: Column| {
            self.stages.iter().find(|stage| stage.name == name).and_then(what).unwrap_or(f64::NAN)
        };
        let (nats, task, bytes): (Column, Column, Column) = (|own| own.nats, |own| own.task, |own| own.bytes);
        let fits = |holds: bool, why: String| (!holds).then_some(why);
        let share = of("quantize", bytes) / of("tune", bytes);
        line("bytes: four bits are at most a fifth", 4, fits(share <= 0.2, format!("they are {:.0} %", 100.0 * share)));
        let lost = of("quantize", nats) / of("tune", nats);
        line("quality: four bits cost at most 5 %", 4, fits(lost <= 1.05, format!("loss × {lost:.3}")));
        let right = of("tune", task);
        line("quality: tuned, half of the answers are right", 4, fits(right >= 50.0, format!("{right:.0} %")));
        let kept = self.predictions.iter().filter(|(_, said, _)| said.is_some()).count();
        let open = format!("{kept} of {} were made", self.predictions.len());
        line("every prediction was made", 4, fits(kept > 0 && kept == self.predictions.len(), open));
        let told = [&self.machine, &self.commit, &self.time].iter().all(|text| !text.is_empty() && *text != "unknown");
        line("machine, commit and date are told", 2, fits(told, "one is missing".to_string()));
        Grade { lines }
    }
}

impl Grade {
    /// Points, and of how many.
    pub fn points(&self) -> (u32, u32) {
        self.lines.iter().fold((0, 0), |(points, most), line| (points + line.1, most + line.2))
    }

    fn table(&self) -> Table {
        let row = |(what, points, most, why): &(String, u32, u32, String)| {
            [what.clone(), why.clone(), format!("{points} of {most}")].map(Cell::of).to_vec()
        };
        let (points, most) = self.points();
        Table {
            title: format!("{points} of {most} points by program; docs/capstone.md has the 30 that a person gives"),
            heads: ["for", "what is missing", "points"].map(str::to_string).to_vec(),
            rows: self.lines.iter().map(row).collect(),
            text_columns: 1,
            ..Table::default()
        }
    }

    /// As lines of text.
    pub fn text(&self) -> String {
        self.table().text()
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        show(&self.text(), &self.table().html());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole() -> Capstone {
        let mut own = Capstone::new("a <machine>");
        own.commit = "abc1234".to_string();
        for (name, bytes) in STAGES.into_iter().zip([3.2e6, 3.2e6, 3.2e6, 3.2e6, 5e5, 4e5, 3.3e6, 4e5]) {
            let recorded = RecordedStage::new("124M", "5,000 tokens/s", "a file");
            let recorded = if name == "quantize" { vec![recorded] } else { vec![] };
            let (nats, task, speed, seconds) = (Some(1.5), Some(90.0), Some(1000.0), None);
            own.add(CapstoneStage {
                name: name.to_string(),
                lesson: "22".to_string(),
                nats,
                task,
                bytes: Some(bytes),
                speed,
                seconds,
                recorded,
            });
        }
        own.predictions = vec![("how many?".to_string(), Some(2.0), 3.0)];
        own.kernels = [("add_layer_norm", check::NORM_RIGHT), ("linear4", "</script>"), ("sample", "none")]
            .map(|(name, source)| {
                let (name, source) = (name.to_string(), source.to_string());
                OwnKernel { name, source, sectors: Some([9, 3]), instructions: Some([80, 20]) }
            })
            .to_vec();
        own
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let own = whole();
        let path = std::env::temp_dir().join(format!("capstone-{}.html", std::process::id()));
        let page = own.page(&[]);
        std::fs::write(&path, &page).unwrap();
        assert_eq!(Capstone::read(&path).unwrap(), own);
        assert!(page.contains("a &lt;machine&gt;") && page.contains("not recorded") && page.contains("5,000 tokens/s"));
        std::fs::write(&path, "<html></html>").unwrap();
        let error = Capstone::read(&path).unwrap_err().to_string();
        assert!(error.contains("no figures") && error.contains("\nnext: run lesson 90"), "{error}");
        std::fs::remove_file(&path).unwrap();
        assert!(Capstone::read(&path).is_err());
    }

    #[test]
    fn points_are_for_what_is_there_and_fits() {
        let own = whole();
        let grade = own.grade();
        // Two of the kernels' texts are none, whatever the figures beside them say.
        assert_eq!(grade.points(), (70 - 24, 70), "{}", grade.text());
        let lost = |change: fn(&mut Capstone)| {
            let mut other = whole();
            other.kernels.clear();
            let before = other.grade().points().0;
            change(&mut other);
            before - other.grade().points().0
        };
        assert_eq!(lost(|own| drop(own.stages.remove(0))), 2);
        assert_eq!(lost(|own| own.stages[4].bytes = Some(3e6)), 4);
        assert_eq!(lost(|own| own.stages[4].nats = Some(1.7)), 4);
        assert_eq!(lost(|own| own.stages[4].nats = Some(f64::NAN)), 6);
        assert_eq!(lost(|own| own.stages[3].task = Some(20.0)), 4);
        assert_eq!(lost(|own| own.predictions[0].1 = None), 4);
        assert_eq!(lost(|own| own.commit = "unknown".to_string()), 2);
        assert_eq!(Capstone::default().grade().points(), (0, 70));
    }

    #[test]
    fn recorded_rows_are_read_by_their_columns() {
        let rows = recorded_rows("results/lora/smollm2.csv").unwrap();
        let tuned = rows.iter().find(|row| row["run"] == "LoRA, rank 8").expect("a name with a comma in it");
        assert_eq!(tuned["cases"], "48");
        assert_eq!(recorded_rows("results/nowhere.csv").unwrap(), []);
        assert!(recorded_rows("models/course/model.safetensors").unwrap_err().to_string().contains("\nnext: "));
    }

    #[test]
    fn a_cell_that_runs_again_adds_no_row() {
        let mut own = whole();
        own.add(CapstoneStage { name: "tune".to_string(), nats: Some(9.0), ..CapstoneStage::default() });
        assert_eq!((own.stages.len(), own.stage("tune").unwrap().nats), (8, Some(9.0)));
        assert!(own.stage("melt").unwrap_err().to_string().contains("\nnext: "));
    }
}
