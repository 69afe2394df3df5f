//! `gpulab train-sharded`: fully sharded training (ZeRO's stage 3) on ranks that are processes, started by torchrun, Slurm or MPI. It
//! computes on CPUs, with the network of lesson 61: what it shows is how a job begins, fails and goes on, on one host or on many.

use crate::options::TrainSharded;
use gpulab::error::{Error, Result};
use gpulab_ranks::blocks::{ExampleBatch, MlpBlocks};
use gpulab_ranks::{Algorithm, BFloat16, Collectives, Op, Processes, Rank};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A rank's part of one block: weights for computing, and Adam's state, in the order master weights, mean, mean square.
struct Part {
    weights: Vec<BFloat16>,
    state: [Vec<f32>; 3],
}

/// A rank of the training, with its part of everything.
struct Training<'a> {
    rank: Rank,
    net: MlpBlocks,
    options: &'a TrainSharded,
    parts: Vec<Part>,
}

/// Trains until the last step, from the newest checkpoint on.
pub fn train(options: &TrainSharded) -> Result<String> {
    let world = Processes::from_environment(Duration::from_secs_f64(options.limit))?;
    Ok(world.run(|rank| Training::begin(rank, options)?.run())?)
}

fn say(text: &str) {
    // A reader that ended is no reason to end the training.
    let _ = writeln!(std::io::stdout(), "{text}").and_then(|()| std::io::stdout().flush());
}

