//! Samples in a file: a line of JSON each, below a first line that says where they come from. Or a CSV, for a spreadsheet.

use crate::sample::{FIELDS, Sample};
use crate::source::{GpuInfo, Planted, SampleSource};
use gpulab_measure::{Error, Result};
use serde_json::{Value, json};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

const VERSION: u64 = 1;

/// A recorded trace.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SampleTrace {
    /// `recorded`, or how it was made up.
    pub origin: String,
    /// The GPUs.
    pub gpus: Vec<GpuInfo>,
    /// In the order of their times.
    pub samples: Vec<Sample>,
}

impl SampleTrace {
    /// Reads a trace that a [`TraceWriter`] has written.
    ///
    /// # Errors
    /// [`Error::File`]; [`Error::Invalid`] where it is no trace, with the line where it ends to be one.
    pub fn read(path: impl AsRef<Path>) -> Result<SampleTrace> {
        let path = path.as_ref();
        let failed =
            Error::io(path, "read the trace", "give a file that `gpulab monitor --record FILE.jsonl` has written");
        let text = std::fs::read_to_string(path).map_err(failed)?;
        SampleTrace::parse(&text, &path.display().to_string())
    }

    /// The same from text; `name` is for errors.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub fn parse(text: &str, name: &str) -> Result<SampleTrace> {
        let not_one = |why: &str| {
            Error::invalid(
                format!("{name} is no trace: {why}"),
                "give a file that `gpulab monitor --record FILE.jsonl` has written; a CSV is for other programs to read",
            )
        };
        let mut lines = text.lines();
        let first: Value = lines.next().and_then(|line| serde_json::from_str(line).ok()).unwrap_or_default();
        match first["gpulab_trace"].as_u64() {
            None => return Err(not_one("its first line does not begin one")),
            Some(VERSION) => {}
            Some(other) => return Err(not_one(&format!("it has version {other}, and this program reads {VERSION}"))),
        }
        let gpus = first["gpus"].as_array().into_iter().flatten().filter_map(|gpu| {
            let index = gpu["index"].as_u64().and_then(|index| u32::try_from(index).ok())?;
            Some(GpuInfo { index, name: gpu["name"].as_str()?.to_string() })
        });
        let mut trace = SampleTrace {
            origin: first["origin"].as_str().unwrap_or("of unknown origin").to_string(),
            gpus: gpus.collect(),
            samples: Vec::new(),
        };
        let whole = text.ends_with('\n');
        let last = text.lines().count();
        for (line, number) in lines.zip(2..) {
            let value = serde_json::from_str::<Value>(line).map_err(|error| error.to_string());
            let sample = value.and_then(|value| Sample::from_json(&value)).map_err(|why| {
                if number == last && !whole {
                    let what = format!(
                        "{name} is cut off in line {number}: the recording was interrupted, or the disk was full"
                    );
                    return Error::invalid(
                        what,
                        format!(
                            "take that line away (`sed -i '$d' {name}`); the {} samples before it are whole",
                            number - 2
                        ),
                    );
                }
                let what = format!("{name}, line {number}, is no sample: {why}");
                Error::invalid(what, "repair that line or take it away; the recorder writes one JSON object a line")
            })?;
            if trace.samples.last().is_some_and(|before| before.time > sample.time) {
                let what = format!("{name}, line {number}: the time goes backwards");
                return Err(Error::invalid(what, "one trace is one recording: two of them do not go into one file"));
            }
            trace.samples.push(sample);
        }
        Ok(trace)
    }

    /// As something to take samples from.
    pub fn source(&self) -> Planted {
        Planted::new(self.gpus.clone(), self.samples.clone(), Some(self.origin.clone()))
    }

    /// The GPUs' names.
    pub fn machine(&self) -> String {
        let mut names: Vec<&str> = self.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        names.dedup();
        names.join(", ")
    }

    /// Seconds since the trace's first sample.
    pub fn seconds(&self, sample: &Sample) -> f64 {
        self.samples.first().map_or(0.0, |first| sample.time.duration_since(first.time).as_secs_f64())
    }

    /// The samples of one phase of the job.
    pub fn phase(&self, name: &str) -> Vec<&Sample> {
        let of = |sample: &&Sample| sample.job.as_ref().is_some_and(|job| job.phase.as_deref() == Some(name));
        self.samples.iter().filter(of).collect()
    }

    /// The phases' names, in the order in which they begin.
    pub fn phases(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for phase in self.samples.iter().filter_map(|sample| sample.job.as_ref()?.phase.clone()) {
            if !names.contains(&phase) {
                names.push(phase);
            }
        }
        names
    }
}

/// The line that a trace begins with.
pub(crate) fn header(origin: &str, gpus: &[GpuInfo]) -> Value {
    let gpus: Vec<Value> = gpus.iter().map(|gpu| json!({"index": gpu.index, "name": gpu.name})).collect();
    json!({"gpulab_trace": VERSION, "origin": origin, "gpus": gpus})
}

/// Writes samples to a file as they come. Each is flushed: whoever is interrupted keeps all but the last one.
#[derive(Debug)]
pub struct TraceWriter {
    path: PathBuf,
    out: BufWriter<File>,
    csv: bool,
}

