//! A kernel's source as a heat map: what each line costs.

use super::words::{grouped, place, ratio, together};
use super::{AccessKind, Inspection, Line, Space};
use gpulab_measure::plot::Figure;
use gpulab_measure::plot::canvas::width;
use gpulab_measure::plot::canvas::{Align, Canvas, LETTER, MARGIN, SMALL, WIDTH, figure};
use gpulab_measure::plot::canvas::{BLUE, GREEN, INK, ORANGE, Pen};
use gpulab_measure::plot::frame::{Sample, legend, notes};

const ROW: f64 = 19.0;
const NUMBER: f64 = 30.0;
const COLUMN: f64 = 78.0;
const BAR: f64 = 92.0;
/// The hottest line's tint.
const HOTTEST: f64 = 0.42;
/// More lines than this, and those far from any that ran are left out.
const LONG: usize = 60;
/// Lines kept around one that ran, in a long source.
const AROUND: u32 = 2;

/// A column of numbers: its heading in two lines, and what it says of a line (and whether that is waste).
struct Column {
    head: [&'static str; 2],
    value: fn(&Line, &Inspection) -> Option<(String, bool)>,
}

pub(super) fn draw(it: &Inspection) -> Figure {
    let title = format!("{}: what each line costs", it.kernel);
    figure(&title, |canvas| {
        let y = canvas.title(&title);
        let columns: Vec<Column> = columns()
            .into_iter()
            .filter(|column| it.lines.iter().any(|line| (column.value)(line, it).is_some()))
            .collect();
        let y = table(canvas, it, &columns, y);
        let mut entries = vec![
            (Sample::Box(BLUE, HOTTEST), "the darker behind the code, the more instructions the line took".to_string()),
            (Sample::Box(GREEN, 0.55), "active lanes of an average instruction, 32 at best".to_string()),
        ];
        if it.lines.iter().any(|line| columns.iter().any(|column| (column.value)(line, it).is_some_and(|v| v.1))) {
            entries.push((Sample::Box(ORANGE, 0.3), "more sectors or wavefronts than these bytes need".to_string()));
        }
        let y = legend(canvas, &entries, y + 6.0);
        notes(canvas, &[sentence(it)], y) + MARGIN
    })
}

fn columns() -> [Column; 4] {
    [
        Column {
            head: ["warp", "instructions"],
            value: |line, _| {
                let count = line.counters.warp_instructions;
                (count > 0).then(|| (grouped(count), false))
            },
        },
        Column {
            head: ["sectors", "a load"],
            value: |line, it| {
                let c = &line.counters;
                sectors(c.global_load_sectors, c.global_load_requests, line, it, AccessKind::Load)
            },
        },
        Column {
            head: ["sectors", "a store"],
            value: |line, it| {
                let c = &line.counters;
                sectors(c.global_store_sectors, c.global_store_requests, line, it, AccessKind::Store)
            },
        },
        Column {
            head: ["bank", "conflicts"],
            value: |line, _| {
                let c = &line.counters;
                let waves = c.shared_load_wavefronts + c.shared_store_wavefronts + c.shared_atomic_wavefronts;
                let conflicts =
                    c.shared_load_bank_conflicts + c.shared_store_bank_conflicts + c.shared_atomic_bank_conflicts;
                (waves > 0).then(|| (grouped(conflicts), conflicts > 0))
            },
        },
    ]
}

/// Sectors a request, and whether the watched warp touched more of them than its bytes fill.
fn sectors(sectors: u64, requests: u64, line: &Line, it: &Inspection, kind: AccessKind) -> Option<(String, bool)> {
    let own = it.accesses.iter().filter(|access| access.line == Some(line.number) && access.kind == kind);
    let (mut touched, mut least) = (0, 0);
    for access in own.filter(|access| access.space == Space::Global) {
        let mut starts: Vec<u64> = access.offsets.iter().flatten().copied().collect();
        starts.sort_unstable();
        starts.dedup();
        touched += access.sectors;
        least += (starts.len() as u64 * u64::from(access.bytes)).div_ceil(32);
    }
    (requests > 0).then(|| (ratio(sectors, requests), touched > least))
}

/// The lines to show: those of the kernel and all that ran; `None` stands for lines left out.
fn shown(it: &Inspection) -> Vec<Option<&Line>> {
    let ran = |line: &Line| line.counters.warp_instructions > 0 || found(it, line).next().is_some();
    let body = body(it);
    let others = it.lines.iter().enumerate().filter(|(_, line)| ran(line) && !body.contains(&line.number));
    let others: Vec<std::ops::Range<usize>> = others.map(|(at, _)| function(&it.lines, at)).collect();
    let in_function = |at: usize| others.iter().any(|function| function.contains(&at));
    let kept = it.lines.iter().enumerate();
    let kept = kept.filter(|(at, line)| body.contains(&line.number) || ran(line) || in_function(*at));
    let mut kept: Vec<&Line> = kept.map(|(_, line)| line).collect();
    if kept.len() > LONG {
        let near: Vec<u32> = kept.iter().filter(|line| ran(line)).map(|line| line.number).collect();
        kept.retain(|line| near.iter().any(|at| line.number.abs_diff(*at) <= AROUND));
    }
    let mut rows = Vec::new();
    let mut last: Option<u32> = None;
    for line in kept {
        if last.is_some_and(|last| line.number > last + 1) {
            rows.push(None);
        }
        rows.push(Some(line));
        last = Some(line.number);
    }
    rows
}

/// The function around a line: from one that is not indented to its closing brace.
fn function(lines: &[Line], at: usize) -> std::ops::Range<usize> {
    let outside = |line: &&Line| line.text.starts_with(|c: char| !c.is_whitespace());
    let first = lines[..=at].iter().rposition(|line| outside(&line)).unwrap_or(0);
    let closes = |line: &Line| outside(&line) && line.text.starts_with('}');
    let last = lines[at..].iter().position(closes).map_or(at, |more| at + more);
    first..last + 1
}

/// The numbers of the lines from the kernel's declaration to its closing brace.
fn body(it: &Inspection) -> std::ops::RangeInclusive<u32> {
    let declares = |line: &&Line| {
        line.text.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|word| word == it.kernel)
            && line.text.contains('(')
    };
    let Some(first) = it.lines.iter().position(|line| declares(&line)) else {
        return 1..=u32::MAX;
    };
    let (mut depth, mut opened) = (0i32, false);
    for line in &it.lines[first..] {
        let code = line.text.split("//").next().unwrap_or_default();
        opened |= code.contains('{');
        depth += code.matches('{').count() as i32 - code.matches('}').count() as i32;
        if opened && depth <= 0 {
            return it.lines[first].number..=line.number;
        }
    }
    it.lines[first].number..=u32::MAX
}

