//! The file under stress: many writers, damage, a read-only folder, a full disk.

use super::*;
use crate::measurement::{Backend, Summary};
use std::fs;
use std::process::Command;

fn row(experiment: &str, size: usize, time: &str) -> Measurement {
    let summary = Summary { median: 0.1 + 0.2, p10: 1e-9, p90: 123456.789, samples: 21 };
    let mut row = Measurement::time_ms(experiment, Backend::Cuda, size, summary).dtype("bf16");
    (row.time, row.commit) = (time.to_string(), "abc1234+".to_string());
    (row.lesson, row.machine) = ("02_async_timing".to_string(), "a \"fast\", big GPU".to_string());
    row
}

/// A folder of this test alone, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("gpulab-results-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn file(&self) -> PathBuf {
        self.0.join("deeper/metrics.csv")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs the ignored test `name` in a process of its own; `limit` is a shell line before it.
fn in_another_process(name: &str, file: &Path, limit: &str) -> Command {
    let mut command = Command::new("sh");
    let program = std::env::current_exe().unwrap();
    command.arg("-c").arg(format!("{limit} exec \"$0\" \"$@\"")).arg(program);
    // The binary's own name of the test: this file may be compiled as part of another crate.
    let (_, module) = module_path!().split_once("::").unwrap();
    command.args(["--exact", &format!("{module}::{name}"), "--ignored", "--nocapture"]).env("GPULAB_TEST_FILE", file);
    command
}

#[test]
fn of_a_curve_a_notebook_has_one_run_and_a_program_each_point() {
    let row = |size: usize, time: &str| Measurement {
        time: time.to_string(),
        ..Measurement::new("a step", Backend::Cuda, size, "time", "ms", Summary::of(&[1.0]))
    };
    let rows = vec![row(8, "2026-11-24T21:29:33Z"), row(8, "2026-11-23T10:00:00Z"), row(32, "2026-11-24T21:29:49Z")];
    let sizes = |rows: Vec<Measurement>| rows.iter().map(|row| row.size).collect::<Vec<u64>>();
    assert_eq!(sizes(newest(rows.clone(), curve)), [32]);
    assert_eq!(sizes(newest(rows, |row| (curve(row), row.size))), [8, 32]);
}

#[test]
fn rows_come_back_as_they_went_in() {
    let folder = Folder::new("round");
    let file = folder.file();
    append_to(&file, &[]).unwrap();
    assert!(!file.exists(), "no rows, no file");
    let rows = [row("plain", 1, "t"), row("a, \"b\" and c;", usize::MAX, "t"), row("Zeit für 10 µs", 0, "")];
    append_to(&file, &rows[..1]).unwrap();
    append_to(&file, &rows[1..]).unwrap();
    assert_eq!(read(&file).unwrap(), rows);
    append_to(&file, &[row("two\r\nlines", 1, "t")]).unwrap();
    assert_eq!(read(&file).unwrap()[3].experiment, "two  lines");
    assert_eq!(fs::read_to_string(&file).unwrap().lines().next(), Some(HEADER));
}

#[test]
fn threads_and_processes_at_once_lose_no_row() {
    let folder = Folder::new("many");
    let file = folder.file();
    let mut others: Vec<_> = (0..2).map(|_| in_another_process("writer", &file, "").spawn().unwrap()).collect();
    writer_of(&file, "here");
    for other in &mut others {
        assert!(other.wait().unwrap().success());
    }
    let rows = read(&file).unwrap();
    assert_eq!(rows.len(), 3 * 8 * 25 * 2);
    let mut keys: Vec<(String, u64)> = rows.into_iter().map(|row| (row.experiment, row.size)).collect();
    // Two rows of one append stand side by side.
    assert!(keys.chunks(2).all(|pair| pair[0].0 == pair[1].0 && pair[0].1 + 1 == pair[1].1));
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 3 * 8 * 25 * 2);
}

fn writer_of(file: &Path, name: &str) {
    std::thread::scope(|scope| {
        for thread in 0..8 {
            scope.spawn(move || {
                for n in 0..25 {
                    let name = format!("{name} {thread}");
                    append_to(file, &[row(&name, 2 * n, "t"), row(&name, 2 * n + 1, "t")]).unwrap();
                }
            });
        }
    });
}

