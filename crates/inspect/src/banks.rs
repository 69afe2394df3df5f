//! One warp's addresses against the 32 banks of shared memory: which lanes are served at once, and which words wait.

use super::find::{Found, title, which};
use super::lanes::{self, CELL, FALL, middle};
use super::words::{counted, grouped};
use super::{Access, AccessKind, Inspection};
use gpulab_measure::plot::Figure;
use gpulab_measure::plot::canvas::{
    Align, BLUE, Canvas, INK, LINE, MARGIN, ORANGE, Pen, Rgb, SMALL, WIDTH, figure, width,
};
use gpulab_measure::plot::frame::{Sample, legend, notes};
use std::ops::Range;

const HIGH: f64 = 17.0;
const SPLIT: Pen = Pen::solid(INK, 1.4).alpha(0.7);

pub(super) fn draw(it: &Inspection, found: &Found<'_>) -> Figure {
    let access = found.access;
    let heading = format!("{}: one warp's addresses in the 32 banks", title(found));
    figure(&heading, |canvas| {
        let y = canvas.title(&heading);
        canvas.text(&lanes::caption(access), (MARGIN, y + LINE / 2.0), Align::Left);
        let parts = parts(access);
        let low = lanes::row(canvas, &colors(access, &parts), y + LINE + 2.0);
        // Parts of a warp use the same banks after each other: their lines would be a tangle, and the rows say it.
        let top = if access.bytes > 4 { low + 10.0 } else { low + FALL };
        for part in parts.iter().filter(|_| access.bytes <= 4) {
            lines(canvas, part, low, top);
        }
        let mut y = heads(canvas, top);
        let mut count = 0;
        for part in &parts {
            if access.bytes > 4 {
                let text = format!("lanes {} to {}", part.lanes.start, part.lanes.end - 1);
                canvas.small(&text, (MARGIN, y + LINE / 2.0), Align::Left);
                y += LINE;
            }
            y = rows(canvas, part, &mut count, y) + 4.0;
        }
        let mut entries = vec![(
            Sample::Box(BLUE, lanes::FILL),
            "served in its bank's first wavefront; the number: its lane; ×n: n lanes".to_string(),
        )];
        if access.conflicts > 0 {
            entries.push((
                Sample::Box(ORANGE, lanes::FILL),
                "a bank conflict: it waits for one more wavefront".to_string(),
            ));
        }
        let y = legend(canvas, &entries, y + 4.0);
        let mut remarks = vec![sentence(access, &parts)];
        remarks.extend(difference(access, &parts));
        remarks.push(which(it, found));
        notes(canvas, &remarks, y) + MARGIN
    })
}

/// A lane is orange when one of its words waits for a later pass.
fn colors(access: &Access, parts: &[Part]) -> [Option<Rgb>; 32] {
    let mut colors = access.offsets.map(|offset| offset.map(|_| BLUE));
    for late in
        parts.iter().flat_map(|part| &part.banks).flat_map(|bank| bank.iter().skip(1)).flat_map(|word| &word.lanes)
    {
        colors[*late] = Some(ORANGE);
    }
    colors
}

fn lines(canvas: &mut Canvas<'_>, part: &Part, low: f64, top: f64) {
    for (bank, words) in part.banks.iter().enumerate() {
        for (pass, word) in words.iter().enumerate() {
            let color = if pass == 0 { BLUE } else { ORANGE };
            for lane in &word.lanes {
                lanes::line(canvas, *lane, low, (middle(bank), top), color);
            }
        }
    }
}

/// The banks' numbers; gives the height below.
fn heads(canvas: &mut Canvas<'_>, y: f64) -> f64 {
    for bank in 0..32 {
        canvas.small(&bank.to_string(), (middle(bank), y + 9.0), Align::Middle);
    }
    canvas.line((MARGIN, y + 18.0), (WIDTH - MARGIN, y + 18.0), &SPLIT);
    canvas.text("banks: each serves one word of 4 bytes in a wavefront", (MARGIN, y + 18.0 + LINE / 2.0), Align::Left);
    y + 18.0 + LINE + 2.0
}

