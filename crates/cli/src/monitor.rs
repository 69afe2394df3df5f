//! `gpulab monitor`: samples from NVML or from a trace; to the terminal, to a file, to Prometheus, to the alert rules.

use crate::options::Monitor;
use gpulab::error::{Error, Result};
use gpulab_monitor::alerts::{self, Alerts, Change, Condition, Rule};
use gpulab_monitor::{Exporter, Job, Sample, SampleSource, SampleTrace, TraceWriter, built_in, chart, prometheus};
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant, SystemTime};

/// A job that has said nothing for so long is not taken for one.
const SILENT_S: f64 = 300.0;

/// Watches until the time is over, the command has ended, or the trace.
///
/// # Errors
/// Those of NVML, of the files, and of the address; [`Error::Invalid`] for a command that cannot be started.
pub fn monitor(options: &Monitor) -> Result<String> {
    let mut source: Box<dyn SampleSource> = match &options.replay {
        Some(file) => Box::new(Replay::new(&SampleTrace::read(file)?, options.speed)),
        None => gpulab_monitor::open(&options.gpu)?,
    };
    let mut alerts = Alerts::new(rules(options)?);
    let exporter = options.prometheus.as_deref().map(Exporter::start).transpose()?;
    let mut recorder = options.record.as_ref().map(|file| TraceWriter::create(file, source.as_ref())).transpose()?;
    let mut job = JobFile::new(options)?;
    let mut view = View::new(job.child.is_none());
    let names: Vec<String> = source.gpus().into_iter().map(|gpu| gpu.name).collect();
    view.say(&match source.origin() {
        Some(origin) => format!("a trace of {}, {origin}", names.join(", ")),
        None => format!("{}, every {} s; Ctrl-C ends it", names.join(", "), options.interval),
    });
    if let Some(exporter) = &exporter {
        view.say(&format!("http://{}/metrics", exporter.address()));
    }
    let (begin, mut due, mut told) = (Instant::now(), Instant::now(), false);
    loop {
        let mut samples = source.sample()?;
        if samples.is_empty() || options.seconds.is_some_and(|limit| begin.elapsed().as_secs_f64() >= limit) {
            break;
        }
        let mut changes = Vec::new();
        for sample in &mut samples {
            sample.job = job.read().or(sample.job.take());
            changes.extend(alerts.see(sample));
            recorder.as_mut().map_or(Ok(()), |recorder| recorder.write(sample))?;
        }
        if let Some(exporter) = &exporter {
            exporter.show(prometheus::exposition(&source.gpus(), &samples, &alerts));
        }
        if !told && !source.missing().is_empty() {
            let missing = source.missing();
            let each: Vec<String> = missing.iter().map(|(field, why)| format!("{field} ({why})")).collect();
            view.say(&format!("not to be had here: {}", each.join(", ")));
        }
        told = true;
        view.show(&chart::lines(&source.gpus(), &samples, &alerts), &samples, &changes);
        let for_nobody = view.unread && recorder.is_none() && exporter.is_none() && job.child.is_none();
        if for_nobody || job.ended()? {
            break;
        }
        if options.replay.is_none() {
            due = (due + Duration::from_secs_f64(options.interval)).max(Instant::now());
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
    }
    let file = options.record.as_ref().map_or(String::new(), |file| format!("{}\n", file.display()));
    Ok(format!("{file}{}", cost(begin.elapsed())))
}

fn rules(options: &Monitor) -> Result<Vec<Rule>> {
    if let Some(file) = &options.alerts {
        return alerts::read_rules(file);
    }
    let mut rules = built_in();
    for rule in &mut rules {
        match (&mut rule.condition, options.hot, options.idle) {
            (Condition::Above(field, limit), Some(hot), _) if field.name == "temperature_c" => *limit = hot,
            (Condition::IdleWithJob(_), _, Some(seconds)) => rule.for_s = seconds,
            _ => {}
        }
    }
    Ok(rules)
}

/// A trace at its own pace, or faster.
struct Replay {
    planted: gpulab_monitor::Planted,
    first: Option<gpulab_monitor::jiff::Timestamp>,
    begin: Instant,
    speed: f64,
}

impl Replay {
    fn new(trace: &SampleTrace, speed: f64) -> Replay {
        let planted = trace.source();
        Replay { first: planted.next_time(), planted, begin: Instant::now(), speed }
    }
}

impl SampleSource for Replay {
    fn gpus(&self) -> Vec<gpulab_monitor::GpuInfo> {
        self.planted.gpus()
    }

    fn sample(&mut self) -> Result<Vec<Sample>> {
        if let (Some(next), Some(first)) = (self.planted.next_time(), self.first) {
            let after = next.duration_since(first).as_secs_f64() / self.speed;
            std::thread::sleep(
                (self.begin + Duration::from_secs_f64(after.max(0.0))).saturating_duration_since(Instant::now()),
            );
        }
        self.planted.sample()
    }

    fn origin(&self) -> Option<String> {
        self.planted.origin()
    }
}

/// What the job says, and the job itself where it was started here.
struct JobFile {
    path: Option<PathBuf>,
    child: Option<Child>,
}

impl JobFile {
    fn new(options: &Monitor) -> Result<JobFile> {
        let Some((program, arguments)) = options.command.split_first() else {
            return Ok(JobFile { path: options.job.clone(), child: None });
        };
        let own = || std::env::temp_dir().join(format!("gpulab-job-{}.json", std::process::id()));
        let path = options.job.clone().unwrap_or_else(own);
        Job::default().tell(&path)?;
        let child = Command::new(program).args(arguments).env("GPULAB_JOB", &path).spawn().map_err(|error| {
            Error::invalid(
                format!("`{program}` cannot be started: {error}"),
                "write the command as in a shell, behind `--`",
            )
        })?;
        Ok(JobFile { path: Some(path), child: Some(child) })
    }

    /// `None` where there is no file, where it is being written, or where it is old.
    fn read(&self) -> Option<Job> {
        let path: &Path = self.path.as_ref()?;
        let age = SystemTime::now().duration_since(path.metadata().ok()?.modified().ok()?).unwrap_or_default();
        let text = std::fs::read_to_string(path).ok().filter(|_| age.as_secs_f64() < SILENT_S)?;
        Job::from_json(&gpulab_monitor::serde_json::from_str(&text).ok()?)
    }

    /// Whether the command has come to its end.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it failed.
    fn ended(&mut self) -> Result<bool> {
        let Some(child) = &mut self.child else { return Ok(false) };
        match child.try_wait() {
            Ok(None) => Ok(false),
            Ok(Some(status)) if status.success() => Ok(true),
            Ok(Some(status)) => Err(Error::invalid(
                format!("the command failed ({status})"),
                "look at what it says above; what was recorded until then is kept",
            )),
            Err(error) => Err(Error::invalid(
                format!("the command cannot be waited for: {error}"),
                "start it by itself, and watch it with --job",
            )),
        }
    }
}

impl Drop for JobFile {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
            let _ = self.path.as_ref().map(std::fs::remove_file);
        }
    }
}

