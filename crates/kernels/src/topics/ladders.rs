//! The ladders, by name.

use super::contest::{self, CHECKS, Job, Peer};
use super::{
    Embedding, FlashAttention, LadderRun, Launches, Matmul, MatmulBf16, Norm, Reduction, ResidualNorm, Rope, Size,
    Softmax, Topic, VectorAdd, arrays_of, flash_attention,
};
use crate::ladder::{RUNGS, Rung};
use gpulab::bench::Bench;
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, KernelResources};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::lesson::Lesson;
use gpulab::measurement::Resources;

/// A topic's rungs, from the first idea to the hardware's limit.
///
/// ```no_run
/// use gpulab::prelude::*;
/// use gpulab_kernels::*;
/// let ladder = Ladder::of("reduction")?;
/// println!("{ladder}");
/// println!("{}", ladder.run(&Gpu::open_index(0)?, 1 << 24)?);
/// # Ok::<(), Error>(())
/// ```
///
/// A new topic is a variant here, and a line in each `match` below that the compiler then asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ladder {
    /// `c = a + b`; a size is the number of elements.
    VectorAdd,
    /// The sum of an array; a size is the number of elements.
    Reduction,
    /// `c = a · b` in f32; a size is (m, n, k), or the side of square matrices.
    Matmul,
    /// The same in bf16, with sums in f32.
    MatmulBf16,
    /// The softmax of each row in bf16; a size is (rows, columns), here and for both norms.
    Softmax,
    /// The layer norm of each row in bf16.
    LayerNorm,
    /// The RMS norm of each row in bf16.
    RmsNorm,
    /// Rotary position embedding of q and k in bf16; a size is (rows, columns).
    Rope,
    /// The sum with the residual and its RMS norm in bf16; a size is (rows, columns).
    ResidualNorm,
    /// Rows of a table; a size is (rows of the table, their width, indices), or the first two: an index for every
    /// fourth row.
    Embedding,
    /// Attention in one pass, in bf16; a size is (heads, tokens, numbers of a head), or the first two: 128 numbers.
    FlashAttention,
    /// The same where no query sees a key behind it.
    CausalFlashAttention,
}

impl Ladder {
    /// In a lesson: [`Ladder::run`] at that size where there is a GPU, else the recorded run.
    ///
    /// # Errors
    /// As [`Ladder::run`] and [`Lesson::measure`].
    pub fn measure(&self, lesson: &Lesson, size: impl Into<Size>) -> Result<LadderRun> {
        let (ladder, size) = (*self, self.size(size)?);
        let mut notes = Vec::new();
        let rows = lesson.measure(&LadderRun::experiment(ladder, size), |gpu| {
            let run = ladder.run(gpu, size)?;
            notes.clone_from(&run.notes);
            Ok(run.to_rows())
        })?;
        Ok(LadderRun { notes, ..LadderRun::from_rows(ladder, size, &rows) })
    }

    /// In a lesson: what each rung needs of a multiprocessor, as the driver tells, or as it was recorded.
    ///
    /// # Errors
    /// As [`Ladder::all_resources`] and [`Lesson::measure`].
    pub fn measure_resources(&self, lesson: &Lesson) -> Result<Resources> {
        let mut left_out = Vec::new();
        let rows = lesson.measure(&format!("resources {}", self.topic()), |gpu| {
            let all = self.all_resources(gpu)?;
            left_out.clone_from(&all.left_out);
            Ok(all.to_rows(gpu.backend()))
        })?;
        Ok(Resources { left_out, ..Resources::from_rows(&rows) })
    }

    /// All of them, in reading order.
    pub const ALL: &[Ladder] = &[
        Ladder::VectorAdd,
        Ladder::Reduction,
        Ladder::Matmul,
        Ladder::MatmulBf16,
        Ladder::Embedding,
        Ladder::Softmax,
        Ladder::LayerNorm,
        Ladder::RmsNorm,
        Ladder::Rope,
        Ladder::ResidualNorm,
        Ladder::FlashAttention,
        Ladder::CausalFlashAttention,
    ];

    /// The folder of its kernels, and how many numbers a size has.
    fn about(self) -> (&'static str, usize) {
        match self {
            Ladder::VectorAdd => ("vector_add", 1),
            Ladder::Reduction => ("reduction", 1),
            Ladder::Matmul => ("matmul", 3),
            Ladder::MatmulBf16 => ("matmul_bf16", 3),
            Ladder::Softmax => ("softmax", 2),
            Ladder::LayerNorm => ("layer_norm", 2),
            Ladder::RmsNorm => ("rms_norm", 2),
            Ladder::Rope => ("rope", 2),
            Ladder::ResidualNorm => ("residual_rms_norm", 2),
            Ladder::Embedding => ("embedding", 3),
            Ladder::FlashAttention => ("flash_attention", 3),
            Ladder::CausalFlashAttention => ("flash_attention_causal", 3),
        }
    }