impl TraceWriter {
    /// Begins a file, a CSV where its name ends in `.csv`. One that exists is left alone.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn create(path: impl AsRef<Path>, source: &dyn SampleSource) -> Result<TraceWriter> {
        let path = path.as_ref();
        let failed =
            Error::io(path, "begin the trace", "choose a name that is not taken, in a folder where you may write");
        let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let file = folder.and_then(|()| File::create_new(path)).map_err(failed)?;
        let csv = path.extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"));
        let mut recorder = TraceWriter { path: path.to_path_buf(), out: BufWriter::new(file), csv };
        let first = match csv {
            true => columns(&["time".into(), "gpu".into()], |field| field.to_string()),
            false => header(source.origin().as_deref().unwrap_or("recorded"), &source.gpus()).to_string(),
        };
        recorder.line(&first)?;
        Ok(recorder)
    }

    /// Writes one sample.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn write(&mut self, sample: &Sample) -> Result<()> {
        let line = match self.csv {
            true => {
                let json = sample.to_json();
                columns(&[sample.time.to_string(), sample.gpu.to_string()], |name| {
                    let value = if json["job"][name].is_null() { &json[name] } else { &json["job"][name] };
                    match value {
                        Value::Null => String::new(),
                        Value::String(text) => text.clone(),
                        Value::Array(all) => all.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" "),
                        other => other.to_string(),
                    }
                })
            }
            false => sample.to_json().to_string(),
        };
        self.line(&line)
    }

    fn line(&mut self, line: &str) -> Result<()> {
        let written = writeln!(self.out, "{line}").and_then(|()| self.out.flush());
        written.map_err(Error::io(
            &self.path,
            "write the trace",
            "look at the disk's room; what was written before stays",
        ))
    }
}

/// A line of a CSV: the first cells, then one for each number, for the reasons, and for what the job says.
fn columns(first: &[String], cell: impl Fn(&str) -> String) -> String {
    let names = FIELDS.iter().map(|field| field.name).chain(["throttle", "phase", "step", "loss", "loader_wait"]);
    let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
    let written = writer.write_record(first.iter().cloned().chain(names.map(cell)));
    written.expect("writing to memory does not fail");
    let bytes = writer.into_inner().expect("writing to memory does not fail");
    String::from_utf8_lossy(&bytes).trim_end().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::planted;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gpulab-monitor-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        folder
    }

    fn record(path: &Path, trace: &SampleTrace) {
        let mut recorder = TraceWriter::create(path, &trace.source()).unwrap();
        trace.samples.iter().for_each(|sample| recorder.write(sample).unwrap());
    }

    #[test]
    fn what_was_recorded_is_read_again() {
        let (folder, made) = (folder("again"), planted::course());
        let path = folder.join("a/trace.jsonl");
        record(&path, &made);
        let read = SampleTrace::read(&path).unwrap();
        assert_eq!((&read.gpus, read.samples.len()), (&made.gpus, made.samples.len()));
        // NaN is not equal to itself, and is in there.
        assert!(format!("{:?}", read.samples) == format!("{:?}", made.samples));
        assert!(read.origin.contains("generated"), "a replay does not become a recording: {}", read.origin);
        assert!(TraceWriter::create(&path, &made.source()).unwrap_err().to_string().contains("next: choose a name"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_csv_has_a_column_for_each_number() {
        let (folder, made) = (folder("csv"), planted::course());
        let path = folder.join("trace.csv");
        record(&path, &made);
        let mut reader = csv::Reader::from_path(&path).unwrap();
        let columns = reader.headers().unwrap().clone();
        assert_eq!(columns.len(), FIELDS.len() + 7);
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        assert_eq!(rows.len(), made.samples.len());
        let power = columns.iter().position(|name| name == "power_w").unwrap();
        assert_eq!(rows[0][power].parse::<f64>().ok(), made.samples[0].power_w);
        assert!(SampleTrace::read(&path).unwrap_err().to_string().contains("is no trace"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_no_trace_or_cut_off_is_told() {
        let begin = header("recorded", &[]).to_string();
        let sample = Sample::default().to_json().to_string();
        let whole = format!("{begin}\n{sample}\n");
        assert_eq!(SampleTrace::parse(&whole, "t").unwrap().samples.len(), 1);
        assert_eq!(SampleTrace::parse(&format!("{begin}\n"), "t").unwrap().samples.len(), 0);
        let backwards = sample.replace("1970", "1969");
        for (text, said) in [
            (String::new(), "t is no trace: its first line"),
            ("\u{7f}ELF".to_string(), "is no trace"),
            (begin.replace(":1,", ":2,").replace("_trace\":1", "_trace\":2"), "version 2"),
            (format!("{begin}\n{sample}\n{}", &sample[..20]), "cut off in line 3"),
            (format!("{begin}\n{}\n{sample}\n", &sample[..20]), "line 2, is no sample"),
            (format!("{whole}{backwards}\n"), "goes backwards"),
        ] {
            let error = SampleTrace::parse(&text, "t").unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("\nnext: "), "{text}: {error}");
        }
        let error = SampleTrace::read("no/such/trace.jsonl").unwrap_err();
        assert!(matches!(error, Error::File { .. }), "{error}");
    }
}