/// One row for each pass; gives the height below.
fn rows(canvas: &mut Canvas<'_>, part: &Part, number: &mut usize, y: f64) -> f64 {
    let count = part.wavefronts();
    for n in 0..count {
        *number += 1;
        let (top, low) = (y + HIGH * n as f64, y + HIGH * (n + 1) as f64);
        let label = format!("wavefront {number}");
        if let Some(spare) = beside(part, n) {
            canvas.small(&label, (middle(spare.start) - CELL / 2.0 + 6.0, (top + low) / 2.0), Align::Left);
        }
        for (bank, words) in part.banks.iter().enumerate() {
            let (left, right) = (middle(bank) - CELL / 2.0, middle(bank) + CELL / 2.0);
            let Some(word) = words.get(n) else { continue };
            let color = if n == 0 { BLUE } else { ORANGE };
            let (from, to) = ((left + 1.0, top + 1.0), (right - 1.0, low - 1.0));
            canvas.rect(from, to, color, lanes::FILL);
            canvas.outline(from, to, &Pen::solid(color, 1.0));
            let label = match word.lanes.as_slice() {
                [lane] => lane.to_string(),
                many => format!("×{}", many.len()),
            };
            canvas.small(&label, (middle(bank), (top + low) / 2.0), Align::Middle);
        }
    }
    for bank in 0..32 {
        let empty = |row: &usize| {
            part.banks[bank].len() <= *row && beside(part, *row).is_none_or(|label| !label.contains(&bank))
        };
        let first = (0..count).find(empty).unwrap_or(count);
        let last = (first..count).find(|row| !empty(row)).unwrap_or(count);
        if first < last {
            let (left, right) = (middle(bank) - CELL / 2.0, middle(bank) + CELL / 2.0);
            let (top, low) = (y + HIGH * first as f64, y + HIGH * last as f64);
            canvas.outline((left, top), (right, low), &Pen::solid(INK, 1.0).alpha(0.1));
        }
    }
    y + HIGH * count as f64
}

/// The banks whose cells a row's label may take: right of all that have something to do.
fn beside(part: &Part, row: usize) -> Option<std::ops::Range<usize>> {
    let cells = ((width("wavefront 32", SMALL) + 8.0) / CELL).ceil() as usize;
    let first = part.banks.iter().rposition(|bank| bank.len() > row).map_or(0, |bank| bank + 1);
    (first + cells <= 32).then(|| first..first + cells)
}

/// Why as many wavefronts as are drawn were not counted.
fn difference(access: &Access, parts: &[Part]) -> Option<String> {
    let drawn = parts.iter().map(Part::wavefronts).sum::<usize>() as u64;
    let counted = counted(access.wavefronts, "wavefront");
    match access.wavefronts {
        same if same == drawn => None,
        0 if access.kind == AccessKind::Store => {
            Some("The hardware counts no wavefronts for copies that bypass the registers (cp.async).".to_string())
        }
        twice if access.kind == AccessKind::Atomic && twice == 2 * drawn => {
            Some("A compare-and-swap takes each wavefront twice.".to_string())
        }
        _ => {
            Some(format!("The counters say {counted}: lanes whose access was refused (see the findings) do not count."))
        }
    }
}

