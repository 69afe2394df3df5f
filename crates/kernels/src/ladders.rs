//! The ladders by name: rungs, files, what changed between two, and what the simulator and the driver tell of each.

use crate::code::{Diff, Listing};
use crate::counters::{RungCount, RungCounters};
use crate::ladder::{RUNGS, Rung};
use crate::sparse::{Blocks, Pattern, entries_fit};
use crate::topics::{
    BlockSparse, Codes, Embedding, FlashAttention, FlashBackward, Launches, Matmul, MatmulBf16, Norm, QuantizedGemv,
    QuantizedMatmul, Reduction, ResidualNorm, Rope, Size, Softmax, Spmm, Spmv, Topic, TwoFourProduct, VectorAdd, fits,
    known_width, reason,
};
use gpulab::error::{Error, Result};
use gpulab::gpu::{Gpu, KernelResources};
use gpulab::inspect::Inspection;
use gpulab::launch::LaunchConfig;
use gpulab::lesson::Lesson;
use gpulab::measurement::Resources;
use gpulab::table::{Cell, Table};
use std::fmt;

/// A topic's rungs, from the first idea to the hardware's limit.
///
/// A new topic is a variant here, and a line in each `match` below that the compiler then asks for.
///
/// # Examples
/// ```
/// use gpulab::prelude::*;
/// use gpulab_kernels::Ladder;
/// let ladder = Ladder::of("vector_add")?;
/// assert_eq!(ladder.rungs()[0].path, "vector_add/01_one_thread_each");
/// println!("{}", ladder.source("01")?);
/// // What the second rung changes; of the first there is nothing to compare.
/// assert!(ladder.diff("02")?.to_string().contains(" + "));
/// assert!(matches!(ladder.diff("01"), Err(Error::Invalid { .. })));
/// // A launch of it in the simulator: no mistakes, and a warp's 32 floats in 4 sectors.
/// let seen = ladder.inspect("01", 1000)?;
/// assert!(seen.findings.is_empty());
/// assert_eq!(seen.accesses[0].sectors, 4);
/// // Its speed asks for hardware: `ladder.measure(&lesson, 1 << 28)?` in a lesson, `ladder.run(&gpu, 1 << 28)?` elsewhere.
/// assert!(matches!(ladder.run(&Gpu::simulated()?, 1000), Err(Error::Unsupported { .. })));
/// # Ok::<(), Error>(())
/// ```
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
    /// Attention in one pass, in bf16; a size is (heads, tokens, head dimension), or the first two: 128 numbers.
    FlashAttention,
    /// The same where no query sees a key behind it.
    CausalFlashAttention,
    /// The gradients of attention's inputs, in bf16; a size is that of attention.
    FlashBackward,
    /// The same where no query sees a key behind it.
    CausalFlashBackward,
    /// A matrix of 4 bits times a vector in bf16, 128 columns to a scale; a size is (rows, columns).
    QuantizedGemv,
    /// The same with 8 bits.
    QuantizedGemvInt8,
    /// Up to 64 vectors in bf16 times a matrix of 4 bits; a size is (vectors, rows, columns).
    QuantizedMatmul,
    /// A sparse matrix in CSR times a vector in f32, its entries anywhere; a size is (rows, columns, entries).
    Spmv,
    /// The same where a few rows have most of the entries.
    SpmvPowerLaw,
    /// A sparse matrix in CSR times a dense one in f32; a size is (side of the sparse one, width of the dense one, entries).
    Spmm,
    /// The same in bf16, entries in blocks of 32 × 32.
    BlockSparse,
    /// A 2:4 matrix times a dense one in bf16; a size is (m, n, k).
    TwoFour,
}

