//! One run of an experiment: arguments made, the kernel launched, its picture drawn.

use crate::experiments::{Drawn, Experiment, Given, Setting};
use gpulab_inspect::{Inspection, Written};
use warpsim::{Arg, Device, PtxModule, WatchedWarp};

/// Warp instructions that a block may take: some seconds in a browser.
const STEPS: u64 = 1 << 22;

/// A kernel as a page has it.
#[derive(Debug, Clone, Default)]
pub struct KernelText {
    /// The source's name, as the PTX gives it in its lines.
    pub file: String,
    /// The source.
    pub text: String,
    /// What it was compiled to, or what the reader made of that.
    pub ptx: String,
}

/// What a page shows of a run.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The picture, as HTML.
    pub picture: String,
    /// The counters, and what is wrong with the kernel, as HTML.
    pub table: String,
    /// How many things are wrong with it.
    pub findings: usize,
}

/// Runs an experiment with these sliders' values.
///
/// # Errors
/// What the simulator refuses, such as an instruction that it does not know, with its line; a number or a choice that no
/// slider has.
pub fn run(experiment: &Experiment, values: &[i64], kernels: &[KernelText]) -> Result<Shown, String> {
    if values.len() != experiment.sliders.len() {
        return Err(format!("`{}` has {} sliders, not {}", experiment.name, experiment.sliders.len(), values.len()));
    }
    for (slider, value) in experiment.sliders.iter().zip(values) {
        if !slider.values.contains(value) {
            return Err(format!("{}: there is no {value}\nnext: choose one of {:?}", slider.label, slider.values));
        }
    }
    let setting = (experiment.setting)(values);
    let text = kernels.get(setting.kernel).ok_or("the page lacks this kernel\nnext: load the page again")?;
    let seen = inspect(experiment, &setting, text)?;
    let picture = match &setting.drawn {
        Drawn::Launch => Ok(seen.launch()),
        Drawn::Sectors(access) => seen.sectors(access),
        Drawn::Banks(access) => seen.banks(access),
        Drawn::Source => Ok(seen.source()),
    };
    // With a finding an access may be missing: the finding is then what there is to see.
    let picture = match picture {
        Ok(figure) => figure.html(),
        Err(_) if !seen.findings.is_empty() => seen.launch().html(),
        Err(error) => return Err(error.to_string()),
    };
    Ok(Shown { picture, table: seen.html(), findings: seen.findings.len() })
}

fn inspect(experiment: &Experiment, setting: &Setting, text: &KernelText) -> Result<Inspection, String> {
    let module = PtxModule::load(&text.ptx).map_err(|error| error.to_string())?;
    let mut device = Device::new();
    // A page has no threads.
    device.set_cores(1);
    device.set_step_budget(STEPS);
    let watch = WatchedWarp::default();
    device.set_watch(Some(watch));
    let mut args = Vec::new();
    for given in &setting.args {
        args.push(match *given {
            Given::I32(value) => Arg::I32(value),
            Given::Floats { elements, written } => {
                let buffer = device.alloc(elements * 4).map_err(|error| error.to_string())?;
                if written {
                    let bytes: Vec<u8> = (0..elements).flat_map(|i| (i as f32 / 8.0).to_le_bytes()).collect();
                    device.write(buffer, &bytes).map_err(|error| error.to_string())?;
                }
                Arg::Pointer(buffer)
            }
        });
    }
    let kernel = experiment.entry;
    let info = module.kernels().into_iter().find(|one| one.name == kernel);
    let parameters: Vec<String> = experiment.parameters.iter().map(|&name| name.to_string()).collect();
    let written = Written {
        kernel,
        source: Some((&text.file, &text.text)),
        parameters: &parameters,
        shared_bytes: info.map_or(0, |info| info.shared_bytes),
        rust: false,
    };
    let report = device.launch(&module, kernel, setting.launch, &args).map_err(|error| error.to_string())?;
    Ok(written.inspection(setting.launch, watch, report))
}
