//! The pipeline's stages and results, and the pipeline as loops over rows on one core: slow, and so plain that it says what is right.

use crate::rides::{Drivers, Rides};
use gpulab::error::Result;
use gpulab::measurement::figures;
use gpulab_kernels::ladder::{Operator, operator};
use std::collections::HashMap;

/// One step of the pipeline behind the reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// Rides that cannot be true go.
    Filter,
    /// Metres, seconds and cents get mean 0 and standard deviation 1.
    Normalise,
    /// Rides, cents and metres of each zone.
    Group,
    /// Each ride gets the year of its driver's car; rides without a known driver go.
    Join,
}

impl Stage {
    /// All stages, in the order in which they run.
    pub const ALL: [Stage; 4] = [Stage::Filter, Stage::Normalise, Stage::Group, Stage::Join];

    /// Its word in measurements.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Filter => "filter",
            Stage::Normalise => "normalise",
            Stage::Group => "group",
            Stage::Join => "join",
        }
    }
}

/// What is believed of a ride: the kernels' own constants, so that CPU and GPU cannot disagree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RideLimits {
    /// Zones are numbered from 1 to one less than this.
    pub zones: u32,
    /// Shortest and longest way, in metres.
    pub metres: (u32, u32),
    /// Shortest and longest time, in seconds.
    pub seconds: (u32, u32),
    /// Lowest and highest fare, in cents.
    pub cents: (u32, u32),
    /// The fastest, in metres a second.
    pub metres_a_second: u32,
}

impl RideLimits {
    /// Those of `kernels/table/keep.cu`.
    ///
    /// # Errors
    /// None that a reader can cause: the test `ladder` holds table and folder equal.
    pub fn of_the_course() -> Result<RideLimits> {
        let keep: Operator = operator("table/keep")?;
        let pair = |name: &str| (keep.constant(&format!("MIN_{name}")), keep.constant(&format!("MAX_{name}")));
        Ok(RideLimits {
            zones: keep.constant("ZONES"),
            metres: pair("METRES"),
            seconds: pair("SECONDS"),
            cents: pair("CENTS"),
            metres_a_second: keep.constant("MAX_METRES_A_SECOND"),
        })
    }
}

/// Mean and standard deviation (of a sample: divided by n − 1) of a column.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Moments {
    /// The mean, in the column's unit.
    pub mean: f64,
    /// The standard deviation, in the column's unit; 0 for fewer than two rows.
    pub deviation: f64,
}

impl Moments {
    /// From the sums of x and x² over `n` rows.
    pub(super) fn of_sums(n: u64, sum: u64, squares: u64) -> Moments {
        if n == 0 {
            return Moments::default();
        }
        let (n, sum, squares) = (n as f64, sum as f64, squares as f64);
        let mean = sum / n;
        let variance = if n > 1.0 { ((squares - sum * mean) / (n - 1.0)).max(0.0) } else { 0.0 };
        Moments { mean, deviation: variance.sqrt() }
    }

    /// A value of the column, normalised: (x − mean) ÷ deviation; 0 where there is no spread.
    pub(super) fn normalised(&self, x: u32) -> f32 {
        if self.deviation > 0.0 { ((f64::from(x) - self.mean) / self.deviation) as f32 } else { 0.0 }
    }
}

/// Sums over the rides that began in a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, PartialOrd, Ord)]
pub struct Zone {
    /// Its number.
    pub zone: u32,
    /// How many rides.
    pub rides: u64,
    /// Their fares, in cents.
    pub cents: u64,
    /// Their ways, in metres.
    pub metres: u64,
}

/// The finished table: one row for each ride that is believed and has a known driver.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Joined {
    /// Where it began.
    pub zone: Vec<u32>,
    /// The year of the driver's car.
    pub year: Vec<u32>,
    /// Metres, seconds and cents, normalised.
    pub features: [Vec<f32>; 3],
}

/// All that the pipeline gives.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PipelineResult {
    /// Rows that the filter keeps.
    pub kept: usize,
    /// Of metres, seconds and cents of the kept rows.
    pub moments: [Moments; 3],
    /// The zones that have rides, by number.
    pub zones: Vec<Zone>,
    /// The finished table, in any order.
    pub joined: Joined,
}

/// What does not depend on the order of rows.
#[derive(Debug, PartialEq, Eq)]
struct Digest {
    rows: usize,
    years: u64,
    zones: u64,
    together: u64,
}

impl Joined {
    fn digest(&self) -> Digest {
        let pairs = || self.zone.iter().zip(&self.year).map(|(&zone, &year)| (u64::from(zone), u64::from(year)));
        Digest {
            rows: self.zone.len(),
            years: pairs().map(|(_, year)| year).sum(),
            zones: pairs().map(|(zone, _)| zone).sum(),
            // Rows whose zone and year were swapped among each other give another sum.
            together: pairs().map(|(zone, year)| zone * zone * (year - 1900)).sum(),
        }
    }

