//! Work for a GPU that a monitor has something to see of: a phase for each thing that lesson 62 looks at.

use gpulab::bench::Bench;
use gpulab::cpu::random_f32;
use gpulab::error::{Result, bytes};
use gpulab::gpu::{Buffer, Cublas, Gpu};
use gpulab::launch::LaunchConfig;
use gpulab_monitor::Job;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// One block works, and all other multiprocessors have nothing to do.
const ONE_BLOCK: &str = r#"extern "C" __global__ void one_block(float *x, int steps) {
    float value = x[threadIdx.x];
    for (int step = 0; step < steps; step++) value = fmaf(value, 0.999f, 0.5f);
    x[threadIdx.x] = value;
}"#;
/// The side of the matrices.
const SIDE: usize = 8192;
/// Multiply-adds of a thread, one after the other: some 20 ms.
const STEPS: i32 = 10_000_000;

/// Goes through the phases, or through the one case; a line to the standard output for each.
///
/// # Errors
/// [`Error::NoGpu`](gpulab::error::Error::NoGpu), [`Error::Unsupported`](gpulab::error::Error::Unsupported) without cuBLAS, and what
/// goes wrong on the GPU.
pub fn load(case: bool) -> Result<String> {
    let mut load = Load::new()?;
    if case {
        load.case()?
    } else {
        load.course()?
    }
    Ok("done".to_string())
}

struct Load {
    gpu: Gpu,
    blas: Cublas,
    matrices: [Buffer<u16>; 3],
    job: Option<PathBuf>,
    training: Training,
}

/// A training of one number, by gradient descent: its loss is real, and with a rate that is too high it overflows.
struct Training {
    weight: f32,
    step: f64,
}

impl Training {
    /// Takes a step; gives its loss.
    fn descend(&mut self, rate: f32) -> f64 {
        let off = self.weight - 3.0;
        self.weight -= rate * 2.0 * off;
        self.step += 1.0;
        f64::from(off * off)
    }
}

impl Load {
    fn new() -> Result<Load> {
        let gpu = Gpu::open_index(0)?;
        gpu.set_release_threshold(u64::MAX)?;
        // The upper half of an f32 is a bf16.
        let random =
            |seed| random_f32(SIDE * SIDE, seed).iter().map(|x| (x.to_bits() >> 16) as u16).collect::<Vec<u16>>();
        let matrices = [gpu.to_device(&random(1))?, gpu.to_device(&random(2))?, gpu.zeros(SIDE * SIDE)?];
        let blas = Cublas::new(&gpu)?;
        let job = std::env::var_os("GPULAB_JOB").map(PathBuf::from);
        Ok(Load { gpu, blas, matrices, job, training: Training { weight: 0.0, step: 0.0 } })
    }

    fn report(&self, job: &Job) -> Result<()> {
        self.job.as_ref().map_or(Ok(()), |path| job.tell(path))
    }

    /// Says that a phase begins, and does it until its time is over.
    fn phase(&mut self, name: &str, seconds: f64, mut work: impl FnMut(&mut Load) -> Result<()>) -> Result<()> {
        crate::print(format_args!("{name}, {seconds} s"));
        self.report(&Job { phase: Some(name.to_string()), ..Job::default() })?;
        let begin = Instant::now();
        while begin.elapsed().as_secs_f64() < seconds {
            work(self)?;
        }
        Ok(())
    }

