//! The counters against the hardware's own: Nsight Compute counted the same launches of the same PTX on an H200.
//!
//! `python3 -m env.baselines.record_counters` records them anew. `cargo test -p warpsim --test hardware -- --nocapture` shows the
//! counts of the PTX, which ptxas changes on the way, beside those of the machine code.

#[path = "common/course.rs"]
mod course;

mod common;

use common::upload;
use course::COURSE;
use std::collections::BTreeMap;
use warpsim::{Arg, Counters, Device, Launch, PtxModule};

/// Counts of the PTX, which the machine code only resembles: shown beside each other (`--nocapture`), not asked equal.
const NEAR: [&str; 4] = ["warp_instructions", "thread_instructions", "branches", "divergent_branches"];

type Row = BTreeMap<String, String>;

/// The rows of a table in `tests/hardware`, cells by column name.
fn table(name: &str) -> Vec<Row> {
    let path = format!("{}/tests/hardware/{name}.csv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().expect("a header").split(';').collect();
    lines.map(|line| columns.iter().map(|c| c.to_string()).zip(line.split(';').map(str::to_string)).collect()).collect()
}

/// A fixture, or `course/…`: a kernel of the course.
fn module(name: &str) -> PtxModule {
    match COURSE.get(name) {
        Some(ptx) => PtxModule::load(ptx).unwrap_or_else(|e| panic!("{name}: {e}")),
        None => common::module(name),
    }
}

fn shape(text: &str) -> [u32; 3] {
    let sides: Vec<u32> = text.split(',').map(|side| side.parse().expect("a number")).collect();
    sides.try_into().expect("three sides")
}

fn simulate(module: &PtxModule, row: &Row, checks: bool) -> Counters {
    let mut device = Device::new();
    device.set_checks(checks);
    let arguments: Vec<Arg> = row["arguments"]
        .split_whitespace()
        .map(|argument| {
            let (letter, rest) = argument.split_once(':').expect("a letter, a colon and numbers");
            let parts: Vec<&str> = rest.split(':').collect();
            let value = |at: usize| parts[at].parse::<i64>().expect("a number");
            match letter {
                "f" => Arg::Pointer(upload(&mut device, &vec![1f32; value(0) as usize])),
                "g" => {
                    let host: Vec<i32> = (0..value(0)).map(|i| ((7919 * i + 13) % value(1)) as i32).collect();
                    Arg::Pointer(upload(&mut device, &host))
                }
                "t" => {
                    let host: Vec<i32> = rest.split(',').map(|number| number.parse().expect("a number")).collect();
                    Arg::Pointer(upload(&mut device, &host))
                }
                "x" => Arg::F32(rest.parse().expect("a number")),
                _ => Arg::I32(value(0) as i32),
            }
        })
        .collect();
    let shared_bytes = row["shared bytes"].parse().expect("a number");
    let launch = Launch { grid: shape(&row["grid"]), block: shape(&row["block"]), shared_bytes };
    let report =
        device.launch(module, &row["kernel"], launch, &arguments).unwrap_or_else(|e| panic!("{}: {e}", row["name"]));
    report.counters
}

/// Why a counter may differ from the hardware's.
struct Exemption<'a> {
    why: &'a str,
    /// The hardware's own count varies from run to run: it may be equal, and lies near.
    varies: bool,
}

/// `shared_load_wavefronts: why` exempts one counter of a scenario, `~shared_load_wavefronts: why` one that varies;
/// several are separated by `|`.
fn exempt<'a>(row: &'a Row, counter: &str) -> Option<Exemption<'a>> {
    row["not equal"].split('|').find_map(|entry| {
        let (name, why) = entry.split_once(':')?;
        let (name, why) = (name.trim(), why.trim());
        let varies = name.strip_prefix('~');
        (varies.unwrap_or(name) == counter).then_some(Exemption { why, varies: varies.is_some() })
    })
}

/// How far a count that varies may lie from ours: a thirtieth of it, or the few that a small launch loses.
fn near(ours: u64, theirs: u64) -> bool {
    ours.abs_diff(theirs) <= (theirs / 30).max(100)
}

