//! One step of training, phase by phase, and what the allocator says after each.

use super::model::Model;
use super::network::{Network, Optimiser, Prediction, part_row};
use crate::DeviceKind;
use candle_core::{DType, Device};
use candle_nn::{AdamW, Optimizer as _, ParamsAdamW, SGD};
use gpulab::cpu;
use gpulab::error::{Error, Result, bytes};
use gpulab::gpu::Gpu;
use gpulab::measurement::{Measurement, MemoryPoint};
use gpulab::table::{Cell, Table};

/// What a step of training was seen to hold, in bytes. As a cell's last line it shows itself beside the prediction.
#[derive(Debug, Clone, PartialEq)]
pub struct StepMemory {
    /// Where it ran.
    pub device_kind: DeviceKind,
    /// What was predicted for this very step.
    pub predicted: Prediction,
    /// The parameters.
    pub parameters: u64,
    /// Their gradients.
    pub gradients: u64,
    /// What the optimiser remembers.
    pub optimiser: u64,
    /// What is kept between the forward and the backward pass.
    pub activations: u64,
    /// The examples.
    pub input: u64,
    /// The peak of the whole step, above what was in use before it.
    pub peak: u64,
    /// What the allocator has after the step and nobody holds: kept for the next request.
    pub cache: u64,
    /// Forward, backward and update together, in milliseconds, allocator's questions included.
    pub ms: f64,
    /// In use and reserved after each phase, above what was in use before the step; before that, of phases that compute, their
    /// peak.
    pub points: Vec<MemoryPoint>,
}

/// Runs one step of training on random examples, and measures what each phase adds.
///
/// # Errors
/// What candle reports, such as a full memory; as [`Meter::now`].
pub fn measure(
    network: &Network,
    batch: usize,
    dtype: DType,
    optimiser: Optimiser,
    meter: &Meter,
) -> Result<StepMemory> {
    // Threads, kernels and their own buffers come with the first step: it is not the one to measure.
    step(network, batch.min(16), dtype, optimiser, meter)?;
    step(network, batch, dtype, optimiser, meter)
}

fn step(network: &Network, batch: usize, dtype: DType, optimiser: Optimiser, meter: &Meter) -> Result<StepMemory> {
    let (before, _) = meter.now()?;
    let mut points = Vec::new();
    let mut point = |step: &str, highest: Option<u64>| -> Result<u64> {
        let (used, reserved) = meter.now()?;
        let (used, reserved) = (used.saturating_sub(before), reserved.saturating_sub(before));
        if let Some(highest) = highest {
            // What was in use was reserved: the allocator may have given some of it back since.
            points.push(MemoryPoint::new(&format!("{step}: highest"), highest, highest.max(reserved), 0));
        }
        points.push(MemoryPoint::new(step, used, reserved, 0));
        Ok(used)
    };
    let model = Model::new(network, dtype, meter.device(), 7)?;
    let parameters = point("parameters", None)?;
    let mut update = Update::new(&model, optimiser)?;
    let with_state = point("optimizer state", None)?;
    let examples = model.batch(batch, 1)?;
    let with_input = point("examples", None)?;
    let (loss, forward) = meter.watch(|| model.loss(&examples))?;
    let with_activations = point("forward pass", Some(with_input + forward.peak))?;
    let (gradients, backward) = meter.watch(|| {
        let mut store = loss.backward()?;
        model.collect(0.0, &mut store)
    })?;
    let with_gradients = point("backward pass", Some(with_activations + backward.peak))?;
    drop(loss);
    let without = point("drop the loss", None)?;
    let store = gradients.store(&model);
    drop(gradients);
    let ((), updating) = meter.watch(|| update.step(&store))?;
    point("update", Some(without + updating.peak))?;
    drop(store);
    point("drop the gradients", None)?;

    let (used, reserved) = meter.now()?;
    let peaks = [with_input + forward.peak, with_activations + backward.peak, without + updating.peak];
    Ok(StepMemory {
        device_kind: meter.device_kind(),
        predicted: network.predict(batch, dtype, optimiser),
        parameters,
        gradients: with_gradients.saturating_sub(with_activations),
        optimiser: with_state.saturating_sub(parameters),
        activations: with_activations.saturating_sub(with_input),
        input: with_input.saturating_sub(with_state),
        peak: peaks.into_iter().max().unwrap_or(0).max(with_gradients),
        cache: reserved.saturating_sub(used),
        ms: forward.ms + backward.ms + updating.ms,
        points,
    })
}

