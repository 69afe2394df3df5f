//! One warp's addresses against the 32-byte sectors in which global memory is moved.

use super::find::{Found, title, which};
use super::lanes::{self, FALL};
use super::words::{counted, grouped};
use super::{Access, AccessKind, Inspection};
use gpulab_measure::plot::Figure;
use gpulab_measure::plot::canvas::width;
use gpulab_measure::plot::canvas::{Align, Canvas, LINE, MARGIN, SMALL, WIDTH, figure};
use gpulab_measure::plot::canvas::{BLUE, GREEN, INK, ORANGE, Pen, Rgb};
use gpulab_measure::plot::frame::{Sample, legend, notes};
use std::collections::BTreeMap;

const SECTOR: u64 = 32;
/// A sector is at most this wide, in pixels, and as high.
const WIDEST: f64 = 186.0;
const HIGH: f64 = 30.0;
const WASTE: f64 = 0.38;
const USED: f64 = 0.55;

/// The sectors that an access touches: for each, which of its bytes are used.
fn touched(access: &Access) -> BTreeMap<u64, u32> {
    let mut sectors: BTreeMap<u64, u32> = BTreeMap::new();
    for offset in access.offsets.iter().flatten() {
        let first = access.base.saturating_add(*offset).min(u64::MAX - SECTOR);
        for byte in first..first + u64::from(access.bytes).clamp(1, SECTOR) {
            *sectors.entry(byte / SECTOR).or_default() |= 1 << (byte % SECTOR);
        }
    }
    sectors
}

pub(super) fn draw(it: &Inspection, found: &Found<'_>) -> Figure {
    let access = found.access;
    let heading = format!("{}: one warp's addresses in 32-byte sectors", title(found));
    figure(&heading, |canvas| {
        let y = canvas.title(&heading);
        let strip = Strip::of(access);
        canvas.text(&lanes::caption(access), (MARGIN, y + LINE / 2.0), Align::Left);
        let low = lanes::row(canvas, &strip.colors(access), y + LINE + 2.0);
        let top = low + FALL;
        strip.lines(canvas, access, low, top);
        let y = strip.memory(canvas, access, top);
        let y = strip.offsets(canvas, access, y);
        let (used, rest) = match access.kind {
            AccessKind::Load => ("bytes asked for", "moved with them, not used"),
            _ => ("bytes written", "of the same sector, not written"),
        };
        let alternate = if strip.sectors.len() > 1 { " (colours alternate by sector)" } else { "" };
        let entries =
            [(Sample::Box(BLUE, USED), format!("{used}{alternate}")), (Sample::Box(ORANGE, WASTE), rest.to_string())];
        let y = legend(canvas, &entries, y + 6.0);
        let mut remarks = vec![sentence(access)];
        let sectors = counted(access.sectors, "sector");
        match touched(access).len() as u64 {
            more if more > access.sectors => remarks.push(format!(
                "The counters say {sectors}: lanes whose access was refused (see the findings) do not count."
            )),
            less if less < access.sectors => remarks
                .push(format!("The counters say {sectors}: the warp is served in parts, and each counts its own.")),
            _ => {}
        }
        remarks.push(which(it, found));
        notes(canvas, &remarks, y) + MARGIN
    })
}

/// `32 lanes read 4 bytes each: 4 sectors of 32 bytes, 128 of 128 bytes used.`
fn sentence(access: &Access) -> String {
    let used: u64 = touched(access).values().map(|bytes| u64::from(bytes.count_ones())).sum();
    let moved = access.sectors * SECTOR;
    // 12.5 is said, 100.0 is not.
    let share = (used as f64 / moved.max(1) as f64 * 1000.0).round() / 10.0;
    let sectors = counted(access.sectors, "sector");
    let verb = if access.kind == AccessKind::Load { "used" } else { "written" };
    let deed = access.deed();
    format!("{deed}: {sectors} of 32 bytes, {} of {} bytes {verb} ({share} %).", grouped(used), grouped(moved))
}

/// The touched sectors side by side, with gaps where others lie between them.
struct Strip {
    sectors: Vec<(u64, u32)>,
    /// Left edges.
    at: Vec<f64>,
    wide: f64,
}

impl Strip {
    fn of(access: &Access) -> Strip {
        let sectors: Vec<(u64, u32)> = touched(access).into_iter().collect();
        let breaks = sectors.windows(2).filter(|pair| pair[1].0 > pair[0].0 + 1).count() as f64;
        let gap: f64 = if breaks > 12.0 { 6.0 } else { 22.0 };
        let room = WIDTH - 2.0 * MARGIN;
        let wide = ((room - breaks * gap) / sectors.len().max(1) as f64).min(WIDEST);
        let all = wide * sectors.len() as f64 + gap * breaks;
        let mut x = MARGIN + (room - all) / 2.0;
        let mut at = Vec::new();
        for (n, (sector, _)) in sectors.iter().enumerate() {
            if n > 0 && *sector > sectors[n - 1].0 + 1 {
                x += gap;
            }
            at.push(x);
            x += wide;
        }
        Strip { sectors, at, wide }
    }