    /// Products until so much time has gone by.
    fn products(&mut self, ms: u64) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(ms) {
            let [a, b, c] = &mut self.matrices;
            for _ in 0..4 {
                self.blas.multiply(a, b, c, (SIDE, SIDE, SIDE))?;
            }
            self.gpu.synchronize()?;
        }
        Ok(())
    }

    /// Steps of a training: waits for data, then `work`; tells the loss and which share it waited.
    fn steps(
        &mut self,
        name: &str,
        seconds: f64,
        wait_ms: u64,
        rate: f32,
        mut work: impl FnMut(&mut Load) -> Result<()>,
    ) -> Result<()> {
        self.phase(name, seconds, |load| {
            let begin = Instant::now();
            sleep(wait_ms);
            let waited = begin.elapsed();
            work(load)?;
            let loss = load.training.descend(rate);
            let share = waited.as_secs_f64() / begin.elapsed().as_secs_f64();
            load.report(&Job {
                phase: Some(name.to_string()),
                step: Some(load.training.step),
                loss: Some(loss),
                loader_wait: Some(share),
            })
        })
    }

    fn course(&mut self) -> Result<()> {
        let idle = |_: &mut Load| {
            sleep(20);
            Ok(())
        };
        self.phase("idle", 3.0, idle)?;
        let kernel = self.gpu.compile(ONE_BLOCK)?.kernel("one_block")?;
        let mut x = self.gpu.zeros::<f32>(32)?;
        self.phase("one block", 5.0, |load| {
            kernel.launch(LaunchConfig::new(1, 32), (&mut x, STEPS))?;
            load.gpu.synchronize()
        })?;
        self.phase("matmul", 8.0, |load| load.products(100))?;
        let (from, mut to) = (self.gpu.zeros::<f32>(1 << 30)?, self.gpu.zeros::<f32>(1 << 30)?);
        let ms = self.gpu.time(&Bench::default().samples(5), |_| to.copy_from_buffer(&from))?;
        self.phase("copy", 4.0, |load| {
            (0..8).try_for_each(|_| to.copy_from_buffer(&from))?;
            load.gpu.synchronize()
        })?;
        crate::print(format_args!("the copy: {:.0} GB/s read and written", ms.gb_per_s(8 << 30).median));
        let (stream, host) = (self.gpu.new_stream()?, self.gpu.pinned::<f32>(1 << 28)?);
        let mut on_gpu = self.gpu.zeros::<f32>(1 << 28)?;
        self.phase("upload", 4.0, |_| {
            on_gpu.copy_from_on(&stream, &host)?;
            stream.synchronize()
        })?;
        drop((from, to, on_gpu));
        self.gpu.synchronize()?;
        self.gpu.trim(0)?;
        // 40 GiB, or half of what is free.
        let free = self.gpu.memory()?.free as usize / 2;
        let held = self.gpu.zeros::<f32>((40_usize << 30).min(free) / 4)?;
        self.phase("hold", 2.0, idle)?;
        drop(held);
        self.gpu.synchronize()?;
        crate::print(format_args!(
            "the pool: {} used, {} reserved",
            bytes(self.gpu.memory()?.used),
            bytes(self.gpu.memory()?.reserved)
        ));
        self.phase("dropped", 2.0, idle)?;
        self.gpu.trim(0)?;
        self.phase("trimmed", 2.0, idle)?;
        self.phase("bursts", 7.0, |load| {
            load.products(100)?;
            sleep(900);
            Ok(())
        })?;
        self.steps("train", 6.0, 3, 0.01, |load| load.products(60))?;
        self.steps("stall", 8.0, 400, 0.01, |load| load.products(40))?;
        self.steps("nan", 4.0, 3, 50.0, |load| load.products(60))
    }

    /// A training whose steps copy 2 GiB of weights from the host anew, from pageable memory, while most of the memory is held.
    fn case(&mut self) -> Result<()> {
        let free = self.gpu.memory()?.free as usize;
        let held = self.gpu.zeros::<f32>((free * 4 / 5) / 4)?;
        let host = vec![0.5_f32; 1 << 29];
        let mut weights = self.gpu.zeros::<f32>(host.len())?;
        self.steps("training", 24.0, 3, 0.01, |load| {
            weights.copy_from(&host)?;
            load.products(30)
        })?;
        drop(held);
        Ok(())
    }
}

fn sleep(ms: u64) {
    std::thread::sleep(Duration::from_millis(ms));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_training_learns_and_with_too_high_a_rate_its_loss_is_no_number() {
        let mut training = Training { weight: 0.0, step: 0.0 };
        let losses: Vec<f64> = (0..200).map(|_| training.descend(0.01)).collect();
        assert!(losses.windows(2).all(|pair| pair[1] <= pair[0]) && losses[199] < 0.01);
        let wrong: Vec<f64> = (0..60).map(|_| training.descend(50.0)).collect();
        assert!(!wrong[59].is_finite(), "{wrong:?}");
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn one_block_runs() {
        let mut load = Load::new().unwrap();
        load.products(1).unwrap();
        load.steps("train", 0.05, 1, 0.01, |load| load.products(1)).unwrap();
        assert!(load.training.step > 0.0);
    }
}
