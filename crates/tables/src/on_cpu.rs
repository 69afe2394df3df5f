//! The pipeline in polars, on all cores.
//!
//! Without its `lazy` half (which would double the crates that a notebook builds) polars takes one operation at a time, and many of
//! them run on one core. So the rows go through in pieces, one piece a core at a time: what a piece needs in between stays
//! in that core's cache; it is two to four times as fast as whole columns. The join is polars' own, which takes all cores by
//! itself.

use crate::pipeline::{Joined, Moments, PipelineResult, RideLimits, Stage, Zone};
use crate::rides::read_frame;
use crate::rides::{Drivers, Rides, polars_error};
use gpulab::error::Result;
use polars::prelude::*;
use rayon::prelude::*;
use std::path::Path;

/// Rows of a piece: its columns lie in a core's own cache.
const PIECE: usize = 1 << 16;
const FEATURES: [&str; 3] = ["metres", "seconds", "cents"];

/// Rides and drivers as polars holds them, and what the pipeline makes of them.
pub struct OnCpu {
    limits: RideLimits,
    rides: DataFrame,
    drivers: DataFrame,
    kept: Vec<DataFrame>,
    moments: [Moments; 3],
    normalised: Vec<DataFrame>,
    zones: DataFrame,
    joined: DataFrame,
    /// The library whose polars the tables remember names for.
    library: usize,
}

/// Its address tells libraries apart: each cell of a notebook is one, with this crate in it.
static LIBRARY: u8 = 0;

impl OnCpu {
    /// Copies the columns into polars' own.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) for columns of different lengths, and a licence that stands twice.
    pub fn new(rides: &Rides, drivers: &Drivers) -> Result<OnCpu> {
        rides.check()?;
        OnCpu::of(rides.frame(), drivers)
    }

    /// Takes rides that are polars' table already, with the columns of [`Rides::NAMES`] as `u32`: whatever polars read,
    /// filtered or joined.
    ///
    /// # Errors
    /// For drivers as [`OnCpu::new`]; columns that are missing or of another type are an error of [`OnCpu::run`].
    pub fn from_frame(rides: DataFrame, drivers: &Drivers) -> Result<OnCpu> {
        OnCpu::of(Ok(rides), drivers)
    }

    /// Reads the rides from a CSV file, which polars parses on all cores.
    ///
    /// # Errors
    /// [`Error::File`](gpulab::Error::File) for a file that is missing, has other columns, or holds something that is no whole
    /// number.
    pub fn read(path: impl AsRef<Path>, drivers: &Drivers) -> Result<OnCpu> {
        OnCpu::from_frame(read_frame(path.as_ref())?, drivers)
    }

    fn of(rides: PolarsResult<DataFrame>, drivers: &Drivers) -> Result<OnCpu> {
        drivers.check()?;
        let columns = [("licence", &drivers.licence), ("year", &drivers.year)];
        let columns = columns.map(|(name, numbers)| Column::new(name.into(), numbers.as_slice())).to_vec();
        let register = DataFrame::new(drivers.licence.len(), columns);
        Ok(OnCpu {
            limits: RideLimits::of_the_course()?,
            rides: rides.map_err(|error| polars_error("making the table of rides", &error))?,
            drivers: register.map_err(|error| polars_error("making the table of drivers", &error))?,
            kept: Vec::new(),
            moments: [Moments::default(); 3],
            normalised: Vec::new(),
            zones: DataFrame::default(),
            joined: DataFrame::default(),
            // Nobody's: the rides may come from another cell.
            library: 0,
        })
    }

    /// The rides, as polars holds them.
    pub fn rides(&self) -> DataFrame {
        fresh(&self.rides)
    }

    /// The sums by zone ([`Stage::Group`]), as polars holds them.
    pub fn zones(&self) -> DataFrame {
        fresh(&self.zones)
    }

    /// The finished table ([`Stage::Join`]), as polars holds it.
    pub fn joined(&self) -> DataFrame {
        fresh(&self.joined)
    }

    /// Runs one stage. Later stages work on what earlier ones left.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) with what polars says.
    pub fn run(&mut self, stage: Stage) -> Result<()> {
        // Once for each cell, and not in what is timed.
        let here = std::ptr::from_ref(&LIBRARY).addr();
        if self.library != here {
            let frames = [&mut self.rides, &mut self.drivers, &mut self.zones, &mut self.joined];
            let frames = frames.into_iter().chain(&mut self.kept).chain(&mut self.normalised);
            frames.for_each(|frame| *frame = fresh(frame));
            self.library = here;
        }
        let done = match stage {
            Stage::Filter => self.filter(),
            Stage::Normalise => self.normalise(),
            Stage::Group => self.group(),
            Stage::Join => self.join(),
        };
        done.map_err(|error| polars_error(stage.name(), &error))
    }

    /// Runs all stages.
    ///
    /// # Errors
    /// As [`OnCpu::run`].
    pub fn run_all(&mut self) -> Result<()> {
        Stage::ALL.into_iter().try_for_each(|stage| self.run(stage))
    }

