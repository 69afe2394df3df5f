//! What shows a ladder: sources and their differences, bars and rooflines of the recorded figures.

use super::Album;
use gpulab::gpu::KernelResources;
use gpulab::prelude::*;
use gpulab_kernels::*;

pub(super) fn all(album: &mut Album) -> Result<()> {
    code(album)?;
    tables(album)?;
    charts(album)
}

fn code(album: &mut Album) -> Result<()> {
    for (name, topic, rung) in
        [("diff-small", "reduction", "03"), ("diff-constants", "reduction", "07"), ("diff-large", "matmul", "04")]
    {
        let it = Ladder::of(topic)?.diff(rung)?;
        album.page(name, &it.html());
        println!("{it}");
    }
    let it = Ladder::of("matmul")?.source("02")?;
    album.page("listing", &it.html());
    println!("{it}");
    Ok(())
}

fn tables(album: &mut Album) -> Result<()> {
    for (topic, size) in [("reduction", Size::One(100_000)), ("matmul", Size::from((256, 256, 256)))] {
        let ladder = Ladder::of(topic)?;
        album.page(&format!("ladder-table-{topic}"), &ladder.html());
        let it = ladder.counters(size)?;
        album.page(&format!("counters-{topic}"), &it.html());
        println!("{ladder}\n{it}");
    }
    Ok(())
}

/// A run as it stands in the table of the ladders: the rungs and one peer. The table has no times of its own.
fn recorded(topic: &str, size: Size, peer: &str, bytes: f64, operations: f64) -> Result<LadderRun> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../results/h200/ladders.csv");
    let mut file = csv::Reader::from_path(path).expect("the ladders' table");
    let heads = file.headers().expect("a heading").clone();
    let row = |name: &str, metric: &str, unit: &str, summary: Summary| {
        let mut row = Measurement::new(name, Backend::Cuda, 0, metric, unit, summary);
        (row.machine, row.recorded) = ("NVIDIA H200".to_string(), true);
        row
    };
    let once = |value: f64| Summary::of(&[value]);
    let mut rows: Vec<Measurement> = [("bytes", bytes), ("operations", operations), ("f32 peak", 66.9)]
        .map(|(what, value)| row("a call", what, "", once(value)))
        .to_vec();
    let mut theirs = None;
    for line in file.records() {
        let line = line.expect("a row");
        let text = |name: &str| &line[heads.iter().position(|head| head == name).expect("a column")];
        let number = |name: &str| text(name).parse::<f64>().expect("a number");
        if (text("topic"), text("size"), text("peer")) != (topic, &size.name(), peer) {
            continue;
        }
        let rate = Summary { median: number("value"), p10: number("p10"), p90: number("p90"), samples: 31 };
        let work = if text("unit") == "GB/s" { bytes / 1e6 } else { operations / 1e9 };
        let (rung, unit) = (text("rung"), text("unit"));
        rows.push(row(rung, "rate", unit, rate).dtype(text("dtype")));
        rows.push(row(rung, "time", "ms", rate.map(|rate| work / rate)));
        rows.push(row(rung, &format!("against {peer}"), "ratio", once(number("ratio"))));
        theirs = Some(row(peer, "rate", unit, once(number("peer_value"))));
    }
    rows.extend(theirs);
    rows[0].dtype = rows[3..].first().map_or(String::new(), |row| row.dtype.clone());
    Ok(LadderRun::from_rows(Ladder::of(topic)?, size, &rows))
}

fn charts(album: &mut Album) -> Result<()> {
    let n = (1 << 28) as f64;
    let it = recorded("reduction", Size::One(1 << 28), "device copy", 4.0 * n, n)?;
    album.keep("ladder-reduction", &it.bars().prediction(60.0).draw())?;
    album.keep("roofline-reduction", &it.roofline().draw())?;
    album.page("run-reduction", &it.html());
    println!("{it}");
    let counted = Ladder::of("reduction")?.counters(100_000)?;
    album.keep("roofline-asked", &it.roofline_asked(&counted).draw())?;
    let live = LadderRun { recorded_on: String::new(), notes: vec!["left out: one rung".to_string()], ..it };
    album.keep("ladder-live", &live.bars().draw())?;
    album.keep("roofline-live", &live.roofline().draw())?;

    let side = 8192.0_f64;
    let size = Size::Three(8192, 8192, 8192);
    let it = recorded("matmul_bf16", size, "cuBLAS", 6.0 * side * side, 2.0 * side.powi(3))?;
    album.keep("ladder-matmul_bf16", &it.bars().prediction(85.0).draw())?;
    album.keep("roofline-matmul_bf16", &it.roofline().compute_roof("f32 lanes", 66.9).draw())?;
    album.page("run-matmul_bf16", &it.html());
    resources(album)
}

/// Made up: this machine has no driver to ask.
fn resources(album: &mut Album) -> Result<()> {
    let plain = KernelResources {
        registers: 16,
        threads: 256,
        blocks: 8,
        max_threads_per_multiprocessor: 2048,
        max_blocks_per_multiprocessor: 32,
        ..Default::default()
    };
    let wide = KernelResources {
        registers: 255,
        dynamic_shared_bytes: 98_304,
        local_bytes: 48,
        blocks: 1,
        blocks_by_shared: 2,
        ..plain
    };
    let few = KernelResources { registers: 90, dynamic_shared_bytes: 98_304, blocks: 2, blocks_by_shared: 2, ..plain };
    let it = Resources {
        rungs: vec![("01_plain".into(), plain), ("02_wide".into(), wide), ("03_few".into(), few)],
        left_out: vec![("04_new".into(), "it needs a newer GPU".into())],
        source: "made up".into(),
    };
    album.page("resources", &it.html());
    println!("{it}");
    Ok(())
}