/// The terminal: lines that are drawn anew in a terminal of one's own, else a line for each change.
struct View {
    redraw: bool,
    alone: bool,
    lines: usize,
    /// Whoever read has gone away (`gpulab monitor | head -3`).
    unread: bool,
}

impl View {
    /// `alone`: no command writes to the same terminal.
    fn new(alone: bool) -> View {
        View { redraw: alone && std::io::stdout().is_terminal(), alone, lines: 0, unread: false }
    }

    fn say(&mut self, text: &str) {
        self.unread |= writeln!(std::io::stdout(), "{text}").is_err();
    }

    fn show(&mut self, lines: &[String], samples: &[Sample], changes: &[Change]) {
        if self.redraw {
            let up = if self.lines > 0 { format!("\x1b[{}A", self.lines) } else { String::new() };
            // To the end of each line, and below the last, nothing old is left.
            let text: String = lines.iter().map(|line| format!("{line}\x1b[K\n")).collect();
            let _ = write!(std::io::stdout(), "{up}{text}\x1b[J");
            let _ = std::io::stdout().flush();
            self.lines = lines.len();
            return;
        }
        for change in changes {
            self.say(&change.to_string());
        }
        if self.alone {
            samples.iter().for_each(|sample| self.say(&summary(sample)));
        }
    }
}

/// One GPU in one line.
fn summary(sample: &Sample) -> String {
    let part = |value: Option<f64>, unit: &str| value.map(|value| format!("{value:.0} {unit}"));
    let memory = sample.memory_used_bytes.map(|used| gpulab::error::bytes(used as u64));
    let parts = [
        Some(format!("{:.0} GPU {}", sample.time, sample.gpu)),
        part(sample.utilization_percent, "%"),
        part(sample.power_w, "W"),
        part(sample.temperature_c, "°C"),
        part(sample.sm_clock_mhz, "MHz"),
        memory,
        sample.job.as_ref().and_then(|job| job.phase.clone()),
    ];
    parts.into_iter().flatten().collect::<Vec<String>>().join("   ")
}

/// What the watching itself took.
fn cost(wall: Duration) -> String {
    // SAFETY: plain numbers, for which 0 is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the struct outlives the call, which only writes to it.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    let (cpu, wall) = (seconds(usage.ru_utime) + seconds(usage.ru_stime), wall.as_secs_f64());
    format!(
        "watched for {wall:.1} s; that took {:.0} ms of CPU time, {:.2} % of a core",
        1e3 * cpu,
        100.0 * cpu / wall.max(1e-9)
    )
}