    fn filter(&mut self) -> PolarsResult<()> {
        let (rides, limits) = (&self.rides, self.limits);
        let starts: Vec<usize> = (0..rides.height().max(1)).step_by(PIECE).collect();
        let piece = |&start: &usize| {
            let piece = rides.slice(start as i64, PIECE);
            piece.filter_seq(&believed(&piece, limits)?)
        };
        self.kept = starts.par_iter().map(piece).collect::<PolarsResult<_>>()?;
        Ok(())
    }

    fn normalise(&mut self) -> PolarsResult<()> {
        let parts: Vec<[Part; 3]> = self.kept.par_iter().map(parts).collect::<PolarsResult<_>>()?;
        let moments = [0, 1, 2].map(|k| parts.iter().map(|parts| parts[k]).fold(Part::default(), Part::and).moments());
        self.moments = moments;
        let piece = |piece: &DataFrame| -> PolarsResult<DataFrame> {
            let mut columns = piece.select_to_vec(["zone", "licence"])?;
            for (name, Moments { mean, deviation }) in FEATURES.iter().zip(moments) {
                let x = piece.column(name)?.cast(&DataType::Float32)?;
                let scale = if deviation > 0.0 { 1.0 / deviation } else { 0.0 };
                columns.push(((x.f32()? - mean as f32) * scale as f32).into_column());
            }
            DataFrame::new(piece.height(), columns)
        };
        self.normalised = self.kept.par_iter().map(piece).collect::<PolarsResult<_>>()?;
        Ok(())
    }

    fn group(&mut self) -> PolarsResult<()> {
        // Each piece by itself, and then the pieces' small tables.
        let partial = |piece: &DataFrame| -> PolarsResult<DataFrame> {
            let mut columns = piece.select_to_vec(["zone"])?;
            for name in ["cents", "metres"] {
                // A sum of 32 bits would overflow.
                columns.push(piece.column(name)?.cast(&DataType::UInt64)?);
            }
            columns.push(Column::new_scalar("rides".into(), 1u64.into(), piece.height()));
            sums(&DataFrame::new(piece.height(), columns)?)
        };
        let partial: Vec<DataFrame> = self.kept.par_iter().map(partial).collect::<PolarsResult<_>>()?;
        self.zones = sums(&stack(&partial)?)?;
        Ok(())
    }

    fn join(&mut self) -> PolarsResult<()> {
        let mut rides = stack(&self.normalised)?;
        rides.rechunk_mut_par();
        // So the hash table is made of the drivers, and not of the rides, which are ten times as many.
        let inner = JoinArgs { maintain_order: MaintainOrderJoin::Left, ..JoinArgs::new(JoinType::Inner) };
        self.joined = rides.join(&self.drivers, ["licence"], ["licence"], inner, None)?;
        Ok(())
    }

    /// The results as plain data.
    ///
    /// # Errors
    /// [`Error::Invalid`](gpulab::Error::Invalid) with what polars says, such as that a stage has not run.
    pub fn outcome(&self) -> Result<PipelineResult> {
        self.plain_data().map_err(|error| polars_error("reading the results", &error))
    }

    fn plain_data(&self) -> PolarsResult<PipelineResult> {
        let (by_zone, table) = (fresh(&self.zones), fresh(&self.joined));
        let numbers = |name: &str| -> PolarsResult<Vec<u64>> {
            let column = by_zone.column(name)?.cast(&DataType::UInt64)?;
            Ok(column.u64()?.into_no_null_iter().collect())
        };
        let (zone, rides) = (numbers("zone")?, numbers("rides")?);
        let (cents, metres) = (numbers("cents")?, numbers("metres")?);
        let row = |at: usize| Zone { zone: zone[at] as u32, rides: rides[at], cents: cents[at], metres: metres[at] };
        let mut zones: Vec<Zone> = (0..zone.len()).map(row).collect();
        zones.sort();
        let words =
            |name: &str| -> PolarsResult<Vec<u32>> { Ok(table.column(name)?.u32()?.into_no_null_iter().collect()) };
        let mut joined = Joined { zone: words("zone")?, year: words("year")?, ..Joined::default() };
        for (to, name) in joined.features.iter_mut().zip(FEATURES) {
            *to = table.column(name)?.f32()?.into_no_null_iter().collect();
        }
        let kept = self.kept.iter().map(DataFrame::height).sum();
        Ok(PipelineResult { kept, moments: self.moments, zones, joined })
    }
}

/// The same columns as a table of its own. A table remembers where each name is, hashed with a seed of this library; each cell
/// of a notebook is a library with a polars and a seed of its own, and would find no name in what another cell remembered.
fn fresh(table: &DataFrame) -> DataFrame {
    DataFrame::new(table.height(), table.columns().to_vec()).expect("the columns of one table")
}