#[test]
#[ignore = "the other process of threads_and_processes_at_once_lose_no_row"]
fn writer() {
    let file = std::env::var_os("GPULAB_TEST_FILE").expect("set by the test that starts this process");
    writer_of(Path::new(&file), &format!("process {}", std::process::id()));
}

#[test]
fn a_damaged_file_is_named_and_kept() {
    let folder = Folder::new("damaged");
    let file = folder.0.join("metrics.csv");
    let good = {
        append_to(&file, &[row("good", 1, "t"), row("good", 2, "t")]).unwrap();
        fs::read_to_string(&file).unwrap()
    };
    let cases = [
        (good.replacen("time", "when", 1), 1, "the header should be"),
        (good.trim_end().to_string(), 3, "cut off"),
        (format!("{good}a,b,c\n"), 4, "3 fields, where 14 belong"),
        (format!("{good}\n"), 4, "empty"),
        (good.replace("cuda", "tpu").to_string(), 3, "`tpu` is no backend"),
        (good.replace("1e-9", "NaN"), 3, "`NaN` is no p10"),
        (HEADER.to_string(), 1, "cut off"),
        ("\0\0\0\0".repeat(9000), 1, "header"),
    ];
    for (text, line, what) in cases {
        fs::write(&file, &text).unwrap();
        let error = append_to(&file, &[row("new", 3, "t")]).unwrap_err();
        assert!(matches!(error, Error::Damaged { line: at, .. } if at == line), "{error}");
        let message = error.to_string();
        assert!(message.contains(what) && message.contains("\nnext: "), "{what}: {message}");
        assert!(read(&file).is_err());
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "the file must be left as it is");
    }
    // Damage in the middle does not stop a writer; a reader names its line.
    fs::write(&file, good.replacen("cuda", "tpu", 1)).unwrap();
    append_to(&file, &[row("new", 3, "t")]).unwrap();
    assert!(matches!(read(&file).unwrap_err(), Error::Damaged { line: 2, .. }));
    // A file of the header alone, with the line ends of another system, is sound.
    fs::write(&file, format!("{HEADER}\r\n")).unwrap();
    append_to(&file, &[row("new", 3, "t")]).unwrap();
    assert_eq!(read(&file).unwrap().len(), 1);
}

#[test]
fn a_row_that_is_no_number_is_refused() {
    let folder = Folder::new("nan");
    let mut bad = row("bad", 1, "t");
    bad.summary.p90 = f64::INFINITY;
    let error = append_to(&folder.file(), &[row("good", 1, "t"), bad]).unwrap_err().to_string();
    assert!(error.contains("`bad` at size 1") && error.contains("next: nothing was stored"), "{error}");
    assert!(!folder.file().exists());
}

#[cfg(unix)]
#[test]
fn a_disk_that_fills_up_halfway_leaves_no_half_row() {
    let folder = Folder::new("full");
    let file = folder.0.join("metrics.csv");
    append_to(&file, &[row("good", 1, "t")]).unwrap();
    let before = fs::read(&file).unwrap();
    // The shell's limit on file size (in blocks of 512 or 1024 bytes) makes a write stop partway, as a full disk does.
    // Its output goes through a pipe: the limit would hold for a log file that the test's output goes to as well.
    let done = in_another_process("too_much", &file, "trap '' XFSZ; ulimit -f 4;").output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    assert_eq!(fs::read(&file).unwrap(), before);
    append_to(&file, &[row("after", 1, "t")]).unwrap();
    assert_eq!(read(&file).unwrap().len(), 2);
}

