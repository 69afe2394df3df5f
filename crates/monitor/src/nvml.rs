//! NVML, by the crate nvml-wrapper: one call a number, each of which may be refused.

use crate::sample::{Process, Sample};
use crate::source::{GpuInfo, SampleSource};
use gpulab_measure::{Error, Result};
use jiff::Timestamp;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use nvml_wrapper_sys::bindings::{field_id, nvmlFieldValue_t};
use std::collections::BTreeMap;

/// NVML's GPUs. [`NvmlSource::nvml`] hands out the library, and `From` takes one that is open already.
#[derive(Debug)]
pub struct NvmlSource {
    nvml: Nvml,
    gpus: Vec<GpuInfo>,
    missing: BTreeMap<&'static str, String>,
}

impl NvmlSource {
    /// Opens NVML (`nvmlInit_v2`) and looks for GPUs: all of them, or those of these numbers.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where there is no NVML, no driver or no permission; [`Error::NoSuchDevice`].
    pub fn open(wanted: &[u32]) -> Result<NvmlSource> {
        let nvml = Nvml::init().map_err(|error| refused(&error))?;
        let mut source = NvmlSource::from(nvml);
        if let Some(asked) = wanted.iter().find(|index| !source.gpus.iter().any(|gpu| gpu.index == **index)) {
            return Err(Error::NoSuchDevice { asked: *asked as usize, found: source.gpus.len() });
        }
        source.gpus.retain(|gpu| wanted.is_empty() || wanted.contains(&gpu.index));
        if source.gpus.is_empty() {
            return Err(Error::unsupported(
                "NVML is there, and shows no GPU",
                "`nvidia-smi -L` lists them; a container is given GPUs with `--gpus all`",
            ));
        }
        Ok(source)
    }

    /// The library itself.
    pub fn nvml(&self) -> &Nvml {
        &self.nvml
    }
}

impl From<Nvml> for NvmlSource {
    fn from(nvml: Nvml) -> NvmlSource {
        let all = 0..nvml.device_count().unwrap_or(0);
        let name = |index| nvml.device_by_index(index).and_then(|gpu| gpu.name());
        let gpus = all.filter_map(|index| Some(GpuInfo { index, name: name(index).ok()? })).collect();
        NvmlSource { nvml, gpus, missing: BTreeMap::new() }
    }
}

/// NVML as a whole does not answer.
fn refused(error: &NvmlError) -> Error {
    let replay = "`gpulab monitor --replay results/h200/monitor.jsonl` shows a recorded trace on any machine";
    let (what, fix) = match error {
        NvmlError::LibloadingError(_) => (
            "NVML was not found: libnvidia-ml comes with NVIDIA's driver",
            "install the driver; in a container, start it with `--gpus all` and NVIDIA_DRIVER_CAPABILITIES=compute,utility",
        ),
        NvmlError::DriverNotLoaded => (
            "NVML is there, and NVIDIA's driver is not loaded",
            "load it (`sudo modprobe nvidia`), or start the machine anew",
        ),
        NvmlError::NoPermission => (
            "NVML may not talk to the driver",
            "look at who may read /dev/nvidiactl and /dev/nvidia0, and ask whoever runs this machine",
        ),
        NvmlError::GpuLost => {
            ("a GPU does not answer any more", "look at `dmesg | grep -i xid`; the machine has to be started anew")
        }
        _ => ("NVML does not answer", "see whether `nvidia-smi` does, and what it says"),
    };
    Error::unsupported(format!("{what} ({error})"), format!("{fix}; {replay}"))
}

/// Whether there is no point in asking on.
fn ends_all(error: &NvmlError) -> bool {
    matches!(error, NvmlError::GpuLost | NvmlError::Uninitialized | NvmlError::DriverNotLoaded)
}

/// Asks, and notes what is refused.
struct Asked<'a> {
    missing: &'a mut BTreeMap<&'static str, String>,
    lost: Option<NvmlError>,
}

impl Asked<'_> {
    fn get<T>(&mut self, field: &'static str, answer: Result<T, NvmlError>) -> Option<T> {
        match answer {
            Ok(value) => Some(value),
            Err(error) => {
                self.missing.entry(field).or_insert_with(|| error.to_string());
                if ends_all(&error) {
                    self.lost = Some(error);
                }
                None
            }
        }
    }
}

impl SampleSource for NvmlSource {
    fn gpus(&self) -> Vec<GpuInfo> {
        self.gpus.clone()
    }

    fn missing(&self) -> BTreeMap<&'static str, String> {
        self.missing.clone()
    }

    fn sample(&mut self) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for gpu in &self.gpus {
            let device = self.nvml.device_by_index(gpu.index).map_err(|error| refused(&error))?;
            let mut asked = Asked { missing: &mut self.missing, lost: None };
            samples.push(sample(&device, gpu.index, &mut asked));
            if let Some(error) = asked.lost {
                return Err(refused(&error));
            }
        }
        Ok(samples)
    }
}