impl Ladder {
    /// In a lesson: what each rung needs of a multiprocessor, as the driver tells, or as it was recorded.
    ///
    /// # Errors
    /// As [`Ladder::all_resources`] and [`Lesson::measure`].
    pub fn measure_resources(&self, lesson: &Lesson) -> Result<Resources> {
        let name = format!("resources {}", self.topic());
        lesson.measure_as(&name, |gpu| self.all_resources(gpu), Resources::to_rows, Resources::from_rows)
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
        Ladder::FlashBackward,
        Ladder::CausalFlashBackward,
        Ladder::QuantizedGemv,
        Ladder::QuantizedGemvInt8,
        Ladder::QuantizedMatmul,
        Ladder::Spmv,
        Ladder::SpmvPowerLaw,
        Ladder::Spmm,
        Ladder::BlockSparse,
        Ladder::TwoFour,
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
            Ladder::FlashBackward => ("flash_backward", 3),
            Ladder::CausalFlashBackward => ("flash_backward_causal", 3),
            Ladder::QuantizedGemv => ("quantized_gemv", 2),
            Ladder::QuantizedGemvInt8 => ("quantized_gemv_int8", 2),
            Ladder::QuantizedMatmul => ("quantized_matmul", 3),
            Ladder::Spmv => ("spmv", 3),
            Ladder::SpmvPowerLaw => ("spmv_power_law", 3),
            Ladder::Spmm => ("spmm", 3),
            Ladder::BlockSparse => ("block_sparse", 3),
            Ladder::TwoFour => ("two_four", 3),
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
            Ladder::FlashBackward => Box::new(FlashBackward::new(gpu, path, false)?),
            Ladder::CausalFlashBackward => Box::new(FlashBackward::new(gpu, path, true)?),
            Ladder::QuantizedGemv => Box::new(QuantizedGemv::new(gpu, path, Codes::INT4)?),
            Ladder::QuantizedGemvInt8 => Box::new(QuantizedGemv::new(gpu, path, Codes::INT8)?),
            Ladder::QuantizedMatmul => Box::new(QuantizedMatmul::new(gpu, path, Codes::INT4)?),
            Ladder::Spmv => Box::new(Spmv::new(gpu, path, Pattern::Uniform)?),
            Ladder::SpmvPowerLaw => Box::new(Spmv::new(gpu, path, Pattern::PowerLaw)?),
            Ladder::Spmm => Box::new(Spmm::new(gpu, path)?),
            Ladder::BlockSparse => Box::new(BlockSparse::new(gpu, path)?),
            Ladder::TwoFour => Box::new(TwoFourProduct::new(gpu, path)?),
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

    /// The topic's name, which is its folder's; of attention under a causal mask, of codes of 8 bits, and of rows of
    /// uneven length, with that behind it.
    pub fn topic(self) -> &'static str {
        self.about().0
    }

    /// The folder of its kernels.
    fn folder(self) -> &'static str {
        let suffixes = ["_causal", "_int8", "_power_law"];
        suffixes.iter().fold(self.about().0, |name, suffix| name.trim_end_matches(suffix))
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
            (
                Ladder::FlashAttention
                | Ladder::CausalFlashAttention
                | Ladder::FlashBackward
                | Ladder::CausalFlashBackward,
                Size::Two(heads, length),
            ) => Size::Three(heads, length, 128),
            (_, size) => size,
        };
        if size.numbers().contains(&0) {
            return Err(Error::invalid(
                format!("a size of {size}: there is nothing to time or to look at"),
                "give sizes of at least 1",
            ));
        }
        match self.about().1 {
            1 => size.one().map(drop),
            2 => size.two().map(drop),
            _ => size.three().map(drop),
        }?;
        if self.folder().starts_with("flash_") {
            known_width(size.three()?.2)?;
        }
        match (self, size) {
            (Ladder::QuantizedGemv | Ladder::QuantizedGemvInt8, Size::Two(rows, columns))
            | (Ladder::QuantizedMatmul, Size::Three(_, rows, columns)) => drop(Codes::INT4.lengths(rows, columns)?),
            (Ladder::Spmv | Ladder::SpmvPowerLaw, Size::Three(rows, columns, entries)) => {
                entries_fit(rows, columns, entries)?;
            }
            (Ladder::Spmm, Size::Three(side, _, entries)) => entries_fit(side, side, entries)?,
            (Ladder::BlockSparse, Size::Three(side, _, entries)) => {
                let rows = side.div_ceil(Blocks::SIDE);
                entries_fit(rows, rows, entries.div_ceil(Blocks::SIDE * Blocks::SIDE))?;
            }
            _ => (),
        }
        Ok(size)
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

    fn call_once(self, gpu: &Gpu, rung: &str, size: Size, mut launches: Launches) -> Result<Launches> {
        let size = self.size(size)?;
        let rung = self.open(gpu, self.rung(rung)?.path)?;
        let work = rung.work(size)?;
        fits(gpu, &work, 1)?;
        launches.work = Some(work);
        let (inputs, mut outputs) = rung.arrays(size, 1)?;
        rung.call(&inputs, &mut outputs, size, &mut launches)?;
        Ok(launches)
    }
}

