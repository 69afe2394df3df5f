//! The counters against the hardware's own: Nsight Compute counted the same launches of the same PTX on an H200.
//!
//! `python3 env/record_counters.py` records them anew.

mod common;

use common::{clean, module, upload};
use std::collections::BTreeMap;
use warpsim::{Arg, Counters, Device, Launch};

/// The rows of a table in `tests/hardware`, cells by column name.
fn table(name: &str) -> Vec<BTreeMap<String, String>> {
    let path = format!("{}/tests/hardware/{name}.csv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the table is there");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().expect("a header").split(';').collect();
    lines.map(|line| columns.iter().map(|c| c.to_string()).zip(line.split(';').map(str::to_string)).collect()).collect()
}

fn shape(text: &str) -> [u32; 3] {
    let sides: Vec<u32> = text.split(',').map(|side| side.parse().expect("a number")).collect();
    sides.try_into().expect("three sides")
}

fn simulate(row: &BTreeMap<String, String>) -> Counters {
    let module = module(&row["module"]);
    let mut device = Device::new();
    let arguments: Vec<Arg> = row["arguments"]
        .split_whitespace()
        .map(|argument| {
            let parts: Vec<&str> = argument.split(':').collect();
            let value = |at: usize| parts[at].parse::<i64>().expect("a number");
            match parts[0] {
                "f" => Arg::Pointer(upload(&mut device, &vec![1f32; value(1) as usize])),
                "g" => {
                    let host: Vec<i32> = (0..value(1)).map(|i| ((7919 * i + 13) % value(2)) as i32).collect();
                    Arg::Pointer(upload(&mut device, &host))
                }
                _ => Arg::I32(value(1) as i32),
            }
        })
        .collect();
    let shared_bytes = row["shared bytes"].parse().expect("a number");
    let launch = Launch { grid: shape(&row["grid"]), block: shape(&row["block"]), shared_bytes };
    clean(&mut device, &module, &row["kernel"], launch, &arguments).counters
}

/// `shared_load_wavefronts: why` exempts one counter of a scenario; several are separated by `|`.
fn exempt<'a>(row: &'a BTreeMap<String, String>, counter: &str) -> Option<&'a str> {
    row["not equal"].split('|').find_map(|entry| {
        let (name, why) = entry.split_once(':')?;
        (name.trim() == counter).then_some(why.trim())
    })
}

#[test]
fn counters_equal_the_hardwares() {
    let (scenarios, recorded) = (table("scenarios"), table("h200"));
    assert_eq!(scenarios.len(), recorded.len(), "record anew: python3 env/record_counters.py");
    let mut wrong = Vec::new();
    for (row, hardware) in scenarios.iter().zip(&recorded) {
        assert_eq!(row["name"], hardware["name"], "record anew: python3 env/record_counters.py");
        let counters = simulate(row);
        for (counter, ours) in counters.rows() {
            let Some(theirs) = hardware.get(counter) else { continue };
            let theirs: u64 = theirs.parse().expect("a number");
            match exempt(row, counter) {
                // An exemption that is not needed any more hides the next mistake.
                Some(_) if ours == theirs => wrong.push(format!("{}: {counter} is equal, and exempted", row["name"])),
                Some(why) => assert!(!why.is_empty(), "{}: say why {counter} differs", row["name"]),
                None if ours != theirs => wrong.push(format!("{}: {counter} {ours}, hardware {theirs}", row["name"])),
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
