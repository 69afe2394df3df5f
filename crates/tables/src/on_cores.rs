//! The pipeline as loops on all cores of the CPU, with the same algorithms as the kernels: the zone is an index into a table of
//! sums, and the register of drivers is the same hash table. Against it a ratio of GPU to CPU compares like work.

use crate::pipeline::{Joined, Moments, PipelineResult, RideLimits, Stage, Zone};
use crate::rides::{Drivers, Rides};
use gpulab::error::Result;
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows that a core takes at a time: their columns lie in its own cache.
const PIECE: usize = 1 << 16;
const EMPTY: u64 = u64::MAX;

/// What the pipeline makes of [`PIECE`] rides. The columns keep their memory from run to run, as the GPU's buffers do: fresh
/// memory would be mapped, zeroed and filled for the first time in each run, and that would be timed as filtering and joining.
#[derive(Default)]
struct Piece {
    kept: Rides,
    normalised: [Vec<f32>; 3],
    /// Rows whose drivers are known, and the years of their cars.
    found: Vec<(u32, u32)>,
    joined: Joined,
}

/// Rides and drivers, and what the pipeline makes of them, piece by piece.
pub struct OnCores<'a> {
    limits: RideLimits,
    rides: &'a Rides,
    drivers: &'a Drivers,
    /// Slots of the hash table: 2^(32 − shift), as on the GPU.
    shift: u32,
    pieces: Vec<Piece>,
    moments: [Moments; 3],
    zones: Vec<Zone>,
    slots: Vec<AtomicU64>,
}

