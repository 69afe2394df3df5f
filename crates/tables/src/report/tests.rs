use super::*;
use gpulab::measurement::Summary;

fn row(experiment: &str, backend: Backend, size: usize, ms: f64) -> Measurement {
    let mut row = Measurement::time_ms(experiment, backend, size, Summary::of(&[ms]));
    (row.lesson, row.machine) = ("15_arrays".to_string(), backend.name().to_string());
    row.time = "2026-01-01T00:00:00Z".to_string();
    row
}

/// A folder of this test alone, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("gpulab-report-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_fastest_of_each_side_and_the_newest_of_each_machine() {
    let old =
        Measurement { time: "2025-01-01T00:00:00Z".to_string(), ..row("over rows: join", Backend::Cuda, 100, 0.001) };
    let rows = [
        row("over rows, polars: join", Backend::Cpu, 100, 8.0),
        row("over rows, polars: join", Backend::CpuOneCore, 100, 30.0),
        row("over rows: join", Backend::Cuda, 100, 2.0),
        old, // faster, and no longer true
        row("over rows, polars: join", Backend::Cpu, 10, 1.0),
        row("over rows: join", Backend::Cuda, 10, 2.0),
        row("over rows: join", Backend::Cuda, 1000, 3.0),
        row("over rows: join", Backend::Model, 100, 0.1),
    ];
    let report = of_rows(&rows, "here").unwrap();
    let point = |size, cpu, gpu| Point { size, cpu, gpu, speedup: cpu / gpu };
    assert_eq!(report.pairs.len(), 1);
    assert_eq!(report.pairs[0].points, [point(10, 1.0, 2.0), point(100, 8.0, 2.0)]);
    assert_eq!((report.alone, report.lessons[0].cpu, report.lessons[0].gpu, report.lessons[0].other), (1, 3, 4, 1));
    let text = report.text();
    assert!(text.starts_with("here\n") && text.contains("0.500× to 4.00× (2)"), "{text}");
    assert!(text.contains("CPU: cpu; cpu-1.") && text.contains("GPU: cuda."), "{text}");
    assert!(report.figure().unwrap().svg().contains("as fast as the CPU"));
}

#[test]
fn rates_are_compared_the_other_way_round_and_other_figures_not_at_all() {
    let with = |metric: &str, unit: &str, backend, value: f64| {
        let once = Summary::of(&[value]);
        Measurement { lesson: "x".to_string(), ..Measurement::new("copy", backend, 1, metric, unit, once) }
    };
    let rows = [
        with("bandwidth", "GB/s", Backend::Cpu, 20.0),
        with("bandwidth", "GB/s", Backend::Metal, 100.0),
        with("bytes", "B", Backend::Cpu, 20.0),
        with("bytes", "B", Backend::Cuda, 20.0),
        with("fp32 peak", "TFLOP/s", Backend::Cuda, 67.0),
        // Of another unit: no pair.
        with("rate", "MB/s", Backend::Cuda, 5.0),
        with("rate", "GB/s", Backend::Cpu, 5.0),
        with("time", "ms", Backend::Cpu, 0.0),
        with("time", "ms", Backend::Cuda, 1.0),
    ];
    let report = of_rows(&rows, "").unwrap();
    assert_eq!(report.pairs.len(), 1);
    assert_eq!(report.pairs[0].points, [Point { size: 1, cpu: 20.0, gpu: 100.0, speedup: 5.0 }]);
    assert_eq!(report.alone, 3);
}

#[test]
fn one_side_alone_is_said_and_needs_no_chart() {
    let report = of_rows(&[row("a < b", Backend::Cpu, 1, 1.0)], "s").unwrap();
    assert!(report.figure().is_none());
    assert!(report.text().contains("Nothing was measured on a CPU and on a GPU"));
    let folder = Folder::new("alone");
    let files = report.save(&folder.0.join("deeper")).unwrap();
    assert_eq!(files.len(), 2);
    let error = report.save(Path::new("/proc/none")).unwrap_err().to_string();
    assert!(error.contains("/proc/none") && error.contains("\nnext: choose a folder"), "{error}");
}

#[test]
fn figures_of_ones_own_come_first_and_the_recorded_ones_say_so() {
    let folder = Folder::new("own");
    let (own, reference) = (folder.0.join("own.csv"), folder.0.join("reference.csv"));
    results::append_to(&reference, &[row("a", Backend::Cuda, 1, 1.0), row("a", Backend::Cpu, 1, 4.0)]).unwrap();
    let speedup = |report: &Report| report.pairs[0].points[0].speedup;
    let report = report_on(&own, &reference).unwrap();
    assert!(report.source.contains("nothing was measured here yet") && speedup(&report) == 4.0, "{report:?}");
    // The recorded CPU is faster, and not this one.
    results::append_to(&own, &[row("a", Backend::Cpu, 1, 10.0)]).unwrap();
    let report = report_on(&own, &reference).unwrap();
    assert!(report.source.contains("the recorded run's") && speedup(&report) == 10.0, "{report:?}");
    results::append_to(&own, &[row("a", Backend::Cuda, 1, 5.0)]).unwrap();
    let report = report_on(&own, &reference).unwrap();
    assert!(!report.source.contains("recorded") && speedup(&report) == 2.0, "{report:?}");
}

#[test]
fn damaged_and_empty_files_are_named_with_a_next_step() {
    let folder = Folder::new("damaged");
    let file = folder.0.join("metrics.csv");
    let missing = of_file(&file).unwrap_err().to_string();
    assert!(missing.contains("metrics.csv") && missing.contains("\nnext: "), "{missing}");
    results::append_to(&file, &[row("a", Backend::Cpu, 1, 1.0), row("a", Backend::Cuda, 1, 0.5)]).unwrap();
    let good = std::fs::read_to_string(&file).unwrap();
    assert_eq!(of_file(&file).unwrap().pairs.len(), 1);
    let cases = [
        (String::new(), "has no rows"),
        (format!("{}\n", results::HEADER), "has no rows"),
        (good.replacen("time,", "when,", 1), "line 1: the header should be"),
        (good.replacen("cuda", "tpu", 1), "line 3: `tpu` is no backend"),
        (good.trim_end().to_string(), "line 3: the last line is cut off"),
    ];
    for (text, what) in cases {
        std::fs::write(&file, text).unwrap();
        let error = of_file(&file).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("metrics.csv") && error.contains("\nnext: "), "{what}: {error}");
    }
}

#[test]
fn the_recorded_run_has_a_report() {
    let report = recorded().unwrap();
    assert!(
        report.pairs.iter().any(|pair| pair.lesson == "00_welcome" && pair.experiment == "matmul"),
        "{}",
        report.text()
    );
    let page = report.page();
    assert!(page.contains("<svg") && page.contains("00_welcome"));
}