    /// The rung of that path, compiled for this GPU and checked at awkward sizes.
    ///
    /// # Errors
    /// Those of the topic's own `new`.
    pub fn open(self, gpu: &Gpu, path: &str) -> Result<Box<dyn Topic>> {
        Ok(match self {
            Ladder::VectorAdd => Box::new(VectorAdd::new(gpu, path)?),
            Ladder::Reduction => Box::new(Reduction::new(gpu, path)?),
            Ladder::Matmul => Box::new(Matmul::new(gpu, path)?),
            Ladder::MatmulBf16 => Box::new(MatmulBf16::new(gpu, path)?),
            Ladder::Softmax => Box::new(Softmax::new(gpu, path)?),
            Ladder::LayerNorm | Ladder::RmsNorm => Box::new(Norm::new(gpu, path)?),
            Ladder::Rope => Box::new(Rope::new(gpu, path)?),
            Ladder::ResidualNorm => Box::new(ResidualNorm::new(gpu, path)?),
            Ladder::Embedding => Box::new(Embedding::new(gpu, path)?),
            Ladder::FlashAttention => Box::new(FlashAttention::new(gpu, path, false)?),
            Ladder::CausalFlashAttention => Box::new(FlashAttention::new(gpu, path, true)?),
        })
    }

    /// The ladder of that topic, such as `reduction`: the name of its kernels' folder, or `flash_attention_causal`.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the topics that there are.
    pub fn of(topic: &str) -> Result<Ladder> {
        Ladder::ALL.iter().copied().find(|ladder| ladder.topic() == topic).ok_or_else(|| Error::Invalid {
            what: format!("there is no ladder `{topic}`"),
            fix: format!("use one of: {}", Ladder::ALL.iter().map(|it| it.topic()).collect::<Vec<_>>().join(", ")),
        })
    }