/// Runs every launch of a table with and without the checks, and compares it with the record.
fn compare(name: &str) {
    let (scenarios, recorded) = (table(name), table(&format!("h200/{name}")));
    assert_eq!(scenarios.len(), recorded.len(), "record anew: python3 -m env.baselines.record_counters");
    let mut modules = BTreeMap::new();
    let (mut wrong, mut equal) = (Vec::new(), 0);
    for (row, hardware) in scenarios.iter().zip(&recorded) {
        assert_eq!(row["name"], hardware["name"], "record anew: python3 -m env.baselines.record_counters");
        let module = modules.entry(&row["module"]).or_insert_with_key(|name| module(name));
        let counters = simulate(module, row, false);
        assert_eq!(counters, simulate(module, row, true), "{}: the checks change a counter", row["name"]);
        for (counter, ours) in counters.rows() {
            let Some(theirs) = hardware.get(counter) else { continue };
            let theirs: u64 = theirs.parse().expect("a number");
            if NEAR.contains(&counter) {
                println!("{}: {counter} {ours} of the PTX, {theirs} of the machine code", row["name"]);
                // ptxas unrolls, joins and expands, yet a launch stays of a size.
                let like = ours <= 3 * theirs && theirs <= 3 * ours;
                assert!(like || !counter.contains("instructions"), "{}: {counter}", row["name"]);
                continue;
            }
            match exempt(row, counter) {
                Some(Exemption { varies: true, .. }) if !near(ours, theirs) => {
                    wrong.push(format!("{}: {counter} {ours}, hardware {theirs}, which is not near", row["name"]));
                }
                Some(Exemption { varies: true, .. }) => {}
                // An exemption that is not needed any more hides the next mistake.
                Some(_) if ours == theirs => wrong.push(format!("{}: {counter} is equal, and exempted", row["name"])),
                Some(Exemption { why, .. }) => assert!(!why.is_empty(), "{}: say why {counter} differs", row["name"]),
                None if ours != theirs => wrong.push(format!("{}: {counter} {ours}, hardware {theirs}", row["name"])),
                None => equal += 1,
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    println!("{name}: {} launches, {equal} figures equal", scenarios.len());
}

#[test]
fn kernels_count_as_the_hardware_does() {
    compare("scenarios");
}

#[test]
fn accesses_to_shared_memory_count_as_on_the_hardware() {
    compare("banks");
}

#[test]
fn accesses_to_global_memory_count_as_on_the_hardware() {
    compare("sectors");
}

#[test]
fn atomics_count_as_on_the_hardware() {
    compare("atomics");
}

#[test]
fn tiles_and_local_memory_count_as_on_the_hardware() {
    compare("tiles");
}

#[test]
fn the_ladders_count_as_the_hardware_does() {
    compare("ladders");
}

/// Rungs written after the last recording on a GPU. Record them with the next one: the list is
/// to become shorter.
const NOT_RECORDED_YET: [&str; 25] = [
    "course/flash_backward/01_row_a_warp",
    "course/flash_backward/02_tensor_cores",
    "course/flash_backward/03_one_pass",
    "course/flash_backward/04_async_copies",
    "course/quantized_gemv/01_thread_a_row",
    "course/quantized_gemv/02_warp_a_row",
    "course/quantized_gemv/03_several_rows",
    "course/quantized_gemv/04_tensor_cores",
    "course/quantized_gemv/05_whole_numbers",
    "course/quantized_gemv/06_early_start",
    "course/quantized_matmul/01_fragments",
    "course/quantized_matmul/02_ring",
    "course/quantized_matmul/03_split_k",
    "course/quantized_matmul/06_registers",
    "course/block_sparse/01_tensor_cores",
    "course/block_sparse/02_async_copies",
    "course/spmm/01_warp_a_row",
    "course/spmm/02_columns_in_registers",
    "course/spmm/03_vector_loads",
    "course/spmv/01_thread_a_row",
    "course/spmv/02_warp_a_row",
    "course/spmv/03_merge_path",
    "course/spmv/04_split_rows",
    "course/two_four/01_expanded",
    "course/two_four/02_sparse_tensor_cores",
];

#[test]
fn every_rung_of_the_course_is_held_against_the_hardware() {
    // Rungs are numbered. Operators (`table/keep`) are many and small, made of what the tables count already.
    let numbered =
        |name: &str| name.rsplit('/').next().is_some_and(|name| name.starts_with(|c: char| c.is_ascii_digit()));
    let kernels: Vec<_> = COURSE.iter().filter(|(name, _)| numbered(name)).collect();
    assert!(!kernels.is_empty());
    let rows = ["scenarios", "ladders"].into_iter().flat_map(table);
    let listed: Vec<String> = rows.map(|row| row["module"].clone()).collect();
    for (kernel, text) in kernels {
        let waits = NOT_RECORDED_YET.contains(&kernel.as_str());
        assert!(!(waits && listed.contains(kernel)), "{kernel} is recorded\nnext: take it off NOT_RECORDED_YET");
        // The tables' launches know no tensor maps: those rungs are compared with the hardware in crates/kernels
        // (tests/hopper_counters.rs).
        let unrecorded = waits || text.contains("wgmma.") || text.contains("cp.async.bulk");
        if unrecorded {
            PtxModule::load(text).unwrap_or_else(|e| panic!("{kernel}: {e}"));
        }
        assert!(
            unrecorded || listed.contains(kernel),
            "{kernel}\nnext: add a launch of it to ladders.csv, and record it"
        );
    }
}
