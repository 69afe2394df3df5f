//! Taxi rides and drivers, made up from a seed: the same ones on every machine; and as a CSV file, which polars parses on all cores.

use gpulab::cpu::random::mix;
use gpulab::error::{Error, Result};
use polars::prelude::*;
use rayon::prelude::*;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;

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
    /// The columns as polars' own.
    pub(crate) fn frame(&self) -> PolarsResult<DataFrame> {
        let column = |(name, numbers): (&&str, &Vec<u32>)| Column::new((*name).into(), numbers.as_slice());
        DataFrame::new(self.len(), Rides::NAMES.iter().zip(self.columns()).map(column).collect())
    }

    pub(crate) fn check(&self) -> Result<()> {
        let n = self.len();
        for (name, column) in Rides::NAMES.iter().zip(self.columns()) {
            if column.len() != n {
                return Err(Error::invalid(
                    format!("the column `{name}` has {} rows, and `zone` has {n}", column.len()),
                    "give all columns of a table the same length",
                ));
            }
        }
        if n > 1 << 30 {
            return Err(Error::invalid(
                format!("{n} rides are more than the kernels count (2³⁰)"),
                "take the rides in parts",
            ));
        }
        Ok(())
    }
}

impl Drivers {
    /// # Errors
    /// [`Error::Invalid`] where the columns differ in length, a year is no year, or a licence stands twice.
    pub(crate) fn check(&self) -> Result<()> {
        if self.licence.len() != self.year.len() {
            return Err(Error::invalid(
                format!("there are {} licences and {} years", self.licence.len(), self.year.len()),
                "give both columns the same length",
            ));
        }
        if let Some(at) = self.year.iter().position(|&year| year == u32::MAX) {
            return Err(Error::invalid(
                format!("the driver {} has the year {}, which marks an empty slot", self.licence[at], u32::MAX),
                "give the year that the car was built in",
            ));
        }
        let mut sorted = self.licence.clone();
        sorted.par_sort_unstable();
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(Error::invalid(
                format!("the licence {} stands twice in the register of drivers", pair[0]),
                "keep one row for each licence: a ride is to find one driver",
            )),
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

/// Writes rides as a CSV file with a header; gives its size in bytes.
///
/// # Errors
/// [`Error::Invalid`] for columns of different lengths, [`Error::File`] when it cannot be written.
pub fn write_csv(path: impl AsRef<Path>, rides: &Rides) -> Result<u64> {
    rides.check()?;
    let path = path.as_ref();
    let write = || -> PolarsResult<u64> {
        let mut file = std::fs::File::create(path)?;
        CsvWriter::new(&mut file).finish(&mut rides.frame()?)?;
        Ok(file.metadata()?.len())
    };
    let fix = "choose a folder where you may write, on a disk with room";
    write().map_err(|error| Error::file(path, "write the rides to", error, fix))
}

/// A CSV file as polars holds it.
///
/// # Errors
/// [`Error::File`] for a file that is missing, has other columns, or holds something that is no whole number.
pub(crate) fn read_frame(path: &Path) -> Result<DataFrame> {
    let wrong = |text: String, fix: &str| Error::file(path, "read rides from", text, fix);
    const GET: &str = "check the path, or write the file anew with `tables::write_csv`";
    const CORRECT: &str = "correct that line, or write the file anew with `tables::write_csv`";
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string(), GET))?;
    let mut header = String::new();
    BufReader::new(file).read_line(&mut header).map_err(|error| wrong(error.to_string(), GET))?;
    let expected = Rides::NAMES.join(",");
    if header.trim_end() != expected {
        let found: String = header.trim_end().chars().take(60).collect();
        return Err(wrong(format!("its first line should be `{expected}`, and is `{found}`"), CORRECT));
    }
    let schema: Schema = Rides::NAMES.iter().map(|&name| Field::new(name.into(), DataType::UInt32)).collect();
    let options = CsvReadOptions::default()
        .with_has_header(true)
        .with_schema(Some(Arc::new(schema)))
        .with_raise_if_empty(false)
        .with_rechunk(false);
    let frame = options.try_into_reader_with_file_path(Some(path.to_path_buf())).and_then(|reader| reader.finish());
    let frame = frame.map_err(|error| wrong(error.to_string(), CORRECT))?;
    for column in frame.columns() {
        if column.null_count() > 0 {
            // The header is line 1.
            let row = column.is_null().iter().position(|null| null == Some(true)).unwrap_or(0);
            return Err(wrong(format!("line {} has no number in the column `{}`", row + 2, column.name()), CORRECT));
        }
    }
    Ok(frame)
}

/// What polars says, with what to do next.
pub(crate) fn polars_error(during: &str, error: &polars::error::PolarsError) -> Error {
    Error::invalid(
        format!("polars, at {during}: {error}"),
        "see that the columns have the names and the lengths of `Rides` and `Drivers`",
    )
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

    struct File(std::path::PathBuf);

    impl File {
        fn new(name: &str) -> File {
            File(std::env::temp_dir().join(format!("gpulab-rides-{name}-{}.csv", std::process::id())))
        }
    }

    impl Drop for File {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    #[test]
    fn rides_come_back_as_they_went() {
        let file = File::new("round");
        for count in [0, 1, 5000] {
            let rides = rides(count, 100, 2);
            let bytes = write_csv(&file.0, &rides).unwrap();
            assert_eq!(bytes, std::fs::metadata(&file.0).unwrap().len());
            assert!(read_frame(&file.0).unwrap().equals(&rides.frame().unwrap()));
        }
    }

    #[test]
    fn each_damage_is_named_with_a_next_step() {
        let file = File::new("damaged");
        let header = "zone,licence,metres,seconds,cents\n";
        let cases = [
            (format!("{header}1,2,3,4,5\n1,2,three,4,5\n"), "three"),
            (format!("{header}1,2,3,4,5\n1,2,3\n"), "line 3 has no number in the column `seconds`"),
            (format!("{header}1,2,3,4,5\n1,2,-3,4,5\n"), "-3"),
            (format!("{header}1,2,99999999999,4,5\n"), "99999999999"),
            (format!("{header}1,2,3,4,5,6\n"), ""),
            ("zone,metres\n1,2\n".to_string(), "first line should be `zone,licence"),
            (String::new(), "first line should be"),
        ];
        for (text, what) in cases {
            std::fs::write(&file.0, &text).unwrap();
            let error = read_frame(&file.0).unwrap_err().to_string();
            assert!(
                error.contains(what) && error.contains("gpulab-rides") && error.contains("\nnext: "),
                "{text}: {error}"
            );
        }
        let error = read_frame(Path::new("/no/such/file.csv")).unwrap_err().to_string();
        assert!(error.contains("/no/such/file.csv") && error.contains("\nnext: check the path"), "{error}");
    }
}