    /// Sum and sum of squares of a feature: 0 and n − 1 before the join.
    fn sums(&self, feature: usize) -> (f64, f64) {
        let values = || self.features[feature].iter().map(|&x| f64::from(x));
        (values().sum(), values().map(|x| x * x).sum())
    }
}

impl PipelineResult {
    /// How far two outcomes differ: `None` when counts and sums of whole numbers are equal, means and deviations agree to
    /// 10⁻⁹ of them, and the features' sums and sums of squares to 10⁻⁶ a row. Else what is wrong first. The order of the
    /// finished rows is not compared: a join may give them in any.
    pub fn differs(&self, other: &PipelineResult) -> Option<String> {
        if self.kept != other.kept {
            return Some(format!("the filter keeps {} rows, and {} in the other one", self.kept, other.kept));
        }
        let near = |a: f64, b: f64, within: f64| (a - b).abs() <= within;
        for ((name, a), b) in ["metres", "seconds", "cents"].iter().zip(self.moments).zip(other.moments) {
            let pairs = [("mean", a.mean, b.mean), ("deviation", a.deviation, b.deviation)];
            for (what, a, b) in pairs {
                if !near(a, b, 1e-9 * a.abs().max(b.abs())) {
                    return Some(format!("the {what} of {name} is {a}, and {b} in the other one"));
                }
            }
        }
        if self.zones != other.zones {
            let pair = self.zones.iter().zip(&other.zones).find(|(a, b)| a != b);
            return Some(match pair {
                Some((a, b)) => format!("a zone's sums are {a:?}, and {b:?} in the other one"),
                None => format!("there are {} zones, and {} in the other one", self.zones.len(), other.zones.len()),
            });
        }
        let (a, b) = (self.joined.digest(), other.joined.digest());
        if a != b {
            return Some(format!("the joined table is {a:?}, and {b:?} in the other one"));
        }
        let within = 1e-6 * (a.rows as f64).max(1.0);
        (0..3).find_map(|feature| {
            let (a, b) = (self.joined.sums(feature), other.joined.sums(feature));
            let equal = self.joined.features[feature].len() == other.joined.features[feature].len()
                && near(a.0, b.0, within)
                && near(a.1, b.1, within);
            (!equal).then(|| {
                let [a0, a1, b0, b1] = [a.0, a.1, b.0, b.1].map(figures);
                format!("feature {feature} adds up to {a0} (squares {a1}), and to {b0} (squares {b1}) in the other one")
            })
        })
    }
}

impl RideLimits {
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
pub fn plain(rides: &Rides, drivers: &Drivers) -> Result<PipelineResult> {
    rides.check()?;
    drivers.check()?;
    let limits = RideLimits::of_the_course()?;
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
    Ok(PipelineResult { kept: kept.len(), moments, zones, joined })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rides::{drivers, rides};

    #[test]
    fn each_difference_is_found() {
        let (rides, drivers) = (rides(2000, 100, 3), drivers(100, 3));
        let right = plain(&rides, &drivers).unwrap();
        assert_eq!(right.differs(&right), None);
        let mut wrong = right.clone();
        wrong.kept += 1;
        assert!(right.differs(&wrong).unwrap().contains("keeps"));
        let mut wrong = right.clone();
        wrong.moments[1].mean *= 1.0 + 1e-8;
        assert!(right.differs(&wrong).unwrap().contains("mean of seconds"));
        let mut wrong = right.clone();
        wrong.moments[1].deviation = f64::NAN;
        assert!(right.differs(&wrong).unwrap().contains("deviation of seconds"));
        let mut wrong = right.clone();
        wrong.zones[3].cents += 1;
        assert!(right.differs(&wrong).unwrap().contains("a zone's sums"));
        wrong.zones.truncate(3);
        assert!(right.differs(&wrong).unwrap().contains("zones"));
        let mut wrong = right.clone();
        let other = (1..).find(|&row| wrong.joined.year[row] != wrong.joined.year[0]).unwrap();
        wrong.joined.year.swap(0, other);
        assert!(right.differs(&wrong).unwrap().contains("together"));
        let mut wrong = right.clone();
        wrong.joined.features[2][5] += 0.1;
        assert!(right.differs(&wrong).unwrap().contains("feature 2"));
        wrong.joined.features[2][5] = f32::NAN;
        assert!(right.differs(&wrong).unwrap().contains("feature 2"));
        // Another order is no difference.
        let mut turned = right.clone();
        turned.joined.zone.reverse();
        turned.joined.year.reverse();
        turned.joined.features.iter_mut().for_each(|column| column.reverse());
        assert_eq!(right.differs(&turned), None);
    }

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
        assert_eq!(nothing, PipelineResult::default());
        let one = Rides { zone: vec![5], licence: vec![1], metres: vec![500], seconds: vec![90], cents: vec![600] };
        let outcome = plain(&one, &Drivers { licence: vec![1], year: vec![2011] }).unwrap();
        assert_eq!((outcome.kept, outcome.joined.features[1].clone()), (1, vec![0.0]));
    }
}
