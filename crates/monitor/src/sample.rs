//! What is known of one GPU at one moment, and how it is written down.

use gpulab_measure::error::save;
use gpulab_measure::{Error, Result};
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use std::fmt;
use std::path::Path;

/// One number of a [`Sample`]: what it is called in traces and in alert rules, and as what it is exported.
#[derive(Clone, Copy)]
pub struct Field {
    /// The name in [`Sample`], in traces and in alert rules; its end is the unit.
    pub name: &'static str,
    /// What it means, in a sentence.
    pub help: &'static str,
    /// The name in Prometheus, which asks for base units.
    pub metric: &'static str,
    /// What makes the base unit of it, such as 0.01 of percent.
    pub scale: f64,
    /// The value in a sample.
    pub get: fn(&Sample) -> Option<f64>,
    /// The place in a sample.
    pub set: fn(&mut Sample) -> &mut Option<f64>,
}

impl fmt::Debug for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Field {
    /// The field of this name.
    ///
    /// # Errors
    /// [`Error::Invalid`], with all names.
    pub fn named(name: &str) -> Result<&'static Field> {
        FIELDS.iter().find(|field| field.name == name).ok_or_else(|| {
            let names: Vec<&str> = FIELDS.iter().map(|field| field.name).collect();
            Error::invalid(format!("a sample has no field `{name}`"), format!("use one of: {}", names.join(", ")))
        })
    }

    /// Whether it only grows.
    pub fn is_counter(&self) -> bool {
        self.metric.ends_with("_total")
    }
}

/// One list of the numbers makes the struct, and the table that everything else goes by.
macro_rules! fields {
    ($(#[doc = $help:literal] $name:ident: $metric:literal * $scale:literal;)+) => {
        /// One GPU at one moment. Every number may be missing: MIG instances, integrated and virtual GPUs lack some.
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct Sample {
            /// When it was taken.
            pub time: Timestamp,
            /// NVML's number of the GPU, which does not follow `CUDA_VISIBLE_DEVICES`.
            pub gpu: u32,
            $(#[doc = $help] pub $name: Option<f64>,)+
            /// Why the clocks are lower than they could be, by NVML's names; empty: for no reason.
            pub throttle: Option<Vec<String>>,
            /// The processes with a compute context on the GPU.
            pub processes: Option<Vec<Process>>,
            /// What the job says of itself.
            pub job: Option<Job>,
        }

        /// All numbers of a [`Sample`].
        pub const FIELDS: &[Field] = &[$(Field {
            name: stringify!($name),
            help: $help,
            metric: $metric,
            scale: $scale,
            get: |sample| sample.$name,
            set: |sample| &mut sample.$name,
        }),+];
    };
}

fields! {
    #[doc = "Share of the last sampling period in which at least one kernel ran, on however many multiprocessors."]
    utilization_percent: "gpulab_gpu_utilization_ratio" * 0.01;
    #[doc = "Share of the last sampling period in which device memory was read or written, at whatever rate."]
    memory_utilization_percent: "gpulab_gpu_memory_utilization_ratio" * 0.01;
    #[doc = "Device memory that is taken, by whomever, used or not."]
    memory_used_bytes: "gpulab_gpu_memory_used_bytes" * 1.0;
    #[doc = "Device memory in all."]
    memory_total_bytes: "gpulab_gpu_memory_total_bytes" * 1.0;
    #[doc = "Power draw of the board; an average over some tens of milliseconds to a second, by product."]
    power_w: "gpulab_gpu_power_watts" * 1.0;
    #[doc = "The power limit that is enforced."]
    power_limit_w: "gpulab_gpu_power_limit_watts" * 1.0;
    #[doc = "Energy since the driver was loaded."]
    energy_j: "gpulab_gpu_energy_joules_total" * 1.0;
    #[doc = "Temperature of the chip."]
    temperature_c: "gpulab_gpu_temperature_celsius" * 1.0;
    #[doc = "Clock of the multiprocessors."]
    sm_clock_mhz: "gpulab_gpu_sm_clock_hertz" * 1e6;
    #[doc = "Clock of the device memory."]
    memory_clock_mhz: "gpulab_gpu_memory_clock_hertz" * 1e6;
    #[doc = "Bytes a second that the GPU receives over PCIe, over the last 20 ms."]
    pcie_rx_bytes_per_s: "gpulab_gpu_pcie_receive_bytes_per_second" * 1.0;
    #[doc = "Bytes a second that the GPU sends over PCIe, over the last 20 ms."]
    pcie_tx_bytes_per_s: "gpulab_gpu_pcie_transmit_bytes_per_second" * 1.0;
    #[doc = "Bytes received over all NVLinks since the driver was loaded."]
    nvlink_rx_bytes: "gpulab_gpu_nvlink_receive_bytes_total" * 1.0;
    #[doc = "Bytes sent over all NVLinks since the driver was loaded."]
    nvlink_tx_bytes: "gpulab_gpu_nvlink_transmit_bytes_total" * 1.0;
    #[doc = "Memory errors since the driver was loaded that ECC corrected."]
    ecc_corrected: "gpulab_gpu_ecc_corrected_total" * 1.0;
    #[doc = "Memory errors since the driver was loaded that ECC found and could not correct."]
    ecc_uncorrected: "gpulab_gpu_ecc_uncorrected_total" * 1.0;
}

/// A process on a GPU. In a container NVML may give the host's number, or none at all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Process {
    /// The process's number.
    pub pid: u32,
    /// Device memory that it has taken.
    pub memory_bytes: Option<f64>,
}

/// What a job says of itself: a file with this as one JSON object, written anew in each step by whoever trains.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Job {
    /// What it is doing.
    pub phase: Option<String>,
    /// The step that it has come to.
    pub step: Option<f64>,
    /// The loss of that step; NaN and infinity are values, too.
    pub loss: Option<f64>,
    /// The share of that step in which it waited for data, 0 to 1.
    pub loader_wait: Option<f64>,
}