fn found<'a>(it: &'a Inspection, line: &'a Line) -> impl Iterator<Item = &'a super::Finding> {
    it.findings.iter().filter(|finding| finding.source.as_ref().is_some_and(|source| source.line == line.number))
}

fn table(canvas: &mut Canvas<'_>, it: &Inspection, columns: &[Column], y: f64) -> f64 {
    let right = WIDTH - MARGIN;
    let bars = right - COLUMN * columns.len() as f64 - BAR;
    let code = MARGIN + NUMBER + 10.0;
    let letters = ((bars - 10.0 - code) / LETTER) as usize;
    for (n, column) in columns.iter().enumerate() {
        let x = right - COLUMN * (columns.len() - n - 1) as f64;
        for (row, text) in column.head.iter().enumerate() {
            canvas.small(text, (x, y + 8.0 + 14.0 * row as f64), Align::Right);
        }
    }
    canvas.small("active lanes", (bars, y + 8.0), Align::Left);
    canvas.small("of 32", (bars, y + 22.0), Align::Left);
    let mut y = y + 34.0;
    canvas.line((MARGIN, y), (right, y), &Pen::solid(INK, 1.0).alpha(0.6));
    let hottest = it.lines.iter().map(|line| line.counters.warp_instructions).max().unwrap_or(0).max(1);
    let rows = shown(it);
    // Code that is indented throughout is moved to the left.
    let indent = rows
        .iter()
        .flatten()
        .filter(|line| !line.text.trim().is_empty())
        .map(|line| leading(&line.text))
        .min()
        .unwrap_or(0);
    for line in rows {
        let Some(line) = line else {
            canvas.small("⋮", (MARGIN + NUMBER, y + ROW / 2.0), Align::Right);
            y += ROW;
            continue;
        };
        let pieces = wrap(&line.text, indent, letters);
        let high = ROW * pieces.len() as f64;
        let share = line.counters.warp_instructions as f64 / hottest as f64;
        if share > 0.0 {
            canvas.rect((code - 6.0, y + 0.5), (bars - 8.0, y + high - 0.5), BLUE, HOTTEST * share.max(0.06));
        }
        canvas.small(&line.number.to_string(), (MARGIN + NUMBER, y + ROW / 2.0), Align::Right);
        for (n, piece) in pieces.iter().enumerate() {
            canvas.code(piece, (code, y + ROW * (n as f64 + 0.5)));
        }
        lanes_bar(canvas, line, (bars, y));
        for (n, column) in columns.iter().enumerate() {
            let Some((text, waste)) = (column.value)(line, it) else { continue };
            let x = right - COLUMN * (columns.len() - n - 1) as f64;
            if waste {
                canvas.rect((x - width(&text, SMALL) - 8.0, y + 1.5), (x + 4.0, y + ROW - 1.5), ORANGE, 0.3);
            }
            canvas.small(&text, (x, y + ROW / 2.0), Align::Right);
        }
        y += high;
        for findings in together(found(it, line)) {
            let first = findings[0];
            let (block, thread) = (place(first.block, it.grid), place(first.thread, it.block));
            let owners: String =
                findings.iter().flat_map(|finding| &finding.variable).map(|name| format!(", {name}")).collect();
            let text = format!("▲ {}{owners}: first in block {block}, thread {thread}", first.kind.words());
            canvas.rect((code - 6.0, y), (right, y + ROW), ORANGE, 0.28);
            canvas.rect((MARGIN, y - high), (MARGIN + 4.0, y + ROW), ORANGE, 1.0);
            canvas.small(&text, (code, y + ROW / 2.0), Align::Left);
            y += ROW;
        }
    }
    canvas.line((MARGIN, y), (right, y), &Pen::solid(INK, 1.0).alpha(0.6));
    y
}

