//! From rows to pairs, in polars: sort, group, filter, join.

use super::{LessonRows, Pair, Point, Report};
use gpulab::measurement::{Backend, Measurement};
use polars::prelude::*;

/// What two rows must have in common to be one experiment.
const KEY: [&str; 6] = ["lesson", "experiment", "dtype", "metric", "unit", "size"];

pub(super) fn summary(rows: &[Measurement]) -> PolarsResult<Report> {
    let table = table(rows)?;
    let lessons = lessons(&table)?;
    let newest = newest(&table)?;
    let is_speed = newest.column("speed")?.f64()?.gt(0.0);
    let speeds = newest.filter(&is_speed)?;
    let (cpu, gpu) = (fastest(&speeds, "cpu")?, fastest(&speeds, "gpu")?);
    let both = cpu.join(&gpu, KEY, KEY, JoinArgs::new(JoinType::Inner), None)?;
    let both = both.sort(KEY, SortMultipleOptions::default())?;
    let alone = cpu.height() + gpu.height() - 2 * both.height();
    let [cpus, gpus] = ["cpu", "gpu"].map(|side| machines(rows, side));
    Ok(Report { source: String::new(), cpus, gpus, lessons, pairs: pairs(&both)?, alone })
}

/// The rows as columns. `speed` is higher for the faster one, in 1 ÷ unit for times; 0 for what is no speed.
fn table(rows: &[Measurement]) -> PolarsResult<DataFrame> {
    let text = |name: &str, of: &dyn Fn(&Measurement) -> String| {
        Column::new(name.into(), rows.iter().map(of).collect::<Vec<String>>())
    };
    let speed: Vec<f64> = rows.iter().map(speed).collect();
    let size: Vec<u64> = rows.iter().map(|row| row.size).collect();
    DataFrame::new(
        rows.len(),
        vec![
            text("time", &|row| row.time.clone()),
            text("lesson", &|row| row.lesson.clone()),
            text("stored", &|row| row.experiment.clone()),
            // `pipeline over rows: filter` and `pipeline over rows, polars: filter` are the same work.
            text("experiment", &|row| row.experiment.rsplit(": ").next().unwrap_or_default().to_string()),
            text("backend", &|row| row.backend.name().to_string()),
            text("side", &|row| side(row.backend).to_string()),
            text("machine", &|row| row.machine.clone()),
            text("dtype", &|row| row.dtype.clone()),
            text("metric", &|row| row.metric.clone()),
            text("unit", &|row| row.unit.clone()),
            Column::new("size".into(), size),
            Column::new("speed".into(), speed),
        ],
    )
}

fn side(backend: Backend) -> &'static str {
    match backend {
        Backend::Cpu | Backend::CpuOneCore => "cpu",
        Backend::Cuda | Backend::Metal => "gpu",
        Backend::Simulator | Backend::Model | Backend::Derived => "other",
    }
}

/// The machines of a side, each once.
fn machines(rows: &[Measurement], of: &str) -> Vec<String> {
    let names = rows.iter().filter(|row| side(row.backend) == of).map(|row| row.machine.clone());
    names.collect::<std::collections::BTreeSet<String>>().into_iter().collect()
}

fn is_time(metric: &str) -> bool {
    matches!(metric, "time" | "latency")
}

fn speed(row: &Measurement) -> f64 {
    match row.summary.median {
        value if value <= 0.0 => 0.0,
        value if is_time(&row.metric) => 1.0 / value,
        value if row.unit.ends_with("/s") && !row.metric.ends_with("peak") => value,
        _ => 0.0,
    }
}

/// Of each measurement on each machine, the newest.
fn newest(table: &DataFrame) -> PolarsResult<DataFrame> {
    let key = ["lesson", "stored", "experiment", "backend", "side", "machine", "dtype", "metric", "unit", "size"];
    // Times of RFC 3339 in UTC sort as text.
    let sorted = table.sort(["time"], SortMultipleOptions::default().with_maintain_order(true))?;
    let groups = sorted.group_by_stable(key)?.select(["speed"]);
    #[expect(deprecated, reason = "the newer way is part of polars' `lazy`, which doubles the crates to build")]
    let mut newest = groups.last()?;
    newest.rename("speed_last", "speed".into())?;
    Ok(newest)
}

/// The fastest of a side, by experiment and size.
fn fastest(speeds: &DataFrame, side: &str) -> PolarsResult<DataFrame> {
    let of_side = speeds.filter(&speeds.column("side")?.str()?.equal(side))?;
    let groups = of_side.group_by_stable(KEY)?.select(["speed"]);
    #[expect(deprecated, reason = "the newer way is part of polars' `lazy`, which doubles the crates to build")]
    let mut fastest = groups.max()?;
    fastest.rename("speed_max", side.into())?;
    Ok(fastest)
}

fn lessons(table: &DataFrame) -> PolarsResult<Vec<LessonRows>> {
    let sorted = table.sort(["lesson", "time"], SortMultipleOptions::default())?;
    let (lesson, side, time) = (sorted.column("lesson")?.str()?, sorted.column("side")?.str()?, sorted.column("time")?);
    let mut lessons: Vec<LessonRows> = Vec::new();
    for ((lesson, side), time) in lesson.iter().zip(side.iter()).zip(time.str()?.iter()) {
        let (lesson, time) = (lesson.unwrap_or_default(), time.unwrap_or_default().to_string());
        if lessons.last().is_none_or(|last| last.lesson != lesson) {
            let lesson = lesson.to_string();
            lessons.push(LessonRows { lesson, cpu: 0, gpu: 0, other: 0, newest: String::new() });
        }
        let last = lessons.last_mut().expect("pushed above");
        match side {
            Some("cpu") => last.cpu += 1,
            Some("gpu") => last.gpu += 1,
            _ => last.other += 1,
        }
        last.newest = time;
    }
    Ok(lessons)
}

/// Sizes of one experiment follow each other in `both`.
fn pairs(both: &DataFrame) -> PolarsResult<Vec<Pair>> {
    let texts = ["lesson", "experiment", "dtype", "metric", "unit"].map(|name| both.column(name).and_then(Column::str));
    let [lesson, experiment, dtype, metric, unit] = texts;
    let columns = [lesson?, experiment?, dtype?, metric?, unit?];
    let (size, cpu, gpu) = (both.column("size")?.u64()?, both.column("cpu")?.f64()?, both.column("gpu")?.f64()?);
    let mut pairs: Vec<Pair> = Vec::new();
    for row in 0..both.height() {
        let text = |k: usize| columns[k].get(row).unwrap_or_default().to_string();
        let [cpu, gpu] = [cpu, gpu].map(|speed| speed.get(row).unwrap_or(f64::NAN));
        let value = |speed: f64| if is_time(&text(3)) { 1.0 / speed } else { speed };
        let size = size.get(row).unwrap_or(0);
        let point = Point { size, cpu: value(cpu), gpu: value(gpu), speedup: gpu / cpu };
        let same = |pair: &Pair| {
            [&pair.lesson, &pair.experiment, &pair.dtype, &pair.metric, &pair.unit]
                .into_iter()
                .eq(&[0, 1, 2, 3, 4].map(text))
        };
        match pairs.last_mut().filter(|pair| same(pair)) {
            Some(pair) => pair.points.push(point),
            None => {
                let [lesson, experiment, dtype, metric, unit] = [0, 1, 2, 3, 4].map(text);
                pairs.push(Pair { lesson, experiment, dtype, metric, unit, points: vec![point] });
            }
        }
    }
    Ok(pairs)
}
