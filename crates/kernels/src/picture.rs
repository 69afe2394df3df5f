//! A run of a ladder as pictures: bars in percent of a peer, the roofline under what the GPU can reach, and the table.

use crate::counters::RungCounters;
use crate::run::{COPY, LadderRun, RunLine};
use gpulab::measurement::{Measurement, figures};
use gpulab::plot;
use gpulab::plot::{LadderChart, Reached, Roofline, percent};
use gpulab::table::{Cell, Table};

impl LadderRun {
    /// A bar for each rung and peer, in percent of the first peer whose rate is counted as the rungs' is, with what the
    /// GPU can reach at most. More can be added: `.peer("CUB")`, and `.prediction(70.0)` in percent of the peer.
    pub fn bars(&self) -> LadderChart {
        let unit = self.unit();
        let rows: Vec<Measurement> = self.rows().into_iter().filter(|row| row.unit == unit).collect();
        let mut chart = plot::ladder(&rows).title(&self.title());
        if let Some(peer) = self.peers().find(|peer| peer.unit == unit) {
            chart = chart.peer(&peer.name);
        }
        for rung in self.rungs() {
            let ratios = rung.against.iter();
            chart = ratios.fold(chart, |chart, (peer, ratio)| chart.ratio(&rung.name, peer, ratio.median));
        }
        if let Some((label, value)) = self.ceiling() {
            chart = chart.ceiling(&label, value);
        }
        self.notes.iter().fold(chart, |chart, note| chart.note(note))
    }

    /// Every rung and peer on the roofline: operations for each byte that a call must move, against operations a second.
    pub fn roofline(&self) -> Roofline {
        let flop_per_byte = self.operations / self.bytes;
        // The copy adds and multiplies nothing: it is the roof.
        let lines = self.lines.iter().filter(|line| line.name != COPY);
        let note = format!(
            "All points stand at {} FLOP/byte: whatever the rung, a call must move {} for {} operations. What a rung \
             moves beyond that shows as a lower rate.",
            figures(flop_per_byte),
            gpulab::error::bytes(self.bytes as u64),
            scientific(self.operations),
        );
        self.under_roofs(lines.map(|line| (line, flop_per_byte)).collect()).note(&note).note(&self.place())
    }

    /// Every rung on a roofline of the bytes that its warps ask for, as the simulator counted them at a small size:
    /// caches and tiles in shared memory then show as a place further to the right. Peers have no such counts.
    pub fn roofline_asked(&self, counters: &RungCounters) -> Roofline {
        let count = |line: &RunLine| counters.rungs.iter().find(|it| it.name == line.name);
        let asked = |line| count(line).map(|it| counters.operations / it.global_bytes() as f64);
        let lines: Vec<(&RunLine, f64)> = self.rungs().filter_map(|line| Some((line, asked(line)?))).collect();
        let left: Vec<&str> = self.rungs().filter(|line| count(line).is_none()).map(|line| &*line.name).collect();
        let mut chart = self.under_roofs(lines).note(&format!(
            "Bytes: what warps ask global memory for, counted by the simulator ({}). Where caches serve them, a point may \
             stand above the memory's roof.",
            counters.title
        ));
        if !left.is_empty() {
            chart = chart.note(&format!("Without counts: {}.", left.join(", ")));
        }
        chart.note(&self.place())
    }

    /// Lines with their FLOP a byte, under what this GPU can reach.
    fn under_roofs(&self, lines: Vec<(&RunLine, f64)>) -> Roofline {
        if self.operations == 0.0 {
            let why = "Nothing is added or multiplied here, so there is no roofline. next: look at `run.bars()`";
            return Roofline::refused(&self.title(), why);
        }
        let unit = self.unit();
        let point = |(line, flop_per_byte): (&RunLine, f64)| Reached {
            name: line.name.clone(),
            flop_per_byte,
            tflop_per_s: self.operations / line.time.median / 1e9,
            recorded: !self.recorded_on.is_empty(),
        };
        let points: Vec<Reached> = lines.into_iter().filter(|(line, _)| line.unit == unit).map(point).collect();
        let mut chart = plot::roofline(&points).title(&self.title());
        if let Some(peak) = peak(&self.machine) {
            chart = chart.memory_roof("data sheet", peak.memory);
        }
        if let Some(copy) = self.find(COPY) {
            chart = chart.memory_roof("device copy of the same arrays, measured", copy.rate.median);
        }
        match self.arithmetic() {
            Some((label, value)) => chart.compute_roof(&label, value),
            None => chart.note("No compute roof: what this GPU's arithmetic can reach is not known here."),
        }
    }