impl Ladder {
    /// That rung's file, in colour; `03` or `03_whole_warps`.
    ///
    /// # Errors
    /// As [`Ladder::rung`]; [`Error::File`] when the file cannot be read.
    pub fn source(self, rung: &str) -> Result<Listing> {
        self.rung(rung)?.listing()
    }

    /// What is new in that rung, compared with the rung before.
    ///
    /// # Errors
    /// As [`Ladder::source`]; [`Error::Invalid`] for the first rung.
    pub fn diff(self, rung: &str) -> Result<Diff> {
        let (rungs, rung) = (self.rungs(), self.rung(rung)?);
        let at = rungs.iter().position(|own| own.path == rung.path).unwrap_or(0);
        match at.checked_sub(1) {
            Some(before) => rung.diff_from(&rungs[before]),
            None => Err(Error::invalid(
                format!("`{}` is the first rung: there is none before it", rung.name()),
                format!("see it whole: `ladder.source(\"{}\")?`", rung.name()),
            )),
        }
    }

    /// What is new in one rung, compared with another one.
    ///
    /// # Errors
    /// As [`Ladder::source`].
    pub fn diff_from(self, before: &str, after: &str) -> Result<Diff> {
        self.rung(after)?.diff_from(&self.rung(before)?)
    }

    /// What the simulator counts of each rung at that size, which should be small. Rungs that it does not run are named
    /// with the reason.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a size that is none of this topic's.
    pub fn counters(self, size: impl Into<Size>) -> Result<RungCounters> {
        let size = self.size(size)?;
        let title = format!("{} at size {size}", self.topic());
        let mut all = RungCounters { title, ..RungCounters::default() };
        for rung in self.rungs() {
            match self.call_once(&Gpu::simulated()?, rung.name(), size, Launches::inspect()) {
                Ok(seen) => {
                    all.operations = seen.work.map_or(0.0, |work| work.operations);
                    all.rungs.push(RungCount::of(rung.name(), &seen.inspections));
                }
                Err(error) => all.left_out.push((rung.name().to_string(), reason(&error))),
            }
        }
        Ok(all)
    }

    /// What each rung needs of that GPU, as its driver tells. Rungs that it does not run are named with the reason.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where no driver tells.
    pub fn all_resources(self, gpu: &Gpu) -> Result<Resources> {
        let mut all = Resources { source: format!("measured on {}", gpu.name()), ..Resources::default() };
        let mut first = None;
        for rung in self.rungs() {
            // Where a call has several launches, all run the same kernel with the same block.
            match self.resources(gpu, rung.name(), self.example()).map(|launches| launches.first().copied()) {
                Ok(Some((_, needs))) => all.rungs.push((rung.name().to_string(), needs)),
                Ok(None) => all.left_out.push((rung.name().to_string(), "it launches no kernel".to_string())),
                Err(error) => {
                    all.left_out.push((rung.name().to_string(), reason(&error)));
                    first.get_or_insert(error);
                }
            }
        }
        match first {
            Some(error) if all.rungs.is_empty() => Err(error),
            _ => Ok(all),
        }
    }

    /// A size at which every rung runs itself.
    fn example(self) -> Size {
        const SIDE: usize = 1024;
        let sizes = [Size::Three(SIDE, SIDE, SIDE), Size::Two(SIDE, SIDE)];
        sizes.into_iter().find(|&size| self.size(size).is_ok()).unwrap_or(Size::One(SIDE * SIDE))
    }

    fn table(self) -> Table {
        let row = |rung: &Rung| {
            let (major, minor) = rung.needs;
            let shared = match rung.shared_bytes {
                0 => String::new(),
                bytes => format!(", {} shared", gpulab::error::bytes(bytes.into())),
            };
            let threads = rung.threads();
            vec![
                Cell::of(rung.name()),
                Cell::of(rung.idea()),
                Cell::of(format!("{threads}{shared}")),
                Cell::of(format!("{major}.{minor}{}", if rung.only { " only" } else { "" })),
            ]
        };
        let rungs = self.rungs();
        Table {
            title: format!("{}: {} rungs", self.topic(), rungs.len()),
            heads: ["rung", "idea", "threads per block", "compute capability"].map(str::to_string).to_vec(),
            rows: rungs.iter().map(row).collect(),
            notes: Vec::new(),
            text_columns: 1,
        }
    }

    /// The table of its rungs, as a piece of a page.
    pub fn html(self) -> String {
        self.table().html()
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        gpulab::table::show(&self.to_string(), &self.html());
    }
}

