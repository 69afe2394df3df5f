//! Taxi rides and drivers, made up from a seed: the same ones on every machine.

use gpulab::cpu::random::mix;
use gpulab::error::{Error, Result};
use rayon::prelude::*;

/// Rows that a thread makes at a time.
const PIECE: usize = 1 << 14;
/// So many driver numbers in a hundred are in no register: their rides find no driver.
const UNKNOWN_PERCENT: u64 = 3;

/// Taxi rides, one vector a column. All are whole numbers: sums of them are exact in any order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rides {
    /// Where it began: a zone from 1 to 265.
    pub zone: Vec<u32>,
    /// The driver's licence, any number.
    pub licence: Vec<u32>,
    /// Way in metres.
    pub metres: Vec<u32>,
    /// Time in seconds.
    pub seconds: Vec<u32>,
    /// Fare in cents.
    pub cents: Vec<u32>,
}

/// The register of drivers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Drivers {
    /// Licence, each once.
    pub licence: Vec<u32>,
    /// The year that the car was built in.
    pub year: Vec<u32>,
}

impl Rides {
    /// Names of the columns, in order.
    pub const NAMES: [&'static str; 5] = ["zone", "licence", "metres", "seconds", "cents"];

    /// How many rides.
    pub fn len(&self) -> usize {
        self.zone.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.zone.is_empty()
    }

    /// Bytes of all columns.
    pub fn bytes(&self) -> usize {
        5 * 4 * self.len()
    }

    /// The columns, in the order of [`Rides::NAMES`].
    pub fn columns(&self) -> [&Vec<u32>; 5] {
        [&self.zone, &self.licence, &self.metres, &self.seconds, &self.cents]
    }

    /// # Errors
    /// [`Error::Invalid`] where columns differ in length, or there are more rows than the kernels count.
    pub(super) fn check(&self) -> Result<()> {
        let n = self.len();
        for (name, column) in Rides::NAMES.iter().zip(self.columns()) {
            if column.len() != n {
                return Err(Error::Invalid {
                    what: format!("the column `{name}` has {} rows, and `zone` has {n}", column.len()),
                    fix: "give all columns of a table the same length".to_string(),
                });
            }
        }
        if n > 1 << 30 {
            return Err(Error::Invalid {
                what: format!("{n} rides are more than the kernels count (2³⁰)"),
                fix: "take the rides in parts".to_string(),
            });
        }
        Ok(())
    }
}

impl Drivers {
    /// # Errors
    /// [`Error::Invalid`] where the columns differ in length, a year is no year, or a licence stands twice.
    pub(super) fn check(&self) -> Result<()> {
        if self.licence.len() != self.year.len() {
            return Err(Error::Invalid {
                what: format!("there are {} licences and {} years", self.licence.len(), self.year.len()),
                fix: "give both columns the same length".to_string(),
            });
        }
        if let Some(at) = self.year.iter().position(|&year| year == u32::MAX) {
            return Err(Error::Invalid {
                what: format!("the driver {} has the year {}, which marks an empty slot", self.licence[at], u32::MAX),
                fix: "give the year that the car was built in".to_string(),
            });
        }
        let mut sorted = self.licence.clone();
        sorted.par_sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::Invalid {
                what: format!("the licence {} stands twice in the register of drivers", pair[0]),
                fix: "keep one row for each licence: a ride is to find one driver".to_string(),
            }),
            None => Ok(()),
        }
    }
}

/// `count` drivers with licences of their own, scattered over all numbers of 32 bits.
pub fn drivers(count: usize, seed: u64) -> Drivers {
    let start = mix(seed ^ 0xD817);
    let each = |i: usize| (licence_of(i as u32), 2008 + (draw(start, i, 0) % 18) as u32);
    let (licence, year) = (0..count).into_par_iter().with_min_len(PIECE).map(each).unzip();
    Drivers { licence, year }
}