    /// `reduction, f32, 268435456`.
    fn title(&self) -> String {
        format!("{}, {}, size {}", self.ladder.topic(), self.dtype, self.size)
    }

    /// `Recorded on NVIDIA H200.`
    fn place(&self) -> String {
        match self.recorded_on.as_str() {
            "" if self.machine.is_empty() => "Measured on this machine.".to_string(),
            "" => format!("Measured on {}.", self.machine),
            machine => format!("Recorded on {machine}."),
        }
    }

    /// The unit of the rungs' rates.
    fn unit(&self) -> String {
        self.rungs().next().map_or(String::new(), |line| line.unit.clone())
    }

    /// What no rung can pass, in the rungs' unit: the memory's bandwidth or the arithmetic's peak.
    fn ceiling(&self) -> Option<(String, f64)> {
        match in_bytes(&self.unit()) {
            true => peak(&self.machine).map(|peak| ("memory, data sheet".to_string(), peak.memory)),
            false => self.arithmetic(),
        }
    }

    /// The arithmetic's peak in TFLOP/s: tensor cores for bf16 products, else the multiprocessors' f32 lanes.
    fn arithmetic(&self) -> Option<(String, f64)> {
        let tensor = peak(&self.machine).map(|peak| ("tensor cores, data sheet".to_string(), peak.bf16));
        let lanes = self.fp32_peak.map(|peak| ("f32: multiprocessors × lanes × 2 × clock".to_string(), peak));
        if self.dtype == "bf16" && !in_bytes(&self.unit()) { tensor } else { lanes }
    }

    fn table(&self) -> Table {
        let rungs: Vec<&RunLine> = self.rungs().collect();
        let peers: Vec<String> =
            rungs.first().map_or(Vec::new(), |line| line.against.iter().map(|(name, _)| name.clone()).collect());
        let unit = self.unit();
        let best = rungs.iter().map(|line| line.rate.median).fold(0.0, f64::max);
        let row = |line: &RunLine| {
            let rate = match line.unit == unit {
                true => figures(line.rate.median),
                false => format!("{} {}", figures(line.rate.median), line.unit),
            };
            let mut cells = vec![
                Cell::of(&line.name),
                Cell::of(if line.time.median.is_nan() { "–".to_string() } else { figures(line.time.median * 1e3) }),
                Cell { best: !line.is_peer() && line.rate.median == best, ..Cell::of(rate) },
            ];
            let share = |peer: &String| line.ratio(peer).map_or("–".to_string(), |ratio| percent(ratio.median));
            cells.extend(peers.iter().map(|peer| Cell::of(share(peer))));
            cells.push(Cell::of(line.error.map_or("–".to_string(), |error| format!("{error:.1e}"))));
            cells
        };
        let mut heads = vec!["rung or peer".to_string(), "µs a\u{a0}call".to_string(), unit.clone()];
        // Spaces that do not break keep the heads low.
        heads.extend(peers.iter().map(|peer| format!("%\u{a0}of {}", peer.replace(' ', "\u{a0}"))));
        heads.push("relative error".to_string());
        Table {
            title: self.title(),
            heads,
            rows: self.lines.iter().map(row).collect(),
            notes: std::iter::once(self.place()).chain(self.notes.iter().cloned()).collect(),
            ..Table::default()
        }
    }

    /// The table and the bars as a piece of a page.
    pub fn html(&self) -> String {
        format!("{}{}", self.table().html(), self.bars().draw().html())
    }

    /// What the notebook calls to show a value. Viewers take the page; whoever collects pictures takes the bars.
    pub fn evcxr_display(&self) {
        print!(
            "EVCXR_BEGIN_CONTENT text/plain\n{self}EVCXR_END_CONTENT\n\
             EVCXR_BEGIN_CONTENT text/html\n{}EVCXR_END_CONTENT\n\
             EVCXR_BEGIN_CONTENT image/svg+xml\n{}EVCXR_END_CONTENT\n",
            self.html(),
            self.bars().draw().svg()
        );
    }
}

