//! A thread that samples while the notebook goes on, and a chart that redraws itself.
//!
//! evcxr cannot change an output that was sent. So the thread writes the chart to a file in `results/live/`, and the output has a
//! script of a few lines which asks Jupyter's own server for that file. Nothing listens at another address for it, and it works
//! wherever the page comes from the machine that samples. Where no script runs, the chart is the still one.

use crate::chart;
use crate::prometheus::{Exporter, exposition};
use crate::sample::{Job, Sample, replace};
use crate::source::{GpuInfo, SampleSource};
use crate::{Alerts, Change, Rule};
use gpulab_measure::{Error, Result, repository, results};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So many samples are kept, and drawn.
const KEPT: usize = 600;
/// For errors.
const DRAWING: &str = "draw the live chart in";

/// What the thread and the reader share.
#[derive(Default)]
struct Shared {
    samples: Vec<Sample>,
    job: Option<Job>,
    alerts: Alerts,
    changes: Vec<Change>,
    failed: Option<Error>,
    drawn: Option<PathBuf>,
}

/// Samples a source in a thread of its own, until it is dropped.
pub struct Watch {
    gpus: Vec<GpuInfo>,
    shared: Arc<Mutex<Shared>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watch {
    /// Starts with these alert rules, and a sample at once.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an interval below a millisecond.
    pub fn start(source: Box<dyn SampleSource>, interval: Duration, rules: Vec<Rule>) -> Result<Watch> {
        if interval < Duration::from_millis(1) {
            return Err(Error::invalid(format!("an interval of {interval:?}"), "give a millisecond or more"));
        }
        let shared = Arc::new(Mutex::new(Shared { alerts: Alerts::new(rules), ..Shared::default() }));
        let (stop, stopped) = channel();
        let (gpus, own) = (source.gpus(), Arc::clone(&shared));
        let work = move || sampling(source, interval, &own, &stopped);
        let thread = std::thread::Builder::new().name("monitor".to_string()).spawn(work);
        let thread = thread.map_err(|error| {
            Error::unsupported(format!("no thread to sample in: {error}"), "end other programs, and try again")
        })?;
        Ok(Watch { gpus, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// What the job says of itself, for the samples from now on.
    pub fn report(&self, job: Job) {
        lock(&self.shared).job = Some(job);
    }

    /// The newest samples, at most 600.
    ///
    /// # Errors
    /// What ended the sampling.
    pub fn samples(&self) -> Result<Vec<Sample>> {
        let shared = lock(&self.shared);
        shared.failed.clone().map_or_else(|| Ok(shared.samples.clone()), Err)
    }

    /// Which alerts fired and were over, so far.
    pub fn changes(&self) -> Vec<Change> {
        lock(&self.shared).changes.clone()
    }

    /// Lets the newest sample of each GPU stand on an exporter's page.
    pub fn export(&self, exporter: &Exporter) {
        let shared = lock(&self.shared);
        let newest =
            self.gpus.iter().filter_map(|gpu| shared.samples.iter().rev().find(|sample| sample.gpu == gpu.index));
        let newest: Vec<Sample> = newest.cloned().collect();
        exporter.show(exposition(&self.gpus, &newest, &shared.alerts));
    }

    /// A chart that redraws itself as long as this lives: as the last expression of a cell, `watch.live("name")?` shows it.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is none for a file; [`Error::File`].
    pub fn live(&self, name: &str) -> Result<LiveChart> {
        if name.is_empty() || !name.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter)) {
            return Err(Error::invalid(format!("`{name}` as the name of a chart"), "use letters, digits, - and _"));
        }
        let path = results::dir().join("live").join(format!("{name}.svg"));
        let mut shared = lock(&self.shared);
        let still = draw(&shared.samples);
        replace(&path, &still, DRAWING)?;
        shared.drawn = Some(path.clone());
        Ok(LiveChart { still, path })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn sampling(mut source: Box<dyn SampleSource>, interval: Duration, shared: &Mutex<Shared>, stopped: &Receiver<()>) {
    let mut due = Instant::now();
    loop {
        // Without the lock: NVML takes its time.
        let taken = source.sample();
        let mut now = lock(shared);
        match taken {
            Ok(samples) if samples.is_empty() => return,
            Ok(samples) => {
                for mut sample in samples {
                    sample.job = now.job.clone().or(sample.job);
                    let changes = now.alerts.see(&sample);
                    now.changes.extend(changes);
                    now.samples.push(sample);
                }
            }
            Err(error) => {
                now.failed = Some(error);
                return;
            }
        }
        let old = now.samples.len().saturating_sub(KEPT);
        now.samples.drain(..old);
        let drawing = now.drawn.clone().map(|path| (path, now.samples.clone()));
        drop(now);
        if let Some((path, samples)) = drawing {
            // A disk that is full ends the chart, and not the sampling.
            let _ = replace(&path, &draw(&samples), DRAWING);
        }
        due += interval;
        // After a pause no sample is made up for.
        due = due.max(Instant::now());
        match stopped.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Err(RecvTimeoutError::Timeout) => {}
            _ => return,
        }
    }
}

/// The chart as a piece of a page.
fn draw(samples: &[Sample]) -> String {
    let (gpu, last) = samples
        .last()
        .map_or((0, "no sample yet".to_string()), |last| (last.gpu, format!("last sample: {:.0}", last.time)));
    chart::chart(samples, gpu).title("Now").note(&last).draw().html()
}

/// What [`Watch::live`] shows.
#[derive(Debug, Clone)]
#[must_use = "a chart shows itself as the last expression of a cell, without a semicolon"]
pub struct LiveChart {
    still: String,
    path: PathBuf,
}

/// Asks for the file each second, and puts it in the place of the chart; ends when the output is gone, or when nothing has changed for
/// a minute.
const SCRIPT: &str = "(() => {
  const place = document.getElementById('ID');
  const page = document.getElementById('jupyter-config-data');
  const base = page ? JSON.parse(page.textContent).baseUrl : null;
  let before = '', same = 0;
  const timer = base && setInterval(async () => {
    if (!place.isConnected || same > 60) { clearInterval(timer); return; }
    const answer = await fetch(base + 'files/PATH', {cache: 'no-store'}).catch(() => null);
    const text = answer && answer.ok ? await answer.text() : before;
    same = text === before ? same + 1 : 0;
    if (same === 0) { before = place.innerHTML = text; }
  }, 1000);
})();";

impl LiveChart {
    /// The piece of a page: the chart as it is now, and the script. Without a path that Jupyter's server knows it stays as it is.
    pub fn html(&self) -> String {
        let Ok(path) = self.path.strip_prefix(repository()) else { return self.still.clone() };
        let path = path.to_string_lossy().replace('\\', "/");
        // A cell that is run again has another place.
        let moment = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos();
        let id = format!("gpulab-live-{moment:x}");
        let script = SCRIPT.replace("ID", &id).replace("PATH", &path);
        format!("<div id=\"{id}\">{}</div>\n<script>\n{script}\n</script>\n", self.still)
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        print!("EVCXR_BEGIN_CONTENT text/html\n{}EVCXR_END_CONTENT\n", self.html());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{NoGpu, built_in, planted};

    fn until(what: impl Fn() -> bool) {
        let begin = Instant::now();
        while !what() {
            assert!(begin.elapsed() < Duration::from_secs(20), "it does not come");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    #[test]
    fn a_thread_samples_tells_alerts_and_ends() {
        let watch = Watch::start(Box::new(planted::course().source()), Duration::from_millis(1), built_in()).unwrap();
        until(|| watch.changes().iter().any(|change| change.alert == "loss-not-finite"));
        assert!(watch.changes().iter().any(|change| change.alert == "loader-stalled" && !change.firing));
        assert!(watch.samples().unwrap().len() <= KEPT);
        drop(watch);
        assert!(Watch::start(Box::new(NoGpu), Duration::ZERO, Vec::new()).is_err());
    }

    #[test]
    fn what_a_job_reports_is_watched_without_a_gpu() {
        let watch = Watch::start(Box::new(NoGpu), Duration::from_millis(1), built_in()).unwrap();
        watch.report(Job { loss: Some(f64::NAN), ..Job::default() });
        until(|| !watch.changes().is_empty());
        assert_eq!(watch.changes()[0].alert, "loss-not-finite");
    }

    #[test]
    fn a_live_chart_has_a_still_one_and_asks_for_a_file() {
        let still = draw(&planted::course().samples);
        let inside = LiveChart { still: still.clone(), path: repository().join("results/live/a.svg") }.html();
        assert!(inside.contains("<svg") && inside.contains("'files/results/live/a.svg'") && !inside.contains("'ID'"));
        let outside = LiveChart { still, path: PathBuf::from("/elsewhere/a.svg") }.html();
        assert!(outside.contains("<svg") && !outside.contains("<script"));
        let watch = Watch::start(Box::new(NoGpu), Duration::from_secs(1), Vec::new()).unwrap();
        assert!(matches!(watch.live("../x"), Err(Error::Invalid { .. })));
    }

    #[test]
    fn a_source_that_fails_says_so() {
        struct Failing;
        impl SampleSource for Failing {
            fn gpus(&self) -> Vec<GpuInfo> {
                Vec::new()
            }
            fn sample(&mut self) -> Result<Vec<Sample>> {
                Err(Error::unsupported("gone", "look"))
            }
        }
        let watch = Watch::start(Box::new(Failing), Duration::from_millis(1), Vec::new()).unwrap();
        until(|| watch.samples().is_err());
    }
}
