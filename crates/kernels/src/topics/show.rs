//! A ladder as a reader sees it: its rungs as a table, their files, what changed between two, what the simulator counts.

use super::{Ladder, Launches, Size, reason};
use crate::code::{Diff, Listing};
use crate::counters::{RungCount, RungCounters};
use gpulab::error::{Error, Result};
use gpulab::gpu::Gpu;
use gpulab::measurement::Resources;
use gpulab::table::{Cell, Table};
use std::fmt;

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
            None => Err(Error::Invalid {
                what: format!("`{}` is the first rung: there is none before it", rung.name()),
                fix: format!("see it whole: `ladder.source(\"{}\")?`", rung.name()),
            }),
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
        let row = |rung: &crate::ladder::Rung| {
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
            heads: ["rung", "idea", "threads a block", "compute capability"].map(str::to_string).to_vec(),
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
            writeln!(f, "{:24} {threads:>8} threads a block, GPU {major}.{minor}{only}", rung.name())?;
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
        assert!(bf16.left_out.iter().any(|(name, why)| name == "10_cluster" && !why.is_empty()), "{bf16}");
        assert!(Ladder::Reduction.counters((1, 2)).unwrap_err().to_string().contains("\nnext: "));
    }

    #[test]
    fn a_simulated_gpu_tells_no_resources() {
        let gpu = Gpu::simulated().unwrap();
        let text = Ladder::VectorAdd.all_resources(&gpu).unwrap_err().to_string();
        assert!(text.contains("simulated GPU") && text.contains("\nnext: "), "{text}");
    }

    #[test]
    fn every_rung_tells_its_resources_on_a_gpu() {
        let Some(gpu) = super::super::hardware() else { return };
        for &ladder in Ladder::ALL {
            let it = ladder.all_resources(&gpu).unwrap_or_else(|error| panic!("{}: {error}", ladder.topic()));
            assert_eq!(it.rungs.len() + it.left_out.len(), ladder.rungs().len());
            let sound = |it: &KernelResources| it.registers > 0 && it.blocks > 0 && it.occupancy() <= 100.0;
            assert!(it.rungs.iter().all(|(_, it)| sound(it)), "{it}");
        }
    }
}
