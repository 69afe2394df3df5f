//! Rides as a CSV file: polars parses it on all cores, for the CPU's pipeline and the GPU's.

use super::Rides;
use gpulab::error::{Error, Result};
use polars::prelude::*;
use rayon::prelude::*;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::sync::Arc;

/// Rows that become text at a time.
const PIECE: usize = 1 << 16;

/// Writes rides as a CSV file with a header; gives its size in bytes.
///
/// # Errors
/// [`Error::Invalid`] for columns of different lengths, [`Error::File`] when it cannot be written.
pub fn write_csv(path: impl AsRef<Path>, rides: &Rides) -> Result<u64> {
    rides.check()?;
    let path = path.as_ref();
    let starts: Vec<usize> = (0..rides.len()).step_by(PIECE).collect();
    let write = || -> std::io::Result<u64> {
        let mut file = std::fs::File::create(path)?;
        file.write_all(format!("{}\n", Rides::NAMES.join(",")).as_bytes())?;
        // A few pieces at a time become text on all cores: the whole text would take more memory than the rides.
        for some in starts.chunks(64) {
            let texts: Vec<String> = some.par_iter().map(|&start| text(rides, start)).collect();
            texts.iter().try_for_each(|text| file.write_all(text.as_bytes()))?;
        }
        file.metadata().map(|data| data.len())
    };
    write().map_err(|error| Error::File {
        path: path.to_path_buf(),
        during: "write the rides to".to_string(),
        text: error.to_string(),
        fix: "choose a folder where you may write, on a disk with room".to_string(),
    })
}

fn text(rides: &Rides, start: usize) -> String {
    let mut text = String::new();
    for i in start..rides.len().min(start + PIECE) {
        let [zone, licence, metres, seconds, cents] = rides.columns().map(|column| column[i]);
        writeln!(text, "{zone},{licence},{metres},{seconds},{cents}").expect("writing to memory does not fail");
    }
    text
}

/// Reads rides from a CSV file as [`write_csv`] writes it.
///
/// # Errors
/// [`Error::File`] for a file that is missing, has other columns, or holds something that is no whole number.
pub fn read_csv(path: impl AsRef<Path>) -> Result<Rides> {
    let frame = read_frame(path.as_ref())?;
    let column = |name: &str| -> Result<Vec<u32>> {
        let column = frame.column(name).and_then(|column| column.u32());
        let numbers = column.map_err(|error| super::polars_error("reading a column", &error))?;
        Ok(numbers.into_no_null_iter().collect())
    };
    let [zone, licence, metres, seconds, cents] = Rides::NAMES.map(column);
    Ok(Rides { zone: zone?, licence: licence?, metres: metres?, seconds: seconds?, cents: cents? })
}

/// The file as polars holds it.
pub(super) fn read_frame(path: &Path) -> Result<DataFrame> {
    let wrong = |text: String, fix: &str| Error::File {
        path: path.to_path_buf(),
        during: "read rides from".to_string(),
        text,
        fix: fix.to_string(),
    };
    const GET: &str = "check the path, or write the file anew with `arrays::write_csv`";
    const MEND: &str = "mend that line, or write the file anew with `arrays::write_csv`";
    let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string(), GET))?;
    let mut header = String::new();
    BufReader::new(file).read_line(&mut header).map_err(|error| wrong(error.to_string(), GET))?;
    let expected = Rides::NAMES.join(",");
    if header.trim_end() != expected {
        let found: String = header.trim_end().chars().take(60).collect();
        return Err(wrong(format!("its first line should be `{expected}`, and is `{found}`"), MEND));
    }
    let schema: Schema = Rides::NAMES.iter().map(|&name| Field::new(name.into(), DataType::UInt32)).collect();
    let options = CsvReadOptions::default()
        .with_has_header(true)
        .with_schema(Some(Arc::new(schema)))
        .with_raise_if_empty(false)
        .with_rechunk(false);
    let frame = options.try_into_reader_with_file_path(Some(path.to_path_buf())).and_then(|reader| reader.finish());
    let frame = frame.map_err(|error| wrong(error.to_string(), MEND))?;
    for column in frame.columns() {
        if column.null_count() > 0 {
            // The header is line 1.
            let row = column.is_null().iter().position(|null| null == Some(true)).unwrap_or(0);
            return Err(wrong(format!("line {} has no number in the column `{}`", row + 2, column.name()), MEND));
        }
    }
    Ok(frame)
}

#[cfg(test)]
mod tests {
    use super::super::rides;
    use super::*;

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
            assert_eq!(read_csv(&file.0).unwrap(), rides);
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
            let error = read_csv(&file.0).map(|rides| format!("{rides:?}")).unwrap_err().to_string();
            assert!(
                error.contains(what) && error.contains("gpulab-rides") && error.contains("\nnext: "),
                "{text}: {error}"
            );
        }
        let error = read_csv("/no/such/file.csv").unwrap_err().to_string();
        assert!(error.contains("/no/such/file.csv") && error.contains("\nnext: check the path"), "{error}");
    }
}
