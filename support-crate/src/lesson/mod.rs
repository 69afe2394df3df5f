//! What a notebook holds on to: which lesson it is, which GPU it runs on, and where its figures go.
//!
//! On a machine with a GPU everything is live. Without one, GPU parts come from the recorded run, and say so.

mod measure;
mod replay;

use crate::cpu;
use crate::error::Error;
use crate::gpu::Gpu;
use crate::results;

/// One running lesson. Everything that it measures is tagged with its name and appended to `results/metrics.csv`.
#[derive(Debug)]
pub struct Lesson {
    name: String,
    gpu: Option<Gpu>,
    cpu: String,
    commit: String,
}

impl Lesson {
    /// Starts the lesson of that notebook, such as `02_async_timing`, and prints what it runs on.
    ///
    /// A machine without a GPU is no error: the lesson then shows the recorded run where a GPU is needed, and kernels run
    /// in the simulator where [`Gpu::open`] is asked for. So it does on
    /// an NVIDIA GPU without NVRTC, and says how to add it.
    pub fn start(name: &str) -> Lesson {
        let (gpu, why) = match Gpu::open_with_compiler() {
            Ok(gpu) => (Some(gpu), None),
            Err(error) => (None, Some(error)),
        };
        let lesson = Lesson { name: name.to_string(), gpu, cpu: cpu::info().short_name(), commit: results::commit() };
        println!("CPU: {}", lesson.cpu);
        match (&lesson.gpu, why) {
            (Some(gpu), _) => println!("{gpu}"),
            (None, Some(Error::NoGpu { tried })) => {
                println!("GPU: none ({})", tried.join("; "));
                println!("     What needs one is shown from the recorded run, and labelled so.");
                println!(
                    "     Kernels run all the same: `Gpu::open()` gives a simulator, which checks and counts and has no times."
                );
            }
            // There is a GPU, and it does not work: that is news, and no reason to stop the lesson.
            (None, Some(error)) => println!("GPU: none that works; the recorded run is shown in its place\n{error}\n"),
            (None, None) => {}
        }
        lesson
    }

    /// The notebook's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The GPU, where there is one. Never the simulator, which [`Gpu::open`] gives.
    pub fn gpu(&self) -> Option<&Gpu> {
        self.gpu.as_ref()
    }

    /// The CPU's short name, as it stands in legends.
    pub fn cpu_name(&self) -> &str {
        &self.cpu
    }
}