/// Writes a file that somebody else may read at the same moment: the old one or the new one, and never half of it.
pub(crate) fn replace(path: &Path, text: &str, during: &str) -> Result<()> {
    let part = path.with_extension("part");
    save(&part, text, during)?;
    std::fs::rename(&part, path).map_err(Error::io(
        path,
        during,
        "choose a folder where you may write, on a disk with room",
    ))
}

/// JSON has no NaN: such a number is written as a text.
fn number(value: f64) -> Value {
    if value.is_finite() { json!(value) } else { json!(value.to_string()) }
}

fn read_number(value: &Value) -> Option<f64> {
    value.as_f64().or_else(|| value.as_str()?.parse().ok())
}

impl Job {
    /// As JSON; what is not known is left out.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        if let Some(phase) = &self.phase {
            object.insert("phase".to_string(), json!(phase));
        }
        for (name, value) in [("step", self.step), ("loss", self.loss), ("loader_wait", self.loader_wait)] {
            if let Some(value) = value {
                object.insert(name.to_string(), number(value));
            }
        }
        Value::Object(object)
    }

    /// Writes it to the file that a monitor reads (`GPULAB_JOB`), whole or not at all.
    ///
    /// # Errors
    /// [`Error::File`].
    pub fn tell(&self, path: &Path) -> Result<()> {
        replace(path, &self.to_json().to_string(), "tell the monitor in")
    }

    /// From JSON; names that it does not know are passed over. `None` where it is no object.
    pub fn from_json(value: &Value) -> Option<Job> {
        let object = value.as_object()?;
        let of = |name: &str| object.get(name).and_then(read_number);
        let phase = object.get("phase").and_then(Value::as_str).map(str::to_string);
        Some(Job { phase, step: of("step"), loss: of("loss"), loader_wait: of("loader_wait") })
    }
}

impl Sample {
    /// Whether something runs, or means to: a process on the GPU, or a job that speaks. `None` where neither is known.
    pub fn has_job(&self) -> Option<bool> {
        match (&self.job, &self.processes) {
            (Some(_), _) => Some(true),
            (None, Some(processes)) => Some(!processes.is_empty()),
            (None, None) => None,
        }
    }

    /// The share of the memory that is taken, 0 to 1.
    pub fn memory_share(&self) -> Option<f64> {
        let total = self.memory_total_bytes.filter(|total| *total > 0.0)?;
        Some(self.memory_used_bytes? / total)
    }

