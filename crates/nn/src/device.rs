//! Where candle computes: the CPU, an NVIDIA GPU, or a Mac's GPU; and how much memory this process holds.

use candle_core::Device;
use gpulab::command::output_of;
use gpulab::error::{Error, Result};
use gpulab::measurement::Backend;
use std::time::Duration;

/// A kind of device, as the command line names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// All cores of the CPU.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// A Mac's GPU.
    Metal,
}

impl Place {
    /// All of them, in the order in which a GPU is looked for.
    pub const ALL: [Place; 3] = [Place::Cuda, Place::Metal, Place::Cpu];

    /// `cpu`, `cuda`, `mps` or `metal`.
    ///
    /// # Errors
    /// `Error::Invalid` names the ones there are.
    pub fn from_name(name: &str) -> Result<Place> {
        match name {
            "cpu" => Ok(Place::Cpu),
            "cuda" => Ok(Place::Cuda),
            "mps" | "metal" => Ok(Place::Metal),
            _ => Err(Error::Invalid {
                what: format!("`{name}` is no device that candle knows"),
                fix: "name cpu, cuda, or mps (a Mac's GPU)".to_string(),
            }),
        }
    }

    /// `cpu`, `cuda`, `metal`.
    pub fn name(self) -> &'static str {
        match self {
            Place::Cpu => "cpu",
            Place::Cuda => "cuda",
            Place::Metal => "metal",
        }
    }

    /// What measurements call it.
    pub fn backend(self) -> Backend {
        match self {
            Place::Cpu => Backend::Cpu,
            Place::Cuda => Backend::Cuda,
            Place::Metal => Backend::Metal,
        }
    }

    /// Whether this build of candle has it; the machine may still lack it.
    pub fn is_built(self) -> bool {
        match self {
            Place::Cpu => true,
            Place::Cuda => cfg!(gpulab_cuda),
            Place::Metal => cfg!(target_os = "macos"),
        }
    }

    /// The first GPU that opens, else the CPU.
    pub fn best() -> (Place, Device) {
        let opened = Place::ALL.into_iter().find_map(|place| Some((place, place.open().ok()?)));
        opened.unwrap_or((Place::Cpu, Device::Cpu))
    }

    /// Opens its first device.
    ///
    /// # Errors
    /// `Error::Unsupported` when candle was built without it, or when there is none.
    pub fn open(self) -> Result<Device> {
        if !self.is_built() {
            return Err(self.missing("this build of candle has no support for it".to_string()));
        }
        let opened = match self {
            Place::Cpu => Ok(Device::Cpu),
            Place::Cuda => Device::new_cuda(0),
            Place::Metal => Device::new_metal(0),
        };
        opened.map_err(|error| self.missing(error.to_string().lines().next().unwrap_or_default().to_string()))
    }

    fn missing(self, why: String) -> Error {
        let (what, fix) = match self {
            Place::Cpu => ("the CPU", "restart the kernel"),
            Place::Cuda => (
                "an NVIDIA GPU for candle",
                "`make verify` says what is missing: the driver, or CUDA's nvcc, which candle is built with; \
                 then `make setup`. Without a GPU, use cpu",
            ),
            Place::Metal => ("a Mac's GPU for candle", "use a Mac with Apple silicon, or cpu, or cuda"),
        };
        Error::Unsupported { what: format!("{what}: {why}"), fix: fix.to_string() }
    }
}

// ----------------------------------------------------------------------
// How much memory this process holds.

/// Bytes of memory that this process has in use now, as the operating system counts them; `None` where it does not tell.
pub fn resident_bytes() -> Option<u64> {
    let kib = match std::fs::read_to_string("/proc/self/status") {
        Ok(status) => status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()),
        // macOS has no such file; `ps` counts the same.
        Err(_) => {
            let pid = std::process::id().to_string();
            output_of("ps", &["-o", "rss=", "-p", &pid], Duration::from_secs(2))
                .ok()
                .and_then(|text| text.trim().parse().ok())
        }
    };
    kib.map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_back_to_its_place() {
        for place in Place::ALL {
            assert_eq!(Place::from_name(place.name()).unwrap(), place);
        }
        assert_eq!(Place::from_name("mps").unwrap(), Place::Metal);
        assert!(Place::from_name("tpu").unwrap_err().to_string().contains("next: name cpu, cuda"));
    }

    #[test]
    fn a_place_opens_or_says_what_to_do() {
        for place in Place::ALL {
            if let Err(error) = place.open() {
                assert_ne!(place, Place::Cpu);
                assert!(error.to_string().contains("next: "), "{error}");
            }
        }
        assert!(Place::best().0.open().is_ok());
    }

    #[test]
    fn memory_that_is_written_shows() {
        let before = resident_bytes().unwrap();
        let held = vec![1u8; 256 << 20];
        let after = resident_bytes().unwrap();
        // Other tests run beside it; what they give back is less than half of this.
        assert!(after > before + (128 << 20), "{before} {after} {}", held[7]);
    }
}