/// `count` rides of `drivers` drivers. About 8 in 100 cannot be true, in one of five ways (a meter that was not started, or
/// not stopped …), 3 in 100 have a driver that [`drivers`] does not know. Some zones have many more rides than others.
pub fn rides(count: usize, drivers: usize, seed: u64) -> Rides {
    let start = mix(seed);
    let mut all = Rides::default();
    for column in [&mut all.zone, &mut all.licence, &mut all.metres, &mut all.seconds, &mut all.cents] {
        column.resize(count, 0);
    }
    let Rides { zone, licence, metres, seconds, cents } = &mut all;
    let pieces = (zone.par_chunks_mut(PIECE), licence.par_chunks_mut(PIECE), metres.par_chunks_mut(PIECE));
    let others = (seconds.par_chunks_mut(PIECE), cents.par_chunks_mut(PIECE));
    pieces.into_par_iter().zip(others.into_par_iter()).enumerate().for_each(
        |(piece, ((zone, licence, metres), (seconds, cents)))| {
            for k in 0..zone.len() {
                [zone[k], licence[k], metres[k], seconds[k], cents[k]] = ride(start, piece * PIECE + k, drivers);
            }
        },
    );
    all
}

/// Zone, licence, metres, seconds and cents of one ride.
fn ride(start: u64, i: usize, drivers: usize) -> [u32; 5] {
    let unit = |which| (draw(start, i, which) >> 40) as f64 / (1u64 << 24) as f64;
    // The square favours low numbers: zone 1 has sixteen times its even share.
    let mut zone = 1 + (265.0 * unit(1) * unit(1)) as u32;
    // Four uniform numbers make a good enough bell; the way's logarithm has it.
    let bell = (unit(2) + unit(3) + unit(4) + unit(5) - 2.0) * 3f64.sqrt();
    let mut metres = (2800.0 * (0.8 * bell).exp()) as u32;
    let speed = 3.0 + 8.0 * unit(6);
    let mut seconds = 60 + (f64::from(metres) / speed) as u32;
    let mut cents = 300 + (0.12 * f64::from(metres) + 0.8 * f64::from(seconds) * (0.8 + 0.4 * unit(7))) as u32;
    match draw(start, i, 8) % 64 {
        0 => metres = 0,                     // the meter was not started
        1 => seconds = 86_400,               // and not stopped
        2 => (metres, seconds) = (9000, 70), // the satellite was lost
        3 => cents = 99_999,                 // the fare was cancelled
        4 => zone = 266 + zone % 8,          // no such zone
        _ => {}
    }
    let unknown = draw(start, i, 9) % 100 < UNKNOWN_PERCENT;
    let driver = (draw(start, i, 10) % drivers.max(1) as u64) as u32;
    let licence = licence_of(if unknown || drivers == 0 { drivers as u32 + driver } else { driver });
    [zone, licence, metres, seconds, cents]
}

/// Different numbers give different licences: each step can be undone.
fn licence_of(driver: u32) -> u32 {
    let mixed = driver.wrapping_mul(0x9E37_79B1) ^ 0x5BD1_E995;
    (mixed ^ (mixed >> 15)).wrapping_mul(0x85EB_CA6B)
}

/// The random number `which` of row `i`.
fn draw(start: u64, i: usize, which: u64) -> u64 {
    mix(start.wrapping_add((16 * i as u64 + which).wrapping_mul(0x9E37_79B9_7F4A_7C15)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_rides_and_longer_tables_begin_alike() {
        let (few, many) = (rides(1000, 50, 7), rides(40_000, 50, 7));
        assert_eq!(few, rides(1000, 50, 7));
        assert_ne!(few, rides(1000, 50, 8));
        for (few, many) in few.columns().into_iter().zip(many.columns()) {
            assert_eq!(few[..], many[..1000]);
        }
        assert!(rides(0, 0, 1).is_empty());
    }

    #[test]
    fn licences_differ_and_most_rides_have_a_driver() {
        let drivers = drivers(100_000, 1);
        drivers.check().unwrap();
        let known: std::collections::HashSet<u32> = drivers.licence.iter().copied().collect();
        let rides = rides(10_000, 100_000, 1);
        let found = rides.licence.iter().filter(|licence| known.contains(licence)).count();
        assert!((9500..9900).contains(&found), "{found}");
        let mut doubled = drivers.clone();
        doubled.licence[7] = doubled.licence[3];
        let text = doubled.check().unwrap_err().to_string();
        assert!(text.contains("stands twice") && text.contains("\nnext: "), "{text}");
    }

    #[test]
    fn columns_of_different_lengths_are_named() {
        let mut rides = rides(10, 1, 1);
        rides.cents.pop();
        let text = rides.check().unwrap_err().to_string();
        assert!(text.contains("`cents` has 9 rows"), "{text}");
    }
}