/// One GPU now. The two calls for PCIe wait 20 ms each: that is what they count over.
fn sample(device: &Device<'_>, gpu: u32, asked: &mut Asked<'_>) -> Sample {
    let time = Timestamp::now();
    let rates = asked.get("utilization_percent", device.utilization_rates());
    let memory = asked.get("memory_used_bytes", device.memory_info());
    let milli = |value: u32| f64::from(value) / 1e3;
    let kilo = |value: u32| f64::from(value) * 1e3;
    let links = asked.get("nvlink_rx_bytes", nvlink_bytes(device));
    let mut sample = Sample { time, gpu, ..Sample::default() };
    sample.utilization_percent = rates.as_ref().map(|rates| f64::from(rates.gpu));
    sample.memory_utilization_percent = rates.map(|rates| f64::from(rates.memory));
    sample.memory_used_bytes = memory.as_ref().map(|memory| memory.used as f64);
    sample.memory_total_bytes = memory.map(|memory| memory.total as f64);
    sample.power_w = asked.get("power_w", device.power_usage()).map(milli);
    sample.power_limit_w = asked.get("power_limit_w", device.enforced_power_limit()).map(milli);
    sample.energy_j = asked.get("energy_j", device.total_energy_consumption()).map(|mj| mj as f64 / 1e3);
    sample.temperature_c = asked.get("temperature_c", device.temperature(TemperatureSensor::Gpu)).map(f64::from);
    sample.sm_clock_mhz = asked.get("sm_clock_mhz", device.clock_info(Clock::SM)).map(f64::from);
    sample.memory_clock_mhz = asked.get("memory_clock_mhz", device.clock_info(Clock::Memory)).map(f64::from);
    sample.pcie_rx_bytes_per_s =
        asked.get("pcie_rx_bytes_per_s", device.pcie_throughput(PcieUtilCounter::Receive)).map(kilo);
    sample.pcie_tx_bytes_per_s =
        asked.get("pcie_tx_bytes_per_s", device.pcie_throughput(PcieUtilCounter::Send)).map(kilo);
    (sample.nvlink_rx_bytes, sample.nvlink_tx_bytes) = (links.map(|links| links[0]), links.map(|links| links[1]));
    let ecc = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).map(|count| count as f64);
    sample.ecc_corrected = asked.get("ecc_corrected", ecc(MemoryError::Corrected));
    sample.ecc_uncorrected = asked.get("ecc_uncorrected", ecc(MemoryError::Uncorrected));
    let reasons = asked.get("throttle", device.current_throttle_reasons());
    sample.throttle = reasons.map(|reasons| reasons.iter_names().map(|(name, _)| name.to_string()).collect());
    let process = |process: nvml_wrapper::struct_wrappers::device::ProcessInfo| Process {
        pid: process.pid,
        memory_bytes: match process.used_gpu_memory {
            UsedGpuMemory::Used(bytes) => Some(bytes as f64),
            UsedGpuMemory::Unavailable => None,
        },
    };
    let processes = asked.get("processes", device.running_compute_processes());
    sample.processes = processes.map(|all| all.into_iter().map(process).collect());
    sample
}

/// Bytes received and sent over all links.
fn nvlink_bytes(device: &Device<'_>) -> Result<[f64; 2], NvmlError> {
    let of = |id: u32| {
        // SAFETY: plain numbers, for all of which 0 is a value.
        let mut field: nvmlFieldValue_t = unsafe { std::mem::zeroed() };
        field.fieldId = id;
        // All links together.
        field.scopeId = u32::MAX;
        field
    };
    let mut fields =
        [of(field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX), of(field_id::NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX)];
    let Ok(call) = device.nvml().lib().nvmlDeviceGetFieldValues.as_ref() else { return Err(NvmlError::NotSupported) };
    // SAFETY: NVML is open as long as the device is borrowed, and it writes to as many fields as it is told of.
    let code = unsafe { call(device.handle(), fields.len() as i32, fields.as_mut_ptr()) };
    nvml_wrapper::error::nvml_try(code)?;
    let mut bytes = [0.0; 2];
    for (bytes, field) in bytes.iter_mut().zip(&fields) {
        nvml_wrapper::error::nvml_try(field.nvmlReturn)?;
        // SAFETY: the counter is a u64 of KiB where the field says that it succeeded.
        *bytes = unsafe { field.value.ullVal } as f64 * 1024.0;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nvml_refuses_is_told_with_the_next_step() {
        for (error, said) in [
            (NvmlError::DriverNotLoaded, "driver is not loaded"),
            (NvmlError::NoPermission, "may not talk"),
            (NvmlError::GpuLost, "does not answer any more"),
            (NvmlError::Unknown, "NVML does not answer"),
        ] {
            let text = refused(&error).to_string();
            assert!(text.contains(said) && text.contains("\nnext: ") && text.contains("--replay"), "{text}");
        }
        if let Err(error) = NvmlSource::open(&[]) {
            let text = error.to_string();
            assert!(matches!(error, Error::Unsupported { .. }) && text.contains("\nnext: "), "{text}");
        }
    }

    #[test]
    fn a_number_that_is_not_supported_is_missing_and_the_rest_goes_on() {
        let mut missing = BTreeMap::new();
        let mut asked = Asked { missing: &mut missing, lost: None };
        assert_eq!(asked.get("energy_j", Err::<f64, _>(NvmlError::NotSupported)), None);
        assert_eq!(asked.get("processes", Err::<f64, _>(NvmlError::NoPermission)), None);
        assert_eq!(asked.get("power_w", Ok(3.0)), Some(3.0));
        assert!(asked.lost.is_none());
        asked.get("power_w", Err::<f64, _>(NvmlError::GpuLost));
        assert!(asked.lost.is_some());
        assert!(missing["energy_j"].contains("not available") && missing["processes"].contains("permission"));
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn a_gpu_has_memory_and_a_temperature() {
        let mut source = NvmlSource::open(&[]).unwrap();
        let samples = source.sample().unwrap();
        assert_eq!(samples.len(), source.gpus().len());
        assert!(samples[0].memory_total_bytes.unwrap_or(1e9) > 1e6, "{:?}", samples[0]);
        assert!(samples[0].temperature_c.unwrap_or(20.0) > 0.0, "{:?}", source.missing());
    }
}