impl<'a> OnCores<'a> {
    /// Nothing is copied.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for columns of different lengths, and a licence that stands twice.
    pub fn new(rides: &'a Rides, drivers: &'a Drivers) -> Result<OnCores<'a>> {
        rides.check()?;
        drivers.check()?;
        let slots = (2 * drivers.licence.len()).next_power_of_two().max(64);
        Ok(OnCores {
            limits: RideLimits::of_the_course()?,
            rides,
            drivers,
            shift: 32 - slots.trailing_zeros(),
            pieces: (0..rides.len().div_ceil(PIECE)).map(|_| Piece::default()).collect(),
            moments: [Moments::default(); 3],
            zones: Vec::new(),
            slots: (0..slots).map(|_| AtomicU64::new(EMPTY)).collect(),
        })
    }

    /// Runs one stage. Later stages work on what earlier ones left.
    pub fn run(&mut self, stage: Stage) {
        match stage {
            Stage::Filter => self.filter(),
            Stage::Normalise => self.normalise(),
            Stage::Group => self.group(),
            Stage::Join => self.join(),
        }
    }

    /// Runs all stages.
    pub fn run_all(&mut self) {
        Stage::ALL.into_iter().for_each(|stage| self.run(stage));
    }

    /// One pass: every ride is written, and the next one over it where it is not kept.
    fn filter(&mut self) {
        let (rides, limits) = (self.rides, self.limits);
        self.pieces.par_iter_mut().enumerate().for_each(|(number, piece)| {
            let rows = number * PIECE..((number + 1) * PIECE).min(rides.len());
            let [zone, licence, metres, seconds, cents] = rides.columns().map(|column| &column[rows.clone()]);
            let [to_zone, to_licence, to_metres, to_seconds, to_cents] =
                columns_of(&mut piece.kept).map(|to| room(to, rows.len()));
            let mut at = 0;
            for i in 0..rows.len() {
                (to_zone[at], to_licence[at], to_metres[at]) = (zone[i], licence[i], metres[i]);
                (to_seconds[at], to_cents[at]) = (seconds[i], cents[i]);
                at += usize::from(limits.believes(zone[i], metres[i], seconds[i], cents[i]));
            }
            columns_of(&mut piece.kept).into_iter().for_each(|column| column.truncate(at));
        });
    }

    fn normalise(&mut self) {
        let sums = |column: &[u32]| {
            let squared = |x: &u32| u64::from(*x) * u64::from(*x);
            (column.iter().map(|&x| u64::from(x)).sum::<u64>(), column.iter().map(squared).sum::<u64>())
        };
        let of_piece = |Piece { kept, .. }: &Piece| [sums(&kept.metres), sums(&kept.seconds), sums(&kept.cents)];
        let parts: Vec<[(u64, u64); 3]> = self.pieces.par_iter().map(of_piece).collect();
        let rows = self.pieces.iter().map(|piece| piece.kept.len() as u64).sum();
        let moments = [0, 1, 2].map(|k| {
            let (sum, squares) = parts.iter().fold((0, 0), |all, part| (all.0 + part[k].0, all.1 + part[k].1));
            Moments::of_sums(rows, sum, squares)
        });
        self.moments = moments;
        let scale = |column: &[u32], moments: Moments, to: &mut Vec<f32>| {
            let scale = if moments.deviation > 0.0 { 1.0 / moments.deviation } else { 0.0 };
            let (mean, scale) = (moments.mean as f32, scale as f32);
            fill(to, column.iter().map(|&x| (x as f32 - mean) * scale));
        };
        self.pieces.par_iter_mut().for_each(|Piece { kept, normalised, .. }| {
            let columns = [&kept.metres, &kept.seconds, &kept.cents];
            columns
                .into_iter()
                .zip(moments)
                .zip(normalised)
                .for_each(|((column, moments), to)| scale(column, moments, to));
        });
    }

    fn group(&mut self) {
        let zones = self.limits.zones as usize;
        let table = || vec![Zone::default(); zones];
        // The zone is the index: no hashing. One table a core, and the tables are added at the end.
        let add = |mut table: Vec<Zone>, Piece { kept, .. }: &Piece| {
            for ((&zone, &cents), &metres) in kept.zone.iter().zip(&kept.cents).zip(&kept.metres) {
                let sums = &mut table[zone as usize];
                sums.rides += 1;
                sums.cents += u64::from(cents);
                sums.metres += u64::from(metres);
            }
            table
        };
        let both = |mut a: Vec<Zone>, b: Vec<Zone>| {
            for (a, b) in a.iter_mut().zip(b) {
                a.rides += b.rides;
                a.cents += b.cents;
                a.metres += b.metres;
            }
            a
        };
        let mut all = self.pieces.par_iter().fold(table, add).reduce(table, both);
        all.iter_mut().enumerate().for_each(|(number, zone)| zone.zone = number as u32);
        self.zones = all;
    }

    fn join(&mut self) {
        let (slots, shift, last) = (&self.slots, self.shift, self.slots.len() - 1);
        let first = |key: u32| (key.wrapping_mul(2_654_435_769) >> shift) as usize;
        slots.par_iter().with_min_len(PIECE).for_each(|slot| slot.store(EMPTY, Ordering::Relaxed));
        let pairs = self.drivers.licence.par_iter().with_min_len(PIECE).zip(&self.drivers.year);
        pairs.for_each(|(&licence, &year)| {
            let (entry, mut slot) = (u64::from(licence) << 32 | u64::from(year), first(licence));
            let taken = |slot: usize| slots[slot].compare_exchange(EMPTY, entry, Ordering::Relaxed, Ordering::Relaxed);
            while taken(slot).is_err() {
                slot = (slot + 1) & last;
            }
        });
        let year_of = |licence: u32| {
            let mut slot = first(licence);
            loop {
                match slots[slot].load(Ordering::Relaxed) {
                    EMPTY => return None,
                    entry if (entry >> 32) as u32 == licence => return Some(entry as u32),
                    _ => slot = (slot + 1) & last,
                }
            }
        };
        self.pieces.par_iter_mut().for_each(|Piece { kept, normalised, found, joined }| {
            // Look-ups first and nothing between them: a core may have several in flight. (None before the normalising.)
            found.clear();
            let known = |(row, &licence): (usize, &u32)| year_of(licence).map(|year| (row as u32, year));
            found.extend(kept.licence.iter().take(normalised[0].len()).enumerate().filter_map(known));
            fill(&mut joined.zone, found.iter().map(|&(row, _)| kept.zone[row as usize]));
            fill(&mut joined.year, found.iter().map(|&(_, year)| year));
            for (to, from) in joined.features.iter_mut().zip(normalised) {
                fill(to, found.iter().map(|&(row, _)| from[row as usize]));
            }
        });
    }

    /// The results as plain data.
    pub fn outcome(&self) -> PipelineResult {
        let mut joined = Joined::default();
        for Piece { joined: piece, .. } in &self.pieces {
            joined.zone.extend(&piece.zone);
            joined.year.extend(&piece.year);
            joined.features.iter_mut().zip(&piece.features).for_each(|(all, part)| all.extend(part));
        }
        let zones = self.zones.iter().filter(|zone| zone.rides > 0).copied().collect();
        let kept = self.pieces.iter().map(|piece| piece.kept.len()).sum();
        PipelineResult { kept, moments: self.moments, zones, joined }
    }
}

fn columns_of(Rides { zone, licence, metres, seconds, cents }: &mut Rides) -> [&mut Vec<u32>; 5] {
    [zone, licence, metres, seconds, cents]
}

/// The column with new elements, in the memory that it has.
fn fill<T>(column: &mut Vec<T>, elements: impl Iterator<Item = T>) {
    column.clear();
    column.extend(elements);
}

/// The column with that many elements: what is written next counts, whatever stands there.
fn room<T: Copy + Default>(column: &mut Vec<T>, len: usize) -> &mut [T] {
    column.resize(len, T::default());
    column
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::plain;
    use crate::rides::{drivers, rides};

    #[test]
    fn the_loops_on_all_cores_agree_with_the_plain_ones() {
        for rows in [0, 1, 31, 1000, PIECE, 3 * PIECE + 5] {
            for count in [0, 1, 500] {
                let (rides, drivers) = (rides(rows, count, 4), drivers(count, 4));
                let mut on_cores = OnCores::new(&rides, &drivers).unwrap();
                // Twice: what one run leaves behind must not disturb the next.
                on_cores.run_all();
                on_cores.run_all();
                let right = plain(&rides, &drivers).unwrap();
                assert_eq!(right.differs(&on_cores.outcome()), None, "{rows} rides, {count} drivers");
            }
        }
    }
}