fn in_bytes(unit: &str) -> bool {
    unit == "GB/s"
}

/// `1.10e12` reads better than thirteen digits.
fn scientific(value: f64) -> String {
    if value < 1e6 { format!("{value:.0}") } else { format!("{value:.2e}") }
}

/// Figures of a GPU from NVIDIA's data sheet.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Peak {
    /// How the driver's name begins.
    name: &'static str,
    /// The memory's bandwidth in GB/s.
    pub memory: f64,
    /// bf16 on tensor cores with sums in f32, without sparsity, in TFLOP/s.
    pub bf16: f64,
}

/// From the data sheets "NVIDIA H200 Tensor Core GPU", "NVIDIA H100 Tensor Core GPU", "NVIDIA A100 Tensor Core GPU",
/// "NVIDIA L40S", "NVIDIA L4" and "NVIDIA A10"; those that give figures with sparsity alone are halved. Longer names
/// stand before shorter ones that they begin with.
const PEAKS: [Peak; 9] = [
    Peak { name: "NVIDIA H200", memory: 4800.0, bf16: 989.5 },
    Peak { name: "NVIDIA H100 PCIe", memory: 2000.0, bf16: 756.5 },
    Peak { name: "NVIDIA H100 NVL", memory: 3900.0, bf16: 835.5 },
    Peak { name: "NVIDIA H100", memory: 3350.0, bf16: 989.5 },
    Peak { name: "NVIDIA A100-SXM4-80GB", memory: 2039.0, bf16: 312.0 },
    Peak { name: "NVIDIA A100-SXM4-40GB", memory: 1555.0, bf16: 312.0 },
    Peak { name: "NVIDIA L40S", memory: 864.0, bf16: 362.0 },
    Peak { name: "NVIDIA L4", memory: 300.0, bf16: 121.0 },
    Peak { name: "NVIDIA A10", memory: 600.0, bf16: 125.0 },
];

/// The figures of the GPU of that name. A name that goes on with a letter or digit is another GPU's.
fn peak(machine: &str) -> Option<Peak> {
    let is = |peak: &&Peak| {
        machine.strip_prefix(peak.name).is_some_and(|rest| !rest.starts_with(|next: char| next.is_alphanumeric()))
    };
    PEAKS.iter().find(is).copied()
}