    /// The topic's name, which is its folder's; of attention under a causal mask, with that behind it.
    pub fn topic(self) -> &'static str {
        self.about().0
    }

    /// The folder of its kernels.
    fn folder(self) -> &'static str {
        self.about().0.trim_end_matches("_causal")
    }

    /// Its rungs, in reading order.
    pub fn rungs(self) -> Vec<Rung> {
        RUNGS.iter().copied().filter(|rung| rung.path.split('/').next() == Some(self.folder())).collect()
    }

    /// The rung of that name: `03_whole_warps`, its beginning such as `03`, or the whole path.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the rungs that there are.
    pub fn rung(self, name: &str) -> Result<Rung> {
        let rungs = self.rungs();
        let wanted = name.strip_prefix(self.folder()).map_or(name, |rest| rest.trim_start_matches('/'));
        let found = rungs.iter().find(|rung| !wanted.is_empty() && rung.name().starts_with(wanted));
        found.copied().ok_or_else(|| Error::Invalid {
            what: format!("the ladder {} has no rung `{name}`", self.topic()),
            fix: format!("use one of: {}", rungs.iter().map(Rung::name).collect::<Vec<_>>().join(", ")),
        })
    }

    /// The size as this topic counts it: one number for a matrix product means square matrices.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size of 0, or of another count of numbers.
    pub fn size(self, size: impl Into<Size>) -> Result<Size> {
        let size = match (self, size.into()) {
            (Ladder::Matmul | Ladder::MatmulBf16, Size::One(side)) => Size::Three(side, side, side),
            (Ladder::Embedding, Size::Two(rows, width)) => Size::Three(rows, width, rows.div_ceil(4)),
            (Ladder::FlashAttention | Ladder::CausalFlashAttention, Size::Two(heads, length)) => {
                Size::Three(heads, length, 128)
            }
            (_, size) => size,
        };
        if size.numbers().contains(&0) {
            return Err(Error::Invalid {
                what: format!("a size of {size}: there is nothing to time or to look at"),
                fix: "give sizes of at least 1".to_string(),
            });
        }
        match self.about().1 {
            1 => size.one().map(drop),
            2 => size.two().map(drop),
            _ => size.three().map(drop),
        }?;
        if self.folder() == "flash_attention" {
            flash_attention::known_width(size.three()?.2)?;
        }
        Ok(size)
    }

    /// Runs every rung that this GPU runs at that size: each is checked against f64, then all are timed in rounds, with
    /// a copy in device memory and, where it is there, the vendor's library. Rungs that it cannot run are named.
    ///
    /// # Errors
    /// [`Error::Unsupported`] on a simulated GPU, [`Error::Invalid`] for a size that is none or a rung that is wrong,
    /// [`Error::OutOfMemory`] for one that is too large, [`Error::Driver`].
    pub fn run(self, gpu: &Gpu, size: impl Into<Size>) -> Result<LadderRun> {
        self.run_with(gpu, self.size(size)?, &CHECKS, &mut |_| Ok(Vec::new()))
    }

    /// The same by a plan of your own, beside more peers: `peers` is shown the data, and gives what takes part.
    ///
    /// # Errors
    /// As [`Ladder::run`], and those of the peers.
    pub fn run_with<'a>(
        self,
        gpu: &Gpu,
        size: Size,
        plan: &Bench,
        peers: &mut dyn FnMut(&Job<'_>) -> Result<Vec<Peer<'a>>>,
    ) -> Result<LadderRun> {
        contest::run(self, gpu, self.size(size)?, plan, peers)
    }

    /// What the first launch of that rung does, in the simulator, at a size that should be small.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a rung that the simulator does not run; [`Error::Invalid`].
    pub fn inspect(self, rung: &str, size: impl Into<Size>) -> Result<Inspection> {
        let mut seen = self.inspect_all(rung, self.size(size)?)?;
        Ok(seen.swap_remove(0))
    }

    /// The same for each launch of one call: a reduction may need several.
    ///
    /// # Errors
    /// As [`Ladder::inspect`].
    pub fn inspect_all(self, rung: &str, size: Size) -> Result<Vec<Inspection>> {
        Ok(self.call_once(&Gpu::simulated()?, rung, size, Launches::inspect())?.inspections)
    }

    /// The shape of each launch of one call, and what its kernel needs of this GPU. Nothing is launched.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the driver does not tell, or the GPU does not run that rung.
    pub fn resources(self, gpu: &Gpu, rung: &str, size: Size) -> Result<Vec<(LaunchConfig, KernelResources)>> {
        Ok(self.call_once(gpu, rung, size, Launches::resources())?.resources)
    }

    pub(super) fn call_once(self, gpu: &Gpu, rung: &str, size: Size, mut launches: Launches) -> Result<Launches> {
        let size = self.size(size)?;
        let rung = self.open(gpu, self.rung(rung)?.path)?;
        let work = rung.work(size)?;
        contest::fits(gpu, &work, 1)?;
        launches.work = Some(work);
        let (inputs, mut outputs) = arrays_of(&*rung, gpu, size, 1)?;
        rung.call(&inputs, &mut outputs, size, &mut launches)?;
        Ok(launches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ladders_and_rungs_are_found_by_name() {
        for &ladder in Ladder::ALL {
            assert_eq!(Ladder::of(ladder.topic()), Ok(ladder));
            assert!(ladder.rungs().len() >= 2, "{}", ladder.topic());
            assert!(ladder.rungs().iter().all(|rung| !rung.idea().is_empty()), "{}", ladder.topic());
            assert!(ladder.to_string().contains("01_"), "{ladder}");
        }
        assert!(Ladder::of("reductions").unwrap_err().to_string().contains("next: use one of: vector_add, reduction"));
        let path = "reduction/03_whole_warps";
        for name in ["03", "03_whole_warps", path] {
            assert_eq!(Ladder::Reduction.rung(name).unwrap().path, path);
        }
        for name in ["", "reduction", "99", "3"] {
            assert!(Ladder::Reduction.rung(name).unwrap_err().to_string().contains("01_one_atomic_each"), "{name}");
        }
    }

    #[test]
    fn sizes_are_taken_as_the_topic_counts() {
        assert_eq!(Ladder::Matmul.size(8), Ok(Size::Three(8, 8, 8)));
        assert_eq!(Ladder::VectorAdd.size(8), Ok(Size::One(8)));
        for wrong in [Ladder::VectorAdd.size((8, 8)), Ladder::Matmul.size((1, 2)), Ladder::Reduction.size(0)] {
            assert!(wrong.unwrap_err().to_string().contains("\nnext: give "));
        }
    }

    #[test]
    fn a_rung_is_looked_into_and_a_simulated_gpu_has_no_times() {
        let seen = Ladder::Reduction.inspect_all("02", Size::One(1000)).unwrap();
        assert_eq!(seen.iter().map(|seen| seen.grid[0]).collect::<Vec<_>>(), [4, 1]);
        assert!(seen.iter().all(|seen| seen.findings.is_empty()));
        assert_eq!(Ladder::Matmul.inspect("01", (33, 20, 7)).unwrap().kernel, "matmul");
        let gpu = Gpu::simulated().unwrap();
        assert!(Ladder::VectorAdd.run(&gpu, 1000).unwrap_err().to_string().contains("\nnext: "));
        assert!(Ladder::MatmulBf16.inspect("10", 64).unwrap_err().to_string().contains("\nnext: "));
        let huge = Ladder::Matmul.inspect("01", 2_000_000_000).unwrap_err();
        assert!(matches!(huge, Error::OutOfMemory { .. }), "{huge}");
    }
}