impl Training<'_> {
    fn begin<'a>(rank: &Rank, options: &'a TrainSharded) -> Result<Training<'a>> {
        if !options.batch.is_multiple_of(rank.size()) {
            return Err(Error::invalid(
                format!("{} examples cannot be divided evenly among {} ranks", options.batch, rank.size()),
                "give `--batch` a multiple of the number of ranks; sums in another order then differ by rounding alone",
            ));
        }
        let net = MlpBlocks { width: options.width, hidden: 4 * options.width, count: options.blocks };
        Ok(Training { rank: rank.by(Algorithm::Direct), net, options, parts: Vec::new() })
    }

    /// Numbers of a block on one rank, with padding.
    fn own(&self) -> usize {
        self.net.numbers().div_ceil(self.rank.size())
    }

    /// This rank's part of a block's numbers.
    fn part(&self, whole: &[f32]) -> Vec<f32> {
        let from = self.rank.rank() * self.own();
        (from..from + self.own()).map(|at| whole.get(at).copied().unwrap_or(0.0)).collect()
    }

    fn run(mut self) -> Result<String> {
        let first = self.resume()?;
        let mut loss = f32::NAN;
        for step in first..self.options.steps {
            loss = self.step(step)?;
            let done = step + 1;
            if done % self.options.every == 0 || done == self.options.steps {
                self.checkpoint(done)?;
                if self.rank.rank() == 0 {
                    say(&format!("step {done}: loss {loss:.4}, checkpoint written"));
                }
            }
        }
        let ranks = self.rank.size();
        Ok(format!("rank {} of {ranks}: {} steps are done, last loss {loss:.6}", self.rank.rank(), self.options.steps))
    }

    fn gathered(&self, block: usize) -> Result<Vec<BFloat16>> {
        let mut all = vec![BFloat16::default(); self.own() * self.rank.size()];
        self.rank.all_gather(&self.parts[block].weights, &mut all)?;
        Ok(all)
    }

    /// One step: its loss, of all ranks' examples.
    fn step(&mut self, step: usize) -> Result<f32> {
        let share = self.options.batch / self.rank.size();
        let from = step * self.options.batch + self.rank.rank() * share;
        let batch: ExampleBatch = self.net.examples(from..from + share);
        let (mut x, mut saved) = (batch.x.clone(), Vec::new());
        for block in 0..self.net.count {
            let (y, kept) = self.net.forward(&self.gathered(block)?, &x);
            saved.push(kept);
            x = y;
        }
        let (loss, mut d) = batch.loss(&x);
        for block in (0..self.net.count).rev() {
            let (dx, whole) = self.net.backward(&self.gathered(block)?, &saved[block], &d);
            let mut gradient = vec![BFloat16::default(); self.own()];
            self.rank.reduce_scatter(&whole, &mut gradient, Op::Avg)?;
            self.parts[block].update(&gradient, step as i32 + 1);
            d = dx;
        }
        let mut mean = [loss];
        self.rank.all_reduce(&mut mean[..], Op::Avg)?;
        Ok(mean[0])
    }

    fn file(&self, step: usize) -> PathBuf {
        self.options.folder.join(format!("step-{step:08}.checkpoint"))
    }

    /// Writes the state of all ranks as one file, without padding, whole or not at all.
    fn checkpoint(&self, step: usize) -> Result<()> {
        let mut bytes = Vec::new();
        for part in &self.parts {
            for own in &part.state {
                let mut all = vec![0.0_f32; self.own() * self.rank.size()];
                self.rank.all_gather(own, &mut all)?;
                bytes.extend(all[..self.net.numbers()].iter().flat_map(|x| x.to_le_bytes()));
            }
        }
        if self.rank.rank() == 0 {
            let (path, unfinished) = (self.file(step), self.options.folder.join("unfinished"));
            let write = || {
                let mut file = fs::File::create(&unfinished)?;
                file.write_all(&bytes)?;
                file.sync_all()?;
                fs::rename(&unfinished, &path)
            };
            write().map_err(Error::io(
                &path,
                "write the checkpoint",
                "give `--folder` a folder that may be written, with room",
            ))?;
            // The one before it stays, in case this one is lost with its disk's cache.
            if let Some(old) = self.options.every.checked_mul(2).and_then(|two| step.checked_sub(two)) {
                let _ = fs::remove_file(self.file(old));
            }
        }
        Ok(())
    }

    /// Takes this rank's part of the newest checkpoint, or of fresh weights; the step to go on with. Rank 0 says which file it is, so
    /// that all have the same.
    fn resume(&mut self) -> Result<usize> {
        let mut step = [0_u64];
        if self.rank.rank() == 0 {
            fs::create_dir_all(&self.options.folder).map_err(Error::io(
                &self.options.folder,
                "create the folder",
                "give `--folder` a folder that may be written",
            ))?;
            step[0] = newest(&self.options.folder) as u64;
        }
        self.rank.broadcast(&mut step[..], 0)?;
        let step = step[0] as usize;
        let numbers = self.net.numbers();
        let blocks: Vec<[Vec<f32>; 3]> = if step == 0 {
            self.net.random(1).into_iter().map(|block| [block, vec![0.0; numbers], vec![0.0; numbers]]).collect()
        } else {
            let path = self.file(step);
            let fix = "give all ranks a folder that they share (`--folder`), or remove the file to begin with the one before it";
            let bytes = fs::read(&path).map_err(Error::io(&path, "read the checkpoint", fix))?;
            if bytes.len() != 12 * numbers * self.net.count {
                let expected = 12 * numbers * self.net.count;
                let text = format!("it has {} bytes, and a network of this size {expected}", bytes.len());
                return Err(Error::file(
                    &path,
                    "read the checkpoint",
                    text,
                    "give the same `--width` and `--blocks` as before",
                ));
            }
            let all: Vec<f32> = bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect();
            let mut arrays = all.chunks(numbers).map(<[f32]>::to_vec);
            let mut next = || arrays.next().expect("the length was compared");
            (0..self.net.count).map(|_| [next(), next(), next()]).collect()
        };
        let part = |block: [Vec<f32>; 3]| {
            let state = block.map(|whole| self.part(&whole));
            Part { weights: BFloat16::round(&state[0]), state }
        };
        self.parts = blocks.into_iter().map(part).collect();
        if self.rank.rank() == 0 {
            let from = if step == 0 { "begins".to_string() } else { format!("goes on from step {step}") };
            say(&format!("{} ranks: the training {from}", self.rank.size()));
        }
        Ok(step)
    }
}

impl Part {
    fn update(&mut self, gradient: &[BFloat16], step: i32) {
        let [master, mean, square] = &mut self.state;
        let (fix_mean, fix_square) = (1.0 - 0.9_f32.powi(step), 1.0 - 0.999_f32.powi(step));
        for (at, g) in gradient.iter().map(|g| g.to_f32()).enumerate() {
            mean[at] = 0.9 * mean[at] + 0.1 * g;
            square[at] = 0.999 * square[at] + 0.001 * g * g;
            master[at] -= 5e-4 * (mean[at] / fix_mean) / ((square[at] / fix_square).sqrt() + 1e-8);
        }
        self.weights = BFloat16::round(master);
    }
}

/// The step of the newest checkpoint; 0 where there is none.
fn newest(folder: &Path) -> usize {
    let step = |name: String| name.strip_prefix("step-")?.strip_suffix(".checkpoint")?.parse().ok();
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files.filter_map(|file| step(file.file_name().into_string().ok()?)).max().unwrap_or(0)
}