    /// One line of a trace; what is not known is left out.
    pub fn to_json(&self) -> Value {
        let mut object = Map::new();
        object.insert("time".to_string(), json!(self.time.to_string()));
        object.insert("gpu".to_string(), json!(self.gpu));
        for field in FIELDS {
            if let Some(value) = (field.get)(self) {
                object.insert(field.name.to_string(), number(value));
            }
        }
        if let Some(reasons) = &self.throttle {
            object.insert("throttle".to_string(), json!(reasons));
        }
        if let Some(processes) = &self.processes {
            let one = |process: &Process| match process.memory_bytes {
                Some(bytes) => json!({"pid": process.pid, "memory_bytes": bytes}),
                None => json!({"pid": process.pid}),
            };
            object.insert("processes".to_string(), processes.iter().map(one).collect());
        }
        if let Some(job) = &self.job {
            object.insert("job".to_string(), job.to_json());
        }
        Value::Object(object)
    }

    /// From a line of a trace. The error says what is wrong with it, without file and line.
    pub fn from_json(value: &Value) -> Result<Sample, String> {
        let object = value.as_object().ok_or("no JSON object")?;
        let time = object.get("time").and_then(Value::as_str).ok_or("no `time`")?;
        let time = time.parse::<Timestamp>().map_err(|error| format!("its `time` is none: {error}"))?;
        let gpu = object.get("gpu").and_then(Value::as_u64).and_then(|gpu| u32::try_from(gpu).ok());
        let mut sample = Sample { time, gpu: gpu.ok_or("no `gpu`, a whole number")?, ..Sample::default() };
        for field in FIELDS {
            if let Some(value) = object.get(field.name) {
                let number = read_number(value).ok_or_else(|| format!("its `{}` is no number", field.name))?;
                *(field.set)(&mut sample) = Some(number);
            }
        }
        let list = |name: &str| object.get(name).and_then(Value::as_array);
        let text = |value: &Value| value.as_str().map(str::to_string);
        sample.throttle = list("throttle").map(|reasons| reasons.iter().filter_map(text).collect());
        let process = |value: &Value| {
            let pid = value["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok())?;
            Some(Process { pid, memory_bytes: value["memory_bytes"].as_f64() })
        };
        sample.processes = list("processes").map(|all| all.iter().filter_map(process).collect());
        sample.job = object.get("job").and_then(Job::from_json);
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_comes_back_from_its_line_whole_or_empty() {
        let job = Job { phase: Some("train".into()), step: Some(3.0), loss: Some(f64::NAN), loader_wait: None };
        let mut full = Sample { gpu: 1, throttle: Some(vec!["SW_POWER_CAP".into()]), ..Sample::default() };
        for (at, field) in FIELDS.iter().enumerate() {
            *(field.set)(&mut full) = Some(at as f64 + 0.5);
        }
        full.processes =
            Some(vec![Process { pid: 7, memory_bytes: Some(1e9) }, Process { pid: 8, memory_bytes: None }]);
        let empty = Sample::default();
        for sample in [&full, &empty] {
            assert_eq!(&Sample::from_json(&sample.to_json()).unwrap(), sample);
        }
        assert_eq!(empty.to_json().as_object().unwrap().len(), 2, "what is not known is left out");
        full.job = Some(job);
        let back = Sample::from_json(&serde_json::from_str(&full.to_json().to_string()).unwrap()).unwrap();
        let job = back.job.unwrap();
        assert!(job.loss.unwrap().is_nan() && job.step == Some(3.0) && job.loader_wait.is_none());
    }

    #[test]
    fn what_is_no_sample_is_told() {
        for (line, said) in [
            ("3", "no JSON object"),
            ("{}", "no `time`"),
            (r#"{"time":"yesterday","gpu":0}"#, "its `time` is none"),
            (r#"{"time":"2026-11-23T22:00:00Z"}"#, "no `gpu`"),
            (r#"{"time":"2026-11-23T22:00:00Z","gpu":0,"power_w":"much"}"#, "`power_w` is no number"),
        ] {
            let said_here = Sample::from_json(&serde_json::from_str(line).unwrap()).unwrap_err();
            assert!(said_here.contains(said), "{line}: {said_here}");
        }
        assert!(Field::named("power_w").is_ok());
        assert!(Field::named("watts").unwrap_err().to_string().contains("power_limit_w"));
    }

    #[test]
    fn metrics_are_named_once_and_in_base_units() {
        let names: std::collections::BTreeSet<&str> = FIELDS.iter().map(|field| field.metric).collect();
        assert_eq!(names.len(), FIELDS.len());
        let units = ["_ratio", "_bytes", "_watts", "_celsius", "_hertz", "_bytes_per_second", "_total"];
        assert!(names.iter().all(|name| units.iter().any(|unit| name.ends_with(unit))), "{names:?}");
    }
}