/// A bar of up to 32 lanes, and the number.
fn lanes_bar(canvas: &mut Canvas<'_>, line: &Line, (x, y): (f64, f64)) {
    const LONG: f64 = 52.0;
    if line.counters.warp_instructions == 0 {
        return;
    }
    let lanes = line.counters.active_lanes_per_instruction();
    let (from, to) = ((x, y + 4.0), (x + LONG, y + ROW - 4.0));
    canvas.rect(from, (x + LONG * lanes / 32.0, to.1), GREEN, 0.55);
    canvas.outline(from, to, &Pen::solid(INK, 1.0).alpha(0.4));
    let text = if lanes.fract() == 0.0 { format!("{lanes}") } else { format!("{lanes:.1}") };
    canvas.small(&text, (x + LONG + 5.0, y + ROW / 2.0), Align::Left);
}

fn leading(text: &str) -> usize {
    text.replace('\t', "    ").chars().take_while(|c| *c == ' ').count()
}

/// Cuts a line of code into pieces of at most `letters`; later pieces are indented two more.
fn wrap(text: &str, indent: usize, letters: usize) -> Vec<String> {
    let text = text.trim_end().replace('\t', "    ");
    let mut rest: Vec<char> = text.chars().skip(indent.min(leading(&text))).collect();
    let hang = rest.iter().take_while(|c| **c == ' ').count().min(letters / 2) + 2;
    let mut pieces = Vec::new();
    while rest.len() > letters {
        let blank = rest[..letters].iter().rposition(|c| *c == ' ').filter(|at| *at > hang);
        let cut = blank.unwrap_or(letters);
        let next: Vec<char> = rest[cut..].iter().skip_while(|c| **c == ' ').copied().collect();
        pieces.push(rest[..cut].iter().collect());
        rest = std::iter::repeat_n(' ', hang).chain(next).collect();
    }
    pieces.push(rest.into_iter().collect());
    pieces
}

/// `7 lines ran 12,345 warp instructions; line 6 took most: 45 %.`
fn sentence(it: &Inspection) -> String {
    let all: u64 = it.lines.iter().map(|line| line.counters.warp_instructions).sum();
    let Some(most) = it.lines.iter().max_by_key(|line| line.counters.warp_instructions).filter(|_| all > 0) else {
        return "No line of this source was counted: the PTX names no lines, or nothing ran.".to_string();
    };
    let share = most.counters.warp_instructions as f64 / all as f64 * 100.0;
    let lanes = it.counters.active_lanes_per_instruction();
    // The compiler gives some instructions no line.
    let of = match it.counters.warp_instructions {
        whole if whole > all => format!(" of {}", grouped(whole)),
        _ => String::new(),
    };
    format!(
        "{}{of} warp instructions with {lanes:.1} active lanes on average; line {} takes more than any other: {share:.0} %.",
        grouped(all),
        most.number
    )
}
