//! What kernels take of a multiprocessor, and how many of their blocks fit on one.

use super::{Backend, Measurement, Summary};
use crate::table::{Cell, Table};
use std::fmt;

/// What one kernel needs of the GPU, and what that leaves room for, as the driver tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelResources {
    /// Registers a thread.
    pub registers: u32,
    /// Static shared memory a block, in bytes.
    pub shared_bytes: u32,
    /// Dynamic shared memory a block, in bytes: the launch asks for it.
    pub dynamic_shared_bytes: u32,
    /// Local memory a thread, in bytes: registers that did not fit (spills) and arrays indexed at run time.
    pub local_bytes: u32,
    /// The largest block that these registers allow, in threads.
    pub max_threads_per_block: u32,
    /// Threads of the launch's block.
    pub threads: u32,
    /// Blocks that one multiprocessor holds at a time.
    pub blocks: u32,
    /// Threads that one multiprocessor can hold at a time, of any kernel.
    pub max_threads_per_multiprocessor: u32,
    /// Blocks that one multiprocessor can hold at a time, of any kernel.
    pub max_blocks_per_multiprocessor: u32,
    /// Blocks for which a multiprocessor's shared memory would be enough.
    pub blocks_by_shared: u32,
}

impl KernelResources {
    /// Warps that one multiprocessor holds at a time.
    pub fn warps(&self) -> u32 {
        self.blocks * self.threads.div_ceil(32)
    }

    /// Warps at a time in percent of the most that a multiprocessor can hold.
    pub fn occupancy(&self) -> f64 {
        f64::from(self.warps() * 32) * 100.0 / f64::from(self.max_threads_per_multiprocessor.max(1))
    }

    /// What keeps one more block out: `threads`, `shared memory`, `blocks` (their number itself) or `registers`.
    pub fn limited_by(&self) -> &'static str {
        let by_threads = self.max_threads_per_multiprocessor / self.threads.next_multiple_of(32).max(32);
        match self.blocks {
            blocks if blocks >= by_threads => "threads",
            blocks if blocks >= self.blocks_by_shared => "shared memory",
            blocks if blocks >= self.max_blocks_per_multiprocessor => "blocks",
            _ => "registers",
        }
    }
}

/// A field's name in `metrics.csv`, its unit, and how it is read and written.
type Field = (&'static str, &'static str, fn(&mut KernelResources) -> &mut u32);

const FIELDS: [Field; 10] = [
    ("registers", "", |it| &mut it.registers),
    ("static shared memory", "bytes", |it| &mut it.shared_bytes),
    ("dynamic shared memory", "bytes", |it| &mut it.dynamic_shared_bytes),
    ("local memory", "bytes", |it| &mut it.local_bytes),
    ("largest block", "threads", |it| &mut it.max_threads_per_block),
    ("block", "threads", |it| &mut it.threads),
    ("blocks a multiprocessor", "", |it| &mut it.blocks),
    ("most threads", "threads", |it| &mut it.max_threads_per_multiprocessor),
    ("most blocks", "", |it| &mut it.max_blocks_per_multiprocessor),
    ("blocks by shared memory", "", |it| &mut it.blocks_by_shared),
];

/// What each rung of a ladder needs. As the last expression of a cell it shows itself as a table.
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use = "resources show themselves as the last expression of a cell, without a semicolon"]
pub struct Resources {
    /// Each rung's name with what it needs.
    pub rungs: Vec<(String, KernelResources)>,
    /// Rungs that are not in the table, each with the reason.
    pub left_out: Vec<(String, String)>,
    /// Where the figures come from, such as `recorded on NVIDIA H200, 2026-11-21`.
    pub source: String,
}

impl Resources {
    /// What that rung needs; `None` where the table has no such rung. Its number is enough: `03`.
    pub fn get(&self, rung: &str) -> Option<KernelResources> {
        let is = |name: &str| name == rung || name.split('_').next() == Some(rung);
        self.rungs.iter().find(|(name, _)| is(name)).map(|(_, it)| *it)
    }

    /// Ten rows a rung; `size` is the rung's place, so that the order is kept.
    pub fn to_rows(&self, backend: Backend) -> Vec<Measurement> {
        let row = |(at, (name, it)): (usize, &(String, KernelResources))| {
            let mut it = *it;
            FIELDS.map(|(metric, unit, field)| {
                let once = Summary::of(&[f64::from(*field(&mut it))]);
                Measurement::new(name, backend, at, metric, unit, once).dtype("")
            })
        };
        self.rungs.iter().enumerate().flat_map(row).collect()
    }

    /// The resources of such rows; other rows are passed over.
    pub fn from_rows(rows: &[Measurement]) -> Resources {
        let mut rungs: Vec<(u64, String, KernelResources)> = Vec::new();
        let mut source = String::new();
        for row in rows {
            let Some((.., field)) = FIELDS.iter().find(|field| field.0 == row.metric) else { continue };
            let own = rungs.iter().position(|(size, name, _)| *size == row.size && *name == row.experiment);
            let own = own.unwrap_or_else(|| {
                rungs.push((row.size, row.experiment.clone(), KernelResources::default()));
                rungs.len() - 1
            });
            *field(&mut rungs[own].2) = row.summary.median as u32;
            source = row.source();
        }
        rungs.sort_by_key(|(size, ..)| *size);
        let rungs = rungs.into_iter().map(|(_, name, it)| (name, it)).collect();
        Resources { rungs, left_out: Vec::new(), source }
    }