impl fmt::Display for Ladder {
    /// A table of its rungs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} rungs", self.topic(), self.rungs().len())?;
        for rung in self.rungs() {
            let threads = rung.threads();
            let (major, minor) = rung.needs;
            let only = if rung.only { " only" } else { "" };
            writeln!(f, "{:24} {threads:>8} threads per block, GPU {major}.{minor}{only}", rung.name())?;
            writeln!(f, "{:24} {}", "", rung.idea())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulab::measurement::KernelResources;

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
        assert_eq!(Ladder::QuantizedMatmul.size((1, 3, 256)), Ok(Size::Three(1, 3, 256)));
        for wrong in [Ladder::QuantizedGemv.size((8, 64)), Ladder::QuantizedMatmul.size((1, 8, 200))] {
            assert!(wrong.unwrap_err().to_string().contains("groups of 128"));
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
        let cluster = Ladder::MatmulBf16.inspect("10", 64).unwrap();
        assert!(cluster.findings.is_empty() && cluster.grid[0].is_multiple_of(2), "{:?}", cluster.findings);
        let huge = Ladder::Matmul.inspect("01", 2_000_000_000).unwrap_err();
        assert!(matches!(huge, Error::OutOfMemory { .. }), "{huge}");
    }

    #[test]
    fn neighbours_are_compared_and_the_first_rung_has_none() {
        let it = Ladder::Reduction.diff("03").unwrap();
        assert_eq!(
            (it.before.name.as_str(), it.after.name.as_str()),
            ("reduction/02_tree.cu", "reduction/03_whole_warps.cu")
        );
        assert_eq!(Ladder::Reduction.diff_from("02", "03_whole_warps").unwrap(), it);
        assert_eq!(Ladder::Reduction.source("03").unwrap(), it.after);
        let text = Ladder::Reduction.diff("01").unwrap_err().to_string();
        assert!(text.contains("the first rung") && text.contains("\nnext: see it whole"), "{text}");
        assert!(Ladder::Reduction.diff("99").unwrap_err().to_string().contains("\nnext: "));
        let html = Ladder::Reduction.html();
        assert!(html.contains("03_whole_warps") && html.contains("whole warps work"), "{html}");
    }

    #[test]
    fn counters_tell_the_rungs_apart_and_name_those_left_out() {
        let it = Ladder::Reduction.counters(5000).unwrap();
        let of = |rung: &str| it.get(rung).unwrap().counters;
        assert!(it.left_out.is_empty() && it.rungs.len() == Ladder::Reduction.rungs().len());
        assert!(it.rungs.iter().all(|rung| rung.findings == 0));
        assert!(of("02").divergent_branches > of("03").divergent_branches);
        let conflicts = |it: gpulab::warpsim::Counters| it.shared_load_bank_conflicts + it.shared_store_bank_conflicts;
        assert!(conflicts(of("03")) > 0 && conflicts(of("04")) == 0);
        assert!(of("06").barriers < of("05").barriers && of("01").global_atomics > 0);
        assert_eq!(it.get("02").unwrap().launches, 2);
        let bf16 = Ladder::MatmulBf16.counters((64, 64, 64)).unwrap();
        assert!(bf16.left_out.is_empty() && bf16.rungs.iter().all(|rung| rung.findings == 0), "{bf16}");
        // Its global memory goes by the TMA alone, which is no request of a warp.
        let cluster = bf16.get("10").unwrap().counters;
        assert!(cluster.warp_instructions > 0 && cluster.global_load_requests == 0, "{bf16}");
        assert!(Ladder::Reduction.counters((1, 2)).unwrap_err().to_string().contains("\nnext: "));
    }

    #[test]
    fn a_simulated_gpu_tells_no_resources() {
        let gpu = Gpu::simulated().unwrap();
        let text = Ladder::VectorAdd.all_resources(&gpu).unwrap_err().to_string();
        assert!(text.contains("simulated GPU") && text.contains("\nnext: "), "{text}");
    }

    #[test]
    #[ignore = "needs an NVIDIA GPU"]
    fn every_rung_tells_its_resources_on_a_gpu() {
        let gpu = crate::topics::hardware();
        for &ladder in Ladder::ALL {
            let it = ladder.all_resources(&gpu).unwrap_or_else(|error| panic!("{}: {error}", ladder.topic()));
            assert_eq!(it.rungs.len() + it.left_out.len(), ladder.rungs().len());
            let sound = |it: &KernelResources| it.registers > 0 && it.blocks > 0 && it.occupancy() <= 100.0;
            assert!(it.rungs.iter().all(|(_, it)| sound(it)), "{it}");
        }
    }
}