/// The pieces as one table; nothing is copied.
fn stack(pieces: &[DataFrame]) -> PolarsResult<DataFrame> {
    let mut pieces = pieces.iter();
    let mut all = pieces.next().cloned().unwrap_or_default();
    pieces.try_for_each(|piece| all.vstack_mut(piece).map(drop))?;
    Ok(all)
}

/// Which rows can be true.
fn believed(piece: &DataFrame, limits: RideLimits) -> PolarsResult<BooleanChunked> {
    let within = |name: &str, (least, most): (u32, u32)| -> PolarsResult<BooleanChunked> {
        let column = piece.column(name)?.u32()?;
        Ok(column.gt_eq(least) & column.lt_eq(most))
    };
    let ordinary = within("zone", (1, limits.zones - 1))?
        & within("metres", limits.metres)?
        & within("seconds", limits.seconds)?
        & within("cents", limits.cents)?;
    // Past the limit of seconds the product might overflow, but such a row goes anyway.
    let farthest = piece.column("seconds")?.u32()? * limits.metres_a_second;
    Ok(ordinary & piece.column("metres")?.u32()?.lt_eq(&farthest))
}

/// The sums of cents, metres and rides by zone, under the same names.
fn sums(table: &DataFrame) -> PolarsResult<DataFrame> {
    // On one core: the pieces are shared out already.
    let groups = table.group_by_with_series(table.select_to_vec(["zone"])?, false, false)?;
    #[expect(deprecated, reason = "the newer way is part of polars' `lazy`, which doubles the crates to build")]
    let mut sums = groups.select(["cents", "metres", "rides"]).sum()?;
    sums.set_column_names(&["zone", "cents", "metres", "rides"])?;
    Ok(sums)
}

/// Rows, mean and sum of squared distances from it, of a part of a column.
#[derive(Debug, Clone, Copy, Default)]
struct Part {
    rows: f64,
    mean: f64,
    squares: f64,
}

fn parts(piece: &DataFrame) -> PolarsResult<[Part; 3]> {
    let mut parts = [Part::default(); 3];
    for (part, name) in parts.iter_mut().zip(FEATURES) {
        let x = piece.column(name)?.cast(&DataType::Float64)?;
        let (x, rows) = (x.f64()?, piece.height() as f64);
        let variance = x.var(1).unwrap_or(0.0);
        *part = Part { rows, mean: x.mean().unwrap_or(0.0), squares: variance * (rows - 1.0).max(0.0) };
    }
    Ok(parts)
}

impl Part {
    /// Both together (Chan, Golub, LeVeque: "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
    fn and(self, other: Part) -> Part {
        let rows = self.rows + other.rows;
        if rows == 0.0 {
            return self;
        }
        let apart = other.mean - self.mean;
        Part {
            rows,
            mean: self.mean + apart * other.rows / rows,
            squares: self.squares + other.squares + apart * apart * self.rows * other.rows / rows,
        }
    }

    fn moments(self) -> Moments {
        let variance = if self.rows > 1.0 { self.squares / (self.rows - 1.0) } else { 0.0 };
        Moments { mean: self.mean, deviation: variance.sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::plain;
    use crate::rides::{drivers, rides};

    #[test]
    fn polars_agrees_with_the_plain_loops() {
        for rows in [0, 1, 31, 33, 1000, PIECE, 3 * PIECE + 5] {
            let (rides, drivers) = (rides(rows, 500, 4), drivers(500, 4));
            let mut on_cpu = OnCpu::new(&rides, &drivers).unwrap();
            on_cpu.run_all().unwrap_or_else(|error| panic!("{rows} rides: {error}"));
            let right = plain(&rides, &drivers).unwrap();
            assert_eq!(right.differs(&on_cpu.outcome().unwrap()), None, "{rows} rides");
        }
    }

    #[test]
    fn polars_own_tables_go_in_and_come_out() {
        let (rides, drivers) = (rides(1000, 50, 4), drivers(50, 4));
        let mut first = OnCpu::new(&rides, &drivers).unwrap();
        first.run_all().unwrap();
        let mut again = OnCpu::from_frame(first.rides(), &drivers).unwrap();
        again.run_all().unwrap();
        assert_eq!(first.outcome().unwrap().differs(&again.outcome().unwrap()), None);
        assert_eq!(again.zones().get_column_names(), ["zone", "cents", "metres", "rides"]);
        assert_eq!(again.joined().height(), again.outcome().unwrap().joined.zone.len());
        let mut wrong = OnCpu::from_frame(first.zones(), &drivers).unwrap();
        assert!(matches!(wrong.run(Stage::Filter), Err(gpulab::Error::Invalid { .. })));
    }

    #[test]
    fn a_stage_that_has_not_run_is_an_error() {
        let on_cpu = OnCpu::new(&rides(10, 5, 1), &drivers(5, 1)).unwrap();
        let text = on_cpu.outcome().unwrap_err().to_string();
        assert!(text.contains("reading the results") && text.contains("\nnext: "), "{text}");
    }
}