/// What the data sheet of the GPU of that name says of bf16 on tensor cores, with sums in f32 and without sparsity, in TFLOP/s; `None` for one
/// that is not listed here.
///
/// # Examples
/// ```
/// assert_eq!(gpulab_kernels::bf16_peak("NVIDIA H200"), Some(989.5));
/// assert_eq!(gpulab_kernels::bf16_peak("a CPU"), None);
/// ```
pub fn bf16_peak(machine: &str) -> Option<f64> {
    peak(machine).map(|peak| peak.bf16)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ladder, Size};
    use gpulab::gpu::Gpu;
    use gpulab::measurement::Summary;

    fn line(name: &str, rate: f64, unit: &str, against: &[(&str, f64)]) -> RunLine {
        let once = |value: f64| Summary::of(&[value]);
        let against = against.iter().map(|(name, ratio)| (name.to_string(), once(*ratio))).collect();
        // By the bytes and operations of `run`.
        let time = if unit == "GB/s" { 4e9 / rate / 1e6 } else { 1e9 / rate / 1e9 };
        let (time, rate) = (once(time), once(rate));
        RunLine { name: name.into(), unit: unit.into(), time, rate, error: Some(1e-7), against }
    }

    fn run(ladder: Ladder, dtype: &str, lines: Vec<RunLine>) -> LadderRun {
        let empty = LadderRun::empty(ladder, Size::One(1 << 28), &Gpu::simulated().unwrap());
        LadderRun {
            dtype: dtype.into(),
            bytes: 4e9,
            operations: 1e9,
            machine: "NVIDIA H200".into(),
            recorded_on: "NVIDIA H200".into(),
            fp32_peak: Some(66.9),
            lines,
            notes: vec!["left out: one".into()],
            ..empty
        }
    }

    #[test]
    fn memory_is_the_ceiling_of_what_moves_bytes() {
        let slow = line("01_one_atomic_each", 2.0, "GB/s", &[(COPY, 0.0005)]);
        let fast = line("07_grid_stride", 4400.0, "GB/s", &[(COPY, 1.05)]);
        let it = run(Ladder::Reduction, "f32", vec![slow, fast, line(COPY, 4200.0, "GB/s", &[])]);
        let svg = it.bars().prediction(50.0).draw().svg();
        for text in
            ["device copy: 100 %", "memory, data sheet: 4800 GB/s", "105 %", "Recorded on NVIDIA H200", "left out: one"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let svg = it.roofline().draw().svg();
        for text in
            ["data sheet, 4.8 TB/s", "measured, 4.2 TB/s", "× clock, 66.9 TFLOP/s", "0.250 FLOP/byte", "3.73 GiB"]
        {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        assert!(!svg.contains(">\ndevice copy\n<"), "{svg}");
        let html = it.html();
        assert!(
            html.contains(">0.05<") && html.contains("%\u{a0}of<br>device\u{a0}copy") && html.contains("<svg"),
            "{html}"
        );
    }

    #[test]
    fn tensor_cores_are_the_ceiling_of_bf16_products_and_the_copy_has_no_bar_there() {
        let rung = line("01_wmma", 400.0, "TFLOP/s", &[("cuBLAS", 0.5)]);
        let peers = [line(COPY, 4200.0, "GB/s", &[]), line("cuBLAS", 800.0, "TFLOP/s", &[])];
        let mut it = run(Ladder::MatmulBf16, "bf16", [vec![rung], peers.to_vec()].concat());
        let svg = it.bars().draw().svg();
        assert!(svg.contains("cuBLAS: 100 %") && svg.contains("tensor cores, data sheet: 989.5 TFLOP/s"), "{svg}");
        assert!(!svg.contains("Not drawn") && !svg.contains("device copy"), "{svg}");
        assert!(it.html().contains("4200 GB/s"));
        // The share is the one that was measured round by round.
        it.lines[0].against[0].1 = Summary::of(&[0.75]);
        assert!(it.bars().draw().svg().contains("75 %"));
        // Nobody knows what this one reaches: there is no roof, and everything else is there.
        (it.machine, it.fp32_peak) = ("NVIDIA Unheard-of".into(), None);
        assert!(it.roofline().draw().svg().contains("memory roof: device copy"));
        assert!(it.roofline().draw().svg().contains("No compute roof"));
        it.operations = 0.0;
        let svg = it.roofline().draw().svg();
        assert!(svg.contains("no roofline. next: look at `run.bars()`") && !svg.contains("FLOP/byte"), "{svg}");
        it.lines.clear();
        assert!(it.bars().draw().svg().contains("Nothing to draw") && it.html().contains("matmul_bf16, bf16"));
    }

    #[test]
    fn bytes_that_warps_ask_for_move_a_point() {
        let rungs = vec![line("01_naive", 1.0, "TFLOP/s", &[]), line("02_tiled", 4.0, "TFLOP/s", &[])];
        let it = run(Ladder::Matmul, "f32", rungs);
        let counters = Ladder::Matmul.counters((96, 96, 96)).unwrap();
        assert_eq!(counters.operations, 2.0 * 96.0_f64.powi(3));
        let svg = it.roofline_asked(&counters).draw().svg();
        for text in ["matmul at size 96", ">\n01_naive\n<", ">\n02_tiled\n<"] {
            assert!(svg.contains(text), "{text}: {svg}");
        }
        let few = RungCounters { rungs: counters.rungs[..1].to_vec(), ..counters };
        assert!(it.roofline_asked(&few).draw().svg().contains("Without counts: 02_tiled."));
    }

    #[test]
    fn names_as_the_driver_gives_them() {
        let memory = |name: &str| peak(name).map(|peak| peak.memory);
        assert_eq!(memory("NVIDIA H200"), Some(4800.0));
        assert_eq!(memory("NVIDIA H100 80GB HBM3"), Some(3350.0));
        assert_eq!(memory("NVIDIA H100 PCIe"), Some(2000.0));
        assert_eq!([memory("NVIDIA A10G"), memory("NVIDIA L40"), memory("NVIDIA A100")], [None; 3]);
        assert_eq!((memory("NVIDIA L4"), memory("NVIDIA L40S")), (Some(300.0), Some(864.0)));
    }
}
