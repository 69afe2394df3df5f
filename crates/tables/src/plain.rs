//! The pipeline as loops over rows, on one core: slow, and so plain that it says what is right.

use super::outcome::{Joined, Moments, Outcome, Zone};
use super::{Drivers, Limits, Rides};
use gpulab::error::Result;
use std::collections::HashMap;

impl Limits {
    /// Whether a ride can be true.
    pub fn believes(&self, zone: u32, metres: u32, seconds: u32, cents: u32) -> bool {
        let within = |x: u32, (least, most): (u32, u32)| (least..=most).contains(&x);
        (1..self.zones).contains(&zone)
            && within(metres, self.metres)
            && within(seconds, self.seconds)
            && within(cents, self.cents)
            && u64::from(metres) <= u64::from(self.metres_a_second) * u64::from(seconds)
    }
}

/// What the pipeline gives, computed row by row on one core. The finished rows are in the order of the rides.
///
/// # Errors
/// [`Error::Invalid`](gpulab::Error::Invalid) for columns of different lengths, and a licence that stands twice.
pub fn plain(rides: &Rides, drivers: &Drivers) -> Result<Outcome> {
    rides.check()?;
    drivers.check()?;
    let limits = Limits::of_the_course()?;
    let kept: Vec<usize> = (0..rides.len())
        .filter(|&i| limits.believes(rides.zone[i], rides.metres[i], rides.seconds[i], rides.cents[i]))
        .collect();

    let columns = [&rides.metres, &rides.seconds, &rides.cents];
    let moments = columns.map(|column| {
        let values = || kept.iter().map(|&i| u64::from(column[i]));
        Moments::of_sums(kept.len() as u64, values().sum(), values().map(|x| x * x).sum())
    });

    let mut zones: Vec<Zone> = (0..limits.zones).map(|zone| Zone { zone, ..Zone::default() }).collect();
    for &i in &kept {
        let zone = &mut zones[rides.zone[i] as usize];
        zone.rides += 1;
        zone.cents += u64::from(rides.cents[i]);
        zone.metres += u64::from(rides.metres[i]);
    }
    zones.retain(|zone| zone.rides > 0);

    let year_of: HashMap<u32, u32> = drivers.licence.iter().copied().zip(drivers.year.iter().copied()).collect();
    let mut joined = Joined::default();
    for &i in &kept {
        if let Some(&year) = year_of.get(&rides.licence[i]) {
            joined.zone.push(rides.zone[i]);
            joined.year.push(year);
            for (k, column) in columns.iter().enumerate() {
                joined.features[k].push(moments[k].normalised(column[i]));
            }
        }
    }
    Ok(Outcome { kept: kept.len(), moments, zones, joined })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_small_enough_for_a_pencil() {
        // Kept: the first three. The others: unknown zone, no way, too long, too dear, too fast.
        let rides = Rides {
            zone: vec![1, 1, 265, 266, 1, 1, 1, 1],
            licence: vec![7, 9, 7, 7, 7, 7, 7, 7],
            metres: vec![1000, 2000, 3000, 1000, 0, 1000, 1000, 9000],
            seconds: vec![100, 300, 200, 100, 100, 90_000, 100, 70],
            cents: vec![500, 700, 900, 500, 500, 500, 99_999, 500],
        };
        let drivers = Drivers { licence: vec![7, 8], year: vec![2015, 2020] };
        let outcome = plain(&rides, &drivers).unwrap();
        assert_eq!(outcome.kept, 3);
        assert_eq!(outcome.moments[0], Moments { mean: 2000.0, deviation: 1000.0 });
        let zones = [(1, 2, 1200, 3000), (265, 1, 900, 3000)];
        let zones = zones.map(|(zone, rides, cents, metres)| Zone { zone, rides, cents, metres });
        assert_eq!(outcome.zones, zones);
        assert_eq!((outcome.joined.zone, outcome.joined.year), (vec![1, 265], vec![2015, 2015]));
        assert_eq!(outcome.joined.features[0], [-1.0, 1.0]);
    }

    #[test]
    fn no_rows_and_one_row_have_no_spread() {
        let nothing = plain(&Rides::default(), &Drivers::default()).unwrap();
        assert_eq!(nothing, Outcome::default());
        let one = Rides { zone: vec![5], licence: vec![1], metres: vec![500], seconds: vec![90], cents: vec![600] };
        let outcome = plain(&one, &Drivers { licence: vec![1], year: vec![2011] }).unwrap();
        assert_eq!((outcome.kept, outcome.joined.features[1].clone()), (1, vec![0.0]));
    }
}