    /// Where a lane's bytes lie: number of the sector here, and the edges in pixels.
    fn place(&self, access: &Access, offset: u64) -> (usize, f64, f64) {
        let first = access.base.saturating_add(offset).min(u64::MAX - SECTOR);
        let n = self.sectors.partition_point(|(sector, _)| *sector < first / SECTOR);
        let left = self.at[n] + self.wide * (first % SECTOR) as f64 / SECTOR as f64;
        (n, left, left + self.wide * f64::from(access.bytes) / SECTOR as f64)
    }

    fn color(n: usize) -> Rgb {
        [BLUE, GREEN][n % 2]
    }

    fn colors(&self, access: &Access) -> [Option<Rgb>; 32] {
        access.offsets.map(|offset| offset.map(|offset| Strip::color(self.place(access, offset).0)))
    }

    fn lines(&self, canvas: &mut Canvas<'_>, access: &Access, low: f64, top: f64) {
        for (lane, offset) in access.offsets.iter().enumerate() {
            let Some(offset) = offset else { continue };
            let (n, left, right) = self.place(access, *offset);
            lanes::line(canvas, lane, low, ((left + right) / 2.0, top), Strip::color(n));
        }
    }

    /// The sectors with their used and unused bytes; gives the height below.
    fn memory(&self, canvas: &mut Canvas<'_>, access: &Access, y: f64) -> f64 {
        let byte = self.wide / SECTOR as f64;
        for (n, (_, used)) in self.sectors.iter().enumerate() {
            let x = self.at[n];
            let mut start = 0;
            while start < 32 {
                let is_used = used >> start & 1 == 1;
                let end = (start..32).find(|bit| (used >> bit & 1 == 1) != is_used).unwrap_or(32);
                let (color, alpha) = if is_used { (Strip::color(n), USED) } else { (ORANGE, WASTE) };
                canvas.rect((x + byte * start as f64, y), (x + byte * end as f64, y + HIGH), color, alpha);
                start = end;
            }
            let edge = if self.wide < 60.0 { Pen::solid(INK, 0.8).alpha(0.5) } else { Pen::solid(INK, 1.4).alpha(0.8) };
            canvas.outline((x, y), (x + self.wide, y + HIGH), &edge);
        }
        // The lane's number in its word, where it is the only one and the word is wide enough.
        for (lane, offset) in access.offsets.iter().enumerate() {
            let Some(offset) = offset else { continue };
            let (n, left, right) = self.place(access, *offset);
            if right - left < 5.0 {
                // Wide enough to be seen.
                let x = left.min(self.at[n] + self.wide - 5.0);
                canvas.rect((x, y), (x + 5.0, y + HIGH), Strip::color(n), 1.0);
            } else if right - left >= 7.0 {
                canvas.line((left, y), (left, y + HIGH), &lanes::EDGE);
                canvas.line((right, y), (right, y + HIGH), &lanes::EDGE);
            }
            let alone = access.offsets.iter().flatten().filter(|other| *other == offset).count() == 1;
            if alone && right - left >= 16.0 {
                canvas.small(&lane.to_string(), ((left + right) / 2.0, y + HIGH / 2.0), Align::Middle);
            }
        }
        for pair in 1..self.sectors.len() {
            let (from, to) = (self.at[pair - 1] + self.wide, self.at[pair]);
            if to - from > 10.0 {
                canvas.text("…", ((from + to) / 2.0, y + HIGH / 2.0), Align::Middle);
            }
        }
        y + HIGH
    }

    /// Where each sector starts, below it, as far as there is room.
    fn offsets(&self, canvas: &mut Canvas<'_>, access: &Access, y: f64) -> f64 {
        let mut free = f64::MIN;
        for (n, (sector, _)) in self.sectors.iter().enumerate() {
            // A variable may start inside a sector.
            let label = grouped((sector * SECTOR).saturating_sub(access.base));
            let half = width(&label, SMALL) / 2.0;
            let x = self.at[n].max(MARGIN + half).min(WIDTH - MARGIN - half);
            if x - half >= free {
                canvas.line((self.at[n], y), (self.at[n], y + 5.0), &lanes::EDGE);
                canvas.small(&label, (x, y + 14.0), Align::Middle);
                free = x + half + 8.0;
            }
        }
        let text = match access.variable.as_str() {
            owner if access.base > 0 && !owner.is_empty() => format!("bytes from the start of {owner}"),
            _ => "address in bytes".to_string(),
        };
        canvas.text(&text, (WIDTH / 2.0, y + 14.0 + LINE), Align::Middle);
        y + 14.0 + LINE * 1.5
    }
}
