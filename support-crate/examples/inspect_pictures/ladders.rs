//! What shows a ladder: sources and their differences, bars and rooflines of the recorded figures.

use super::Album;
use gpulab::plot::Reached;
use gpulab::prelude::*;

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

/// The rungs of a topic and one of its peers, from the table of the ladders.
fn recorded(topic: &str, size: &str, peer: &str) -> Vec<Measurement> {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../results/h200/ladders.csv");
    let mut file = csv::Reader::from_path(path).expect("the ladders' table");
    let heads = file.headers().expect("a heading").clone();
    let mut rows = Vec::new();
    let mut peers = Vec::new();
    for line in file.records() {
        let line = line.expect("a row");
        let text = |name: &str| &line[heads.iter().position(|head| head == name).expect("a column")];
        let number = |name: &str| text(name).parse::<f64>().expect("a number");
        if (text("topic"), text("size"), text("peer")) != (topic, size, peer) {
            continue;
        }
        let row = |name: &str, summary| {
            let mut row = Measurement::new(name, Backend::Cuda, 0, "rate", text("unit"), summary);
            (row.machine, row.recorded, row.time) = ("NVIDIA H200".to_string(), true, "2026-11-21".to_string());
            row
        };
        let summary = Summary { median: number("value"), p10: number("p10"), p90: number("p90"), samples: 31 };
        rows.push(row(text("rung"), summary));
        peers = vec![row(peer, Summary::of(&[number("peer_value")]))];
    }
    rows.extend(peers);
    rows
}

fn points(rows: &[Measurement], flop_per_byte: f64, tflop_of: impl Fn(f64) -> f64) -> Vec<Reached> {
    let point = |row: &Measurement| Reached {
        name: row.experiment.clone(),
        flop_per_byte,
        tflop_per_s: tflop_of(row.summary.median),
        recorded: row.recorded,
    };
    rows.iter().map(point).collect()
}

fn charts(album: &mut Album) -> Result<()> {
    let rows = recorded("reduction", "268435456", "device copy");
    let bars = plot::ladder(&rows).title("Sum of 2²⁸ numbers").peer("device copy").ceiling("HBM3e, data sheet", 4800.0);
    album.keep("ladder-reduction", &bars.clone().prediction(60.0).draw())?;
    album.keep("ladder-live", &plot::ladder(&live(&rows)).title("Live, no peer").note("Not run: one rung.").draw())?;
    let roof = plot::roofline(&points(&rows, 0.25, |rate| rate * 0.25 / 1000.0)).title("Sum of 2²⁸ numbers");
    let roof = roof.memory_roof("HBM3e, data sheet", 4800.0).memory_roof("device copy, measured", 4260.9);
    let roof = roof.compute_roof("fp32, 132 × 128 × 2 × 1.98 GHz", 66.9);
    album.keep("roofline-reduction", &roof.note("All rungs read 4 bytes for each addition.").draw())?;

    let rows = recorded("matmul_bf16", "8192x8192x8192", "cuBLAS");
    let bars =
        plot::ladder(&rows).title("bf16 matmul, 8192³").peer("cuBLAS").ceiling("tensor cores, data sheet", 989.4);
    album.keep("ladder-matmul_bf16", &bars.prediction(85.0).draw())?;
    let roof = plot::roofline(&points(&rows, 8192.0 / 3.0, |rate| rate)).title("bf16 matmul, 8192³");
    let roof = roof.memory_roof("HBM3e, data sheet", 4800.0).compute_roof("tensor cores, data sheet", 989.4);
    album.keep("roofline-matmul_bf16", &roof.compute_roof("fp32", 66.9).draw())
}

/// The same figures as if they had been measured here.
fn live(rows: &[Measurement]) -> Vec<Measurement> {
    let mut rows = rows.to_vec();
    rows.iter_mut().for_each(|row| row.recorded = false);
    rows
}