enum Update {
    Sgd(SGD),
    AdamW(AdamW),
}

impl Update {
    fn new(model: &Model, optimiser: Optimiser) -> Result<Update> {
        let parameters = model.parameters.clone();
        Ok(match optimiser {
            Optimiser::Sgd => Update::Sgd(SGD::new(parameters, 1e-3)?),
            Optimiser::AdamW => Update::AdamW(AdamW::new(parameters, ParamsAdamW::default())?),
        })
    }

    fn step(&mut self, gradients: &candle_core::backprop::GradStore) -> Result<()> {
        match self {
            Update::Sgd(sgd) => sgd.step(gradients)?,
            Update::AdamW(adamw) => adamw.step(gradients)?,
        }
        Ok(())
    }
}

impl StepMemory {
    /// The four parts that the prediction names too.
    pub fn parts(&self) -> [(&'static str, u64); 4] {
        [
            ("parameters", self.parameters),
            ("gradients", self.gradients),
            ("optimizer state", self.optimiser),
            ("activations", self.activations),
        ]
    }

    /// What the peak takes beyond parameters, gradients, state, activations and examples, all of them counted.
    pub fn workspace(&self) -> u64 {
        let held: u64 = self.parts().iter().map(|(_, bytes)| bytes).sum();
        self.peak.saturating_sub(held + self.input)
    }

    /// [`StepMemory::workspace`] for each example, for [`Network::largest_batch`].
    pub fn workspace_each(&self) -> f64 {
        self.workspace() as f64 / self.predicted.batch as f64
    }

    /// How far each part is from its prediction: 0.01 is 1 % more than predicted. A part that is predicted to be nothing is
    /// left out.
    pub fn off(&self) -> Vec<(&'static str, f64)> {
        let pairs = self.parts().into_iter().zip(self.predicted.parts()).filter(|(_, (_, predicted))| *predicted > 0);
        pairs.map(|((part, seen), (_, predicted))| (part, seen as f64 / predicted as f64 - 1.0)).collect()
    }

    /// A row for each part, workspace and cache last, for [`gpulab::plot::stacked`]; `bar` names the bar.
    pub fn rows(&self, bar: &str) -> Vec<Measurement> {
        let backend = self.device_kind.backend();
        let beside = [("workspace", self.workspace()), ("cache", self.cache)];
        let parts = self.parts().into_iter().chain(beside);
        parts.map(|(part, bytes)| part_row(bar, self.predicted.batch, backend, part, bytes)).collect()
    }

    /// The table as text.
    pub fn text(&self) -> String {
        self.table().text()
    }

    fn table(&self) -> Table {
        let off = self.off();
        let parts = self.parts().into_iter().zip(self.predicted.parts()).map(|((part, seen), (_, predicted))| {
            let off = off.iter().find(|(name, _)| *name == part).map(|(_, off)| *off);
            let written = off.map_or(String::new(), |off| format!("{:+.2} %", 100.0 * off));
            let cell = Cell::of(written).flagged(off.is_some_and(|off| off.abs() > 0.05));
            vec![Cell::of(part), Cell::of(bytes(predicted)), Cell::of(bytes(seen)), cell]
        });
        let beside = [("workspace", self.workspace()), ("cache", self.cache), ("peak", self.peak)];
        let beside =
            beside.map(|(part, seen)| vec![Cell::of(part), Cell::of("-"), Cell::of(bytes(seen)), Cell::of("")]);
        Table {
            title: format!("A step with {} examples on {}", self.predicted.batch, self.device_kind.name()),
            heads: ["part", "predicted", "measured", "off by"].map(str::to_string).to_vec(),
            rows: parts.chain(beside).collect(),
            ..Table::default()
        }
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        self.table().show();
    }
}

// ----------------------------------------------------------------------
// How much of a device's memory is in use: asked of whoever hands it out.

/// Reads the memory of the device that candle computes on.
///
/// On the CPU that is the C library, and it counts the whole process. On an NVIDIA GPU it is the driver's memory pool of the
/// GPU, from which candle's buffers and the course's own come alike.
#[derive(Debug)]
pub struct Meter {
    device_kind: DeviceKind,
    device: Device,
    gpu: Option<Gpu>,
}

/// What a piece of work did to the memory, in bytes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryUse {
    /// In use after it, less before it.
    pub kept: i64,
    /// The highest in use during it, less before it.
    pub peak: u64,
    /// How long it took, in milliseconds.
    pub ms: f64,
}

