//! The text that Prometheus reads (exposition format 0.0.4), and a page with it at an address of this machine.

use crate::alerts::{Alerts, State};
use crate::sample::{FIELDS, Sample};
use crate::source::GpuInfo;
use gpulab_measure::{Error, Result};
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tiny_http::{Header, Method, Response, Server};

/// The reasons that are always exported, as 0 or 1: a series that is there at times cannot be asked for its zero.
const REASONS: [&str; 8] = [
    "GPU_IDLE",
    "APPLICATIONS_CLOCKS_SETTING",
    "SW_POWER_CAP",
    "HW_SLOWDOWN",
    "SYNC_BOOST",
    "SW_THERMAL_SLOWDOWN",
    "HW_THERMAL_SLOWDOWN",
    "HW_POWER_BRAKE_SLOWDOWN",
];

/// What is exported beside the table of numbers: name, kind, meaning.
const MORE: [(&str, &str, &str); 6] = [
    ("gpulab_gpu_throttle", "gauge", "Whether the clocks are lower for this reason, by NVML's name."),
    ("gpulab_gpu_process_memory_bytes", "gauge", "Device memory that a process has taken."),
    ("gpulab_job_step", "gauge", "The training step that the job has come to."),
    ("gpulab_job_loss", "gauge", "The loss of that step."),
    ("gpulab_job_loader_wait_ratio", "gauge", "Share of that step in which the job waited for data."),
    ("gpulab_alert_firing", "gauge", "Whether an alert fires."),
];

/// A label's value: backslash, quote and line feed are written as the format asks.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number as the format writes it: `NaN`, `+Inf` and `-Inf` are values.
fn figure(value: f64) -> String {
    match value {
        value if value.is_nan() => "NaN".to_string(),
        value if value.is_infinite() => if value > 0.0 { "+Inf" } else { "-Inf" }.to_string(),
        value => value.to_string(),
    }
}

/// The newest samples, one of each GPU, and the alerts, as Prometheus reads them. What a sample lacks has no line.
pub fn exposition(gpus: &[GpuInfo], samples: &[Sample], alerts: &Alerts) -> String {
    let mut text = String::new();
    let name = |gpu: u32| gpus.iter().find(|info| info.index == gpu).map_or("", |info| info.name.as_str());
    let labels = |sample: &Sample| format!("gpu=\"{}\",name=\"{}\"", sample.gpu, escape(name(sample.gpu)));
    let mut family = |metric: &str, kind: &str, help: &str, lines: Vec<(String, f64)>| {
        if !lines.is_empty() {
            let _ = writeln!(text, "# HELP {metric} {}\n# TYPE {metric} {kind}", help.replace('\\', "\\\\"));
        }
        for (labels, value) in lines {
            let _ = writeln!(text, "{metric}{{{labels}}} {}", figure(value));
        }
    };
    for field in FIELDS {
        let lines = samples.iter().filter_map(|sample| Some((labels(sample), (field.get)(sample)? * field.scale)));
        family(field.metric, if field.is_counter() { "counter" } else { "gauge" }, field.help, lines.collect());
    }
    for (metric, kind, help) in MORE {
        let of_job = |value: fn(&crate::sample::Job) -> Option<f64>| -> Vec<(String, f64)> {
            // One job, whichever GPUs it has.
            let job = samples.iter().find_map(|sample| sample.job.as_ref());
            job.and_then(value).map(|value| (String::new(), value)).into_iter().collect()
        };
        let lines: Vec<(String, f64)> = match metric {
            "gpulab_gpu_throttle" => {
                let known = samples.iter().filter_map(|sample| Some((sample, sample.throttle.as_ref()?)));
                let each = |(sample, reasons): (&Sample, &Vec<String>)| {
                    let line = |reason: &&str| {
                        let on = reasons.iter().any(|one| one == reason);
                        (format!("{},reason=\"{reason}\"", labels(sample)), f64::from(u8::from(on)))
                    };
                    REASONS.iter().map(line).collect::<Vec<_>>()
                };
                known.flat_map(each).collect()
            }
            "gpulab_gpu_process_memory_bytes" => {
                let each = |sample: &Sample| {
                    let of = |process: &crate::sample::Process| {
                        Some((format!("{},pid=\"{}\"", labels(sample), process.pid), process.memory_bytes?))
                    };
                    sample.processes.iter().flatten().filter_map(of).collect::<Vec<_>>()
                };
                samples.iter().flat_map(each).collect()
            }
            "gpulab_job_step" => of_job(|job| job.step),
            "gpulab_job_loss" => of_job(|job| job.loss),
            "gpulab_job_loader_wait_ratio" => of_job(|job| job.loader_wait),
            _ => {
                let line = |(rule, gpu, state): (&str, u32, State)| {
                    let firing = f64::from(u8::from(matches!(state, State::Firing { .. })));
                    (format!("alert=\"{}\",gpu=\"{gpu}\"", escape(rule)), firing)
                };
                alerts.states().map(line).collect()
            }
        };
        family(metric, kind, help, lines);
    }
    text
}