    fn table(&self) -> Table {
        const HEADS: [&str; 10] = [
            "rung",
            "registers a thread",
            "static shared",
            "dynamic shared",
            "local bytes a thread",
            "threads a block",
            "blocks a multiprocessor",
            "warps a multiprocessor",
            "occupancy",
            "limited by",
        ];
        let row = |(name, it): &(String, KernelResources)| {
            vec![
                Cell::of(name),
                Cell::of(it.registers.to_string()),
                Cell::of(shared(it.shared_bytes)),
                Cell::of(shared(it.dynamic_shared_bytes)),
                Cell::of(it.local_bytes.to_string()).loud(it.local_bytes > 0),
                Cell::of(it.threads.to_string()),
                Cell::of(it.blocks.to_string()),
                Cell::of(it.warps().to_string()),
                Cell::of(format!("{:.0} %", it.occupancy())),
                Cell::of(it.limited_by()),
            ]
        };
        let mut notes = Vec::new();
        if self.rungs.iter().any(|(_, it)| it.local_bytes > 0) {
            let (marked, spilled) = ("local bytes on an orange ground (`!`)", "registers that did not fit");
            notes.push(format!("{marked}: {spilled}, or an array with a computed index, both in global memory"));
        }
        notes.extend(self.left_out.iter().map(|(name, why)| format!("not in the table: `{name}`: {why}")));
        let source = if self.source.is_empty() { "no figures" } else { &self.source };
        Table {
            title: format!("what each rung needs of a multiprocessor ({source})"),
            heads: HEADS.map(str::to_string).to_vec(),
            rows: self.rungs.iter().map(row).collect(),
            notes,
            ..Table::default()
        }
    }

    /// The table as a piece of a page.
    pub fn html(&self) -> String {
        self.table().html()
    }

    /// What the notebook calls to show a value.
    pub fn evcxr_display(&self) {
        self.table().show();
    }
}

/// Bytes of shared memory; a dash for none.
fn shared(bytes: u32) -> String {
    match bytes {
        0 => "–".to_string(),
        _ => crate::error::bytes(bytes.into()),
    }
}

impl fmt::Display for Resources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.table().text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spilling() -> KernelResources {
        KernelResources {
            registers: 255,
            shared_bytes: 1024,
            dynamic_shared_bytes: 98_304,
            local_bytes: 16,
            max_threads_per_block: 256,
            threads: 256,
            blocks: 1,
            max_threads_per_multiprocessor: 2048,
            max_blocks_per_multiprocessor: 32,
            blocks_by_shared: 2,
        }
    }

    #[test]
    fn resources_survive_the_way_through_rows_and_name_their_machine() {
        let plain = KernelResources {
            registers: 20,
            threads: 256,
            blocks: 8,
            max_threads_per_multiprocessor: 2048,
            ..Default::default()
        };
        let both = Resources {
            rungs: vec![("02_b".to_string(), spilling()), ("01_a".to_string(), plain)],
            left_out: Vec::new(),
            source: "recorded on NVIDIA H200, 2026-11-21".to_string(),
        };
        let mut rows = both.to_rows(Backend::Cuda);
        assert_eq!(rows.len(), 20);
        for row in &mut rows {
            (row.machine, row.recorded) = ("NVIDIA H200".to_string(), true);
            row.time = "2026-11-21T04:34:20Z".to_string();
        }
        rows.reverse();
        rows.push(Measurement::time_ms("01_a", Backend::Cuda, 0, Summary::of(&[1.0])));
        assert_eq!(Resources::from_rows(&rows), both);
        assert_eq!(both.get("02"), both.get("02_b"));
        assert!(both.get("0").is_none() && both.get("02").is_some());
    }

    #[test]
    fn the_table_says_what_limits_and_what_spills() {
        let few = KernelResources {
            blocks: 2,
            threads: 512,
            max_threads_per_multiprocessor: 2048,
            blocks_by_shared: 2,
            ..spilling()
        };
        assert_eq!((spilling().limited_by(), spilling().warps(), spilling().occupancy()), ("registers", 8, 12.5));
        assert_eq!((few.limited_by(), few.occupancy()), ("shared memory", 50.0));
        let full = KernelResources { blocks: 8, threads: 256, max_threads_per_multiprocessor: 2048, ..spilling() };
        assert_eq!((full.limited_by(), full.occupancy()), ("threads", 100.0));
        let tiny = KernelResources { blocks: 32, threads: 32, blocks_by_shared: 100, ..spilling() };
        assert_eq!(tiny.limited_by(), "blocks");
        assert_eq!(KernelResources { blocks: 25, ..tiny }.limited_by(), "registers");
        let it = Resources {
            rungs: vec![("08_wide_tile".to_string(), spilling())],
            left_out: vec![("05_wgmma".to_string(), "needs Hopper".to_string())],
            source: "measured on X".to_string(),
        };
        let text = it.to_string();
        for part in
            ["(measured on X)", "08_wide_tile", "96.0 KiB", "16!", "12 %", "not in the table: `05_wgmma`: needs"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            it.html().contains("registers<br>a<br>thread") && Resources::default().to_string().contains("no figures")
        );
    }
}