#[test]
#[ignore = "the other process of a_disk_that_fills_up_halfway_leaves_no_half_row"]
fn too_much() {
    let file = PathBuf::from(std::env::var_os("GPULAB_TEST_FILE").expect("set by the test that starts this process"));
    let many: Vec<Measurement> = (0..1000).map(|n| row("too much", n, "t")).collect();
    let error = append_to(&file, &many).unwrap_err().to_string();
    assert!(error.contains("cannot append rows to") && error.contains("next: nothing was stored"), "{error}");
    // A new file that cannot hold its rows stays empty, and counts as new.
    let new = file.with_file_name("new.csv");
    append_to(&new, &many).unwrap_err();
    assert_eq!(fs::read(&new).unwrap(), b"");
    append_to(&new, &many[..1]).unwrap();
    assert_eq!(read(&new).unwrap().len(), 1);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_device_and_a_read_only_place_are_reported() {
    let folder = Folder::new("readonly");
    let full = folder.0.join("full.csv");
    std::os::unix::fs::symlink("/dev/full", &full).unwrap();
    let error = append_to(&full, &[row("x", 1, "t")]).unwrap_err().to_string();
    assert!(error.contains("No space left on device"), "{error}");
    // Nobody, not even root, can make a folder here.
    let error = append_to(Path::new("/proc/gpulab/metrics.csv"), &[row("x", 1, "t")]).unwrap_err().to_string();
    assert!(error.contains("/proc/gpulab") && error.contains("GPULAB_RESULTS"), "{error}");
    // GPULAB_RESULTS that names a file.
    fs::write(folder.0.join("file"), "").unwrap();
    let error = append_to(&folder.0.join("file/metrics.csv"), &[row("x", 1, "t")]).unwrap_err().to_string();
    assert!(error.contains("/file: this is a file, where a folder belongs"), "{error}");
    let error = read(&folder.0.join("none.csv")).unwrap_err().to_string();
    assert!(error.contains("none.csv") && error.contains("\nnext: run the lesson first"), "{error}");
}

#[test]
fn of_recorded_rows_only_the_newest_run_counts() {
    let old = [row("a", 1, "2026-01-01T00:00:00Z"), row("a", 2, "2026-01-01T00:00:00Z")];
    let new = [row("a", 1, "2026-02-01T00:00:00Z"), row("b", 9, "2025-01-01T00:00:00Z")];
    let kept = newest([old, new.clone()].concat(), curve);
    assert_eq!(kept, new.map(|row| Measurement { recorded: true, ..row }));
}

#[test]
fn what_a_program_recorded_stands_beside_the_run_where_that_has_none() {
    let folder = Folder::new("beside");
    let (file, other) = (folder.file(), folder.file().with_file_name("recorders.csv"));
    let (run, more) = (row("a", 1, "2026-01-01T00:00:00Z"), row("a", 2, "2025-01-01T00:00:00Z"));
    append_to(&file, std::slice::from_ref(&run)).unwrap();
    assert_eq!(read_all(&file).unwrap(), std::slice::from_ref(&run));
    append_to(&other, &[row("a", 1, "2026-02-01T00:00:00Z"), more.clone()]).unwrap();
    assert_eq!(read_all(&file).unwrap(), [run, more]);
    fs::write(&other, "no rows").unwrap();
    assert!(read_all(&file).unwrap_err().to_string().contains("recorders.csv"));
    assert!(recorded_by_programs("no-such-machine", "02_async_timing").unwrap().is_empty());
}

#[test]
fn a_recorded_run_that_is_not_there_is_named() {
    let error = recorded_in("no-such-machine", "02_async_timing", "x").unwrap_err().to_string();
    assert!(error.contains("results/no-such-machine/metrics.csv") && error.contains("next: "), "{error}");
}

#[test]
fn known_moments() {
    let cases = [
        (0, "1970-01-01T00:00:00Z"),
        (951_827_696, "2000-02-29T12:34:56Z"),
        (1_735_689_599, "2024-12-31T23:59:59Z"),
        (4_107_542_400, "2100-03-01T00:00:00Z"),
    ];
    for (seconds, text) in cases {
        assert_eq!(utc(seconds), text);
    }
}

#[test]
fn a_commit_is_never_empty() {
    let commit = commit();
    assert!(!commit.is_empty() && !commit.contains(char::is_whitespace), "{commit:?}");
}

#[test]
fn a_reference_that_has_no_run_of_the_lesson_is_not_taken() {
    for named in [None, Some(""), Some("h200"), Some("no-such-gpu"), Some("../results/h200")] {
        assert_eq!(chosen_reference(named.map(str::to_string), "11_reduction"), REFERENCE, "{named:?}");
    }
}
