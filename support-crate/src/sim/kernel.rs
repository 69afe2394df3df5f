//! PTX to kernels, and their launches.

use super::{SimGpu, mistakes, refused};
use crate::error::Result;
use crate::inspect::Inspection;
use crate::launch::{LaunchConfig, Signature, Source};
use std::io::Write;
use std::sync::Arc;
use warpsim::{Arg, Launch, Report, Watch};

/// A loaded module, with the source that it was compiled from where that is known.
#[derive(Debug, Clone)]
pub(crate) struct SimLibrary {
    module: warpsim::Module,
    source: Option<Arc<Source>>,
}

/// A loaded kernel.
#[derive(Debug, Clone)]
pub(crate) struct SimKernel {
    pub(super) module: warpsim::Module,
    pub(super) name: String,
    pub(super) source: Option<Arc<Source>>,
    /// As the reader wrote them; PTX alone gives names of its own.
    pub(super) parameters: Vec<String>,
    /// Static shared memory of a block.
    pub(super) shared_bytes: u64,
}

impl SimLibrary {
    pub(crate) fn load(ptx: &str, source: Option<Source>) -> Result<SimLibrary> {
        let module = warpsim::Module::load(ptx).map_err(|error| refused(&error))?;
        Ok(SimLibrary { module, source: source.map(Arc::new) })
    }

    pub(crate) fn kernel(&self, name: &str, signature: Option<&Signature>) -> SimKernel {
        let info = self.module.kernels().into_iter().find(|kernel| kernel.name == name);
        let parameters =
            signature.map_or_else(Vec::new, |s| s.parameters.iter().map(|p| p.name().to_string()).collect());
        SimKernel {
            module: self.module.clone(),
            name: name.to_string(),
            source: self.source.clone(),
            parameters,
            shared_bytes: info.map_or(0, |info| info.shared_bytes),
        }
    }
}

impl SimKernel {
    /// Runs the kernel to its end; its mistakes are an error.
    pub(crate) fn launch(&self, gpu: &SimGpu, config: LaunchConfig, args: &[Arg]) -> Result<()> {
        let report = self.run(gpu, config, args, None)?;
        show(&report.printed);
        mistakes::none(self, &report.findings)
    }

    /// Runs the kernel to its end, and keeps what one warp accessed.
    pub(crate) fn inspect(&self, gpu: &SimGpu, config: LaunchConfig, args: &[Arg], watch: Watch) -> Result<Inspection> {
        let report = self.run(gpu, config, args, Some(watch))?;
        Ok(super::look::inspection(self, config, watch, report))
    }

    fn run(&self, gpu: &SimGpu, config: LaunchConfig, args: &[Arg], watch: Option<Watch>) -> Result<Report> {
        let mut device = gpu.device();
        device.set_watch(watch);
        // Nobody sees the counts of a plain launch, and they take time.
        device.set_counters(watch.is_some());
        let launch = Launch { grid: config.grid.into(), block: config.block.into(), shared_bytes: config.shared_bytes };
        device.launch(&self.module, &self.name, launch, args).map_err(|error| refused(&error))
    }
}

/// `printf` of a kernel goes where the notebook's own printing goes.
fn show(printed: &str) {
    // A reader that went away (a closed pipe) leaves nobody to tell.
    let _ = std::io::stdout().write_all(printed.as_bytes());
}
