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

/// Rides and drivers, and what the pipeline makes of them, piece by piece.
pub struct OnCores<'a> {
    limits: RideLimits,
    rides: &'a Rides,
    drivers: &'a Drivers,
    /// Slots of the hash table: 2^(32 − shift), as on the GPU.
    shift: u32,
    kept: Vec<Rides>,
    moments: [Moments; 3],
    normalised: Vec<[Vec<f32>; 3]>,
    zones: Vec<Zone>,
    slots: Vec<AtomicU64>,
    joined: Vec<Joined>,
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
            kept: Vec::new(),
            moments: [Moments::default(); 3],
            normalised: Vec::new(),
            zones: Vec::new(),
            slots: (0..slots).map(|_| AtomicU64::new(EMPTY)).collect(),
            joined: Vec::new(),
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

    fn filter(&mut self) {
        let (rides, limits) = (self.rides, self.limits);
        let piece = |first: usize| {
            let rows = first..(first + PIECE).min(rides.len());
            let believed =
                |i: &usize| limits.believes(rides.zone[*i], rides.metres[*i], rides.seconds[*i], rides.cents[*i]);
            let places: Vec<u32> = rows.filter(believed).map(|i| i as u32).collect();
            let column = |from: &[u32]| places.iter().map(|&i| from[i as usize]).collect();
            Rides {
                zone: column(&rides.zone),
                licence: column(&rides.licence),
                metres: column(&rides.metres),
                seconds: column(&rides.seconds),
                cents: column(&rides.cents),
            }
        };
        self.kept = (0..rides.len()).into_par_iter().step_by(PIECE).map(piece).collect();
    }

    fn normalise(&mut self) {
        let sums = |column: &[u32]| {
            let squared = |x: &u32| u64::from(*x) * u64::from(*x);
            (column.iter().map(|&x| u64::from(x)).sum::<u64>(), column.iter().map(squared).sum::<u64>())
        };
        let parts: Vec<[(u64, u64); 3]> =
            self.kept.par_iter().map(|piece| [sums(&piece.metres), sums(&piece.seconds), sums(&piece.cents)]).collect();
        let rows = self.kept.iter().map(|piece| piece.len() as u64).sum();
        let moments = [0, 1, 2].map(|k| {
            let (sum, squares) = parts.iter().fold((0, 0), |all, part| (all.0 + part[k].0, all.1 + part[k].1));
            Moments::of_sums(rows, sum, squares)
        });
        self.moments = moments;
        let scaled = |column: &[u32], moments: Moments| {
            let scale = if moments.deviation > 0.0 { 1.0 / moments.deviation } else { 0.0 };
            let (mean, scale) = (moments.mean as f32, scale as f32);
            column.iter().map(|&x| (x as f32 - mean) * scale).collect::<Vec<f32>>()
        };
        let piece = |piece: &Rides| {
            [scaled(&piece.metres, moments[0]), scaled(&piece.seconds, moments[1]), scaled(&piece.cents, moments[2])]
        };
        self.normalised = self.kept.par_iter().map(piece).collect();
    }

    fn group(&mut self) {
        let zones = self.limits.zones as usize;
        let table = || vec![Zone::default(); zones];
        // The zone is the index: no hashing. One table a core, and the tables are added at the end.
        let add = |mut table: Vec<Zone>, piece: &Rides| {
            for ((&zone, &cents), &metres) in piece.zone.iter().zip(&piece.cents).zip(&piece.metres) {
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
        let mut all = self.kept.par_iter().fold(table, add).reduce(table, both);
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
        let piece = |(kept, features): (&Rides, &[Vec<f32>; 3])| {
            let known = |(row, &licence): (usize, &u32)| year_of(licence).map(|year| (row as u32, year));
            let found: Vec<(u32, u32)> = kept.licence.iter().enumerate().filter_map(known).collect();
            let column = |from: &[f32]| found.iter().map(|&(row, _)| from[row as usize]).collect();
            Joined {
                zone: found.iter().map(|&(row, _)| kept.zone[row as usize]).collect(),
                year: found.iter().map(|&(_, year)| year).collect(),
                features: [column(&features[0]), column(&features[1]), column(&features[2])],
            }
        };
        self.joined = self.kept.par_iter().zip(&self.normalised).map(piece).collect();
    }

    /// The results as plain data.
    pub fn outcome(&self) -> PipelineResult {
        let mut joined = Joined::default();
        for piece in &self.joined {
            joined.zone.extend(&piece.zone);
            joined.year.extend(&piece.year);
            joined.features.iter_mut().zip(&piece.features).for_each(|(all, part)| all.extend(part));
        }
        let zones = self.zones.iter().filter(|zone| zone.rides > 0).copied().collect();
        let kept = self.kept.iter().map(Rides::len).sum();
        PipelineResult { kept, moments: self.moments, zones, joined }
    }
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