impl Meter {
    /// The NVIDIA GPU where candle has one, else the CPU: both can be measured.
    ///
    /// # Errors
    /// As [`Meter::of`].
    pub fn best() -> Result<Meter> {
        match DeviceKind::Cuda.open() {
            Ok(_) => Meter::of(DeviceKind::Cuda),
            Err(_) => Meter::of(DeviceKind::Cpu),
        }
    }

    /// A meter for that kind.
    ///
    /// # Errors
    /// [`gpulab::Error::Unsupported`] for a Mac's GPU, and where the C library tells no figures; as [`DeviceKind::open`].
    pub fn of(kind: DeviceKind) -> Result<Meter> {
        let gpu = match kind {
            DeviceKind::Cpu => {
                cpu::heap()?;
                None
            }
            DeviceKind::Cuda => Some(Gpu::open_index(0)?),
            DeviceKind::Metal => {
                return Err(Error::unsupported(
                    "the memory that tensors hold on a Mac's GPU: candle keeps freed buffers for itself there, \
                           and does not tell which",
                    "measure on the CPU, whose figures are the same but for workspace: `Meter::of(DeviceKind::Cpu)`",
                ));
            }
        };
        Ok(Meter { device_kind: kind, device: kind.open()?, gpu })
    }

    /// Where it measures.
    pub fn device_kind(&self) -> DeviceKind {
        self.device_kind
    }

    /// candle's device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Bytes that somebody holds, and bytes that the allocator has taken for itself, used or not.
    ///
    /// # Errors
    /// What the driver or the C library reports.
    pub fn now(&self) -> Result<(u64, u64)> {
        match &self.gpu {
            None => cpu::heap().map(|heap| (heap.used, heap.reserved)),
            Some(gpu) => {
                // A free takes effect when the GPU reaches it.
                self.device.synchronize()?;
                gpu.memory().map(|pool| (pool.used, pool.reserved))
            }
        }
    }

    /// Runs `work`, and says beside its result what it did to the memory. On the CPU the peak is sampled
    /// ([`cpu::highest_heap`]), on a GPU the pool keeps it.
    ///
    /// # Errors
    /// As [`Meter::now`], and what `work` returns.
    pub fn watch<T>(&self, work: impl FnOnce() -> Result<T>) -> Result<(T, MemoryUse)> {
        let before = self.now()?.0;
        let mut ms = 0.0;
        let timed = || {
            let start = std::time::Instant::now();
            let outcome = work()?;
            self.device.synchronize()?;
            ms = start.elapsed().as_secs_f64() * 1e3;
            Ok(outcome)
        };
        let (outcome, highest) = match &self.gpu {
            None => cpu::highest_heap(timed)?,
            Some(gpu) => {
                gpu.reset_high_water()?;
                let outcome = timed()?;
                (outcome, gpu.memory()?.used_high)
            }
        };
        let kept = self.now()?.0 as i64 - before as i64;
        Ok((outcome, MemoryUse { kept, peak: highest.saturating_sub(before), ms }))
    }
}