/// The names of all metrics.
pub fn metrics() -> Vec<&'static str> {
    FIELDS.iter().map(|field| field.metric).chain(MORE.map(|one| one.0)).collect()
}

/// A page `/metrics` at an address, until it is dropped.
pub struct Exporter {
    server: Arc<Server>,
    page: Arc<Mutex<String>>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Listens at such as `127.0.0.1:9400`; port 0 takes a free one. The page tells what runs here to whoever can reach the
    /// address, so it is this machine's own unless somebody asks for another.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that is none, [`Error::Unsupported`] for one that cannot be listened at.
    pub fn start(address: &str) -> Result<Exporter> {
        let wanted: SocketAddr = address.parse().map_err(|_| {
            Error::invalid(
                format!("`{address}` is no address with a port"),
                "write such as 127.0.0.1:9400, or 127.0.0.1:0 for a free port",
            )
        })?;
        let server = Server::http(wanted).map_err(|error| {
            Error::unsupported(
                format!("nothing can listen at {address}: {error}"),
                "another program has the port, or this user may not take it: choose one above 1023, or 127.0.0.1:0 for a free one",
            )
        })?;
        let (server, page) = (Arc::new(server), Arc::new(Mutex::new(String::new())));
        let (listener, shown) = (Arc::clone(&server), Arc::clone(&page));
        let serve = move || {
            let kind = Header::from_bytes("Content-Type", "text/plain; version=0.0.4; charset=utf-8").expect("ASCII");
            for request in listener.incoming_requests() {
                let path = request.url().split('?').next().unwrap_or_default().to_string();
                let (code, text) = match (request.method(), path.as_str()) {
                    (Method::Get | Method::Head, "/metrics") => {
                        (200, shown.lock().unwrap_or_else(PoisonError::into_inner).clone())
                    }
                    (Method::Get | Method::Head, "/") => {
                        (200, "gpulab monitor: the numbers are at /metrics\n".to_string())
                    }
                    (Method::Get | Method::Head, _) => (404, "nothing here: the numbers are at /metrics\n".to_string()),
                    _ => (405, "only GET\n".to_string()),
                };
                // A reader that has gone away is no concern of ours.
                let _ = request.respond(Response::from_string(text).with_status_code(code).with_header(kind.clone()));
            }
        };
        let thread = std::thread::Builder::new().name("exporter".to_string()).spawn(serve);
        let thread = thread.map_err(|error| {
            Error::unsupported(format!("no thread for the page: {error}"), "end other programs, and try again")
        })?;
        Ok(Exporter { server, page, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.server.server_addr().to_string()
    }

    /// What the page shows from now on.
    pub fn show(&self, text: String) {
        *self.page.lock().unwrap_or_else(PoisonError::into_inner) = text;
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.server.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alerts::built_in;
    use crate::planted;
    use serde_json::Value;
    use std::collections::BTreeSet;
    use std::io::{Read, Write};
    use std::net::TcpStream;

    fn page() -> String {
        let made = planted::course();
        let mut alerts = Alerts::new(built_in());
        let mut page = String::new();
        for sample in &made.samples {
            alerts.see(sample);
            page = exposition(&made.gpus, std::slice::from_ref(sample), &alerts);
        }
        page
    }

    /// The names of a page's metrics, after each of its lines was looked at.
    fn names(page: &str) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(value == "NaN" || value == "+Inf" || value.parse::<f64>().is_ok(), "{line}");
            names.insert(series.split('{').next().unwrap().to_string());
        }
        assert!(page.ends_with('\n'));
        names
    }

    #[test]
    fn all_that_a_sample_has_is_exported_once_in_base_units() {
        let page = page();
        assert!(page.contains("gpulab_gpu_utilization_ratio{gpu=\"0\",name=\"a planted GPU\"} 0."), "{page}");
        assert!(page.contains("# TYPE gpulab_gpu_energy_joules_total counter\n"));
        assert!(page.contains("gpulab_job_loss{} NaN\n"), "the last phase's loss");
        assert!(page.contains("gpulab_alert_firing{alert=\"loss-not-finite\",gpu=\"0\"} 1\n"));
        assert!(page.contains("reason=\"SW_POWER_CAP\"} 0\n"));
        let (seen, known) = (names(&page), metrics());
        assert!(seen.iter().all(|name| known.contains(&name.as_str())));
        // The planted GPU has no NVLink.
        let missing: Vec<&&str> = known.iter().filter(|name| !seen.contains(**name)).collect();
        assert!(missing.iter().all(|name| name.contains("nvlink")), "{missing:?}");
        let mut types: Vec<&str> = page.lines().filter(|line| line.starts_with("# TYPE")).collect();
        types.sort_unstable();
        types.dedup();
        assert_eq!(types.len(), seen.len(), "a family is told once");
    }

    #[test]
    fn what_is_not_known_has_no_line_and_labels_are_escaped() {
        assert_eq!(exposition(&[], &[Sample::default()], &Alerts::default()), "");
        let gpus = [GpuInfo { index: 0, name: "a \"b\" \\ c\nd".to_string() }];
        let page = exposition(&gpus, &[Sample { power_w: Some(1.5), ..Sample::default() }], &Alerts::default());
        assert!(page.contains("name=\"a \\\"b\\\" \\\\ c\\nd\"} 1.5\n"), "{page}");
    }

    fn get(address: &str, request: &str) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn the_page_is_there_until_it_is_dropped_and_a_port_is_taken_once() {
        let exporter = Exporter::start("127.0.0.1:0").unwrap();
        let address = exporter.address();
        exporter.show("gpulab_job_step{} 3\n".to_string());
        let answer = get(&address, "GET /metrics");
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("version=0.0.4"), "{answer}");
        assert!(answer.ends_with("gpulab_job_step{} 3\n"), "{answer}");
        assert!(get(&address, "GET /other").starts_with("HTTP/1.1 404"));
        assert!(get(&address, "POST /metrics").starts_with("HTTP/1.1 405"));
        let error = Exporter::start(&address).err().unwrap();
        assert!(
            matches!(error, Error::Unsupported { .. }) && error.to_string().contains("\nnext: another program"),
            "{error}"
        );
        drop(exporter);
        // The system gives the port back a moment later.
        let mut free = (0..200).map(|_| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            Exporter::start(&address)
        });
        assert!(free.any(|started| started.is_ok()));
        assert!(matches!(Exporter::start("here").err().unwrap(), Error::Invalid { .. }));
    }

    #[test]
    fn the_dashboard_asks_for_metrics_that_are_exported() {
        let dashboard: Value = serde_json::from_str(include_str!("../grafana/dashboard.json")).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let queries: Vec<&str> = panels
            .iter()
            .flat_map(|panel| panel["targets"].as_array().unwrap())
            .map(|target| target["expr"].as_str().unwrap())
            .collect();
        let known = metrics();
        let mut asked = BTreeSet::new();
        for query in &queries {
            let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
            let named: Vec<&str> = words.filter(|word| word.starts_with("gpulab_")).collect();
            assert!(!named.is_empty(), "{query} asks for nothing of ours");
            for name in named {
                assert!(known.contains(&name), "{query}: `{name}` is not exported");
                asked.insert(name);
            }
        }
        let unseen: Vec<&&str> = known.iter().filter(|name| !asked.contains(**name)).collect();
        assert!(unseen.is_empty(), "no panel shows {unseen:?}");
    }
}