/// `32 lanes read 4 bytes each: 32 wavefronts, 31 of them bank conflicts; 32 different words lie in bank 0.`
fn sentence(access: &Access, parts: &[Part]) -> String {
    let waves = counted(access.wavefronts, "wavefront");
    let (deed, conflicts) = (access.deed(), grouped(access.conflicts));
    if access.conflicts == 0 {
        let shared = parts.iter().flat_map(|part| &part.banks).flatten().any(|word| word.lanes.len() > 1);
        let same = if shared { " Where it says ×n, n lanes want the same word and are served at once." } else { "" };
        return format!("{deed}: {waves}, no bank conflict.{same}");
    }
    let most = parts.iter().map(Part::wavefronts).max().unwrap_or(0);
    let banks = parts.iter().flat_map(|part| &part.banks).filter(|bank| bank.len() == most).count();
    let first = parts.iter().find_map(|part| part.banks.iter().position(|bank| bank.len() == most)).unwrap_or(0);
    let place = match banks {
        1 => format!("bank {first} holds"),
        _ => format!("each of {banks} banks holds"),
    };
    let kind = if access.conflicts == 1 { "a bank conflict" } else { "bank conflicts" };
    format!("{deed}: {waves}, {conflicts} of them {kind}; {place} {most} different words.")
}

const BANKS: u64 = 32;
/// Bytes of a word: what a bank serves in a wavefront.
const WORD: u64 = 4;

/// A word, and the lanes that want it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    number: u64,
    pub lanes: Vec<usize>,
}

/// Lanes that are served together, and what each bank does for them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub lanes: Range<usize>,
    /// For each bank its words, one a wavefront.
    pub banks: Vec<Vec<Word>>,
}

impl Part {
    /// Wavefronts that this part takes.
    pub(super) fn wavefronts(&self) -> usize {
        self.banks.iter().map(Vec::len).max().unwrap_or(0)
    }
}

/// The parts of the warp that have something to do. Of the orders in which hardware may serve an access, it is the one that
/// takes as many wavefronts as were counted; where none does, the first.
pub(super) fn parts(access: &Access) -> Vec<Part> {
    let own = access.kind == AccessKind::Atomic;
    let load = access.kind == AccessKind::Load;
    // What only the simulator knows: whether an atomic is a plain count (the lanes of a word are then served at once),
    // and whether a load is an `ldmatrix`, whose parts are never joined.
    let orders = if own { [(false, true), (false, false)] } else { [(load, false), (false, false)] };
    let orders = orders.map(|(load, own)| served(access, load, own));
    // A compare-and-swap takes each of its wavefronts twice.
    let counted = if own { access.conflicts + 1 } else { access.wavefronts };
    let fits = |parts: &&Vec<Part>| parts.iter().map(Part::wavefronts).sum::<usize>() as u64 == counted;
    orders.iter().find(fits).unwrap_or(&orders[0]).clone()
}

/// `load`: as the parts of a load are, which may be joined. `own`: each lane needs a wavefront of its own, even on one word.
fn served(access: &Access, load: bool, own: bool) -> Vec<Part> {
    let mask = (0..32).filter(|&lane| access.offsets[lane].is_some()).fold(0, |mask, lane| mask | 1 << lane);
    let addresses = access.offsets.map(|offset| offset.unwrap_or(0));
    let lanes = warpsim::lanes_at_once(&addresses, mask, access.bytes, load);
    let parts = (0..32).step_by(lanes).map(|first| part(access, first..first + lanes, own));
    parts.filter(|part| part.wavefronts() > 0).collect()
}

fn part(access: &Access, lanes: Range<usize>, own: bool) -> Part {
    let mut banks: Vec<Vec<Word>> = vec![Vec::new(); BANKS as usize];
    for lane in lanes.clone() {
        let Some(offset) = access.offsets[lane] else { continue };
        let at = access.base.saturating_add(offset).min(u64::MAX - 512);
        for number in at / WORD..(at + u64::from(access.bytes.min(512))).div_ceil(WORD) {
            let bank = &mut banks[(number % BANKS) as usize];
            match bank.iter_mut().find(|word| word.number == number && !own) {
                Some(word) => word.lanes.push(lane),
                None => bank.push(Word { number, lanes: vec![lane] }),
            }
        }
    }
    Part { lanes, banks }
}
