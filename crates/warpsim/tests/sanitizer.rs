//! Planted mistakes and right kernels, one table for both: the simulator must find exactly what was planted, and what
//! NVIDIA's compute-sanitizer said about the same launches on an H200 must agree, or the table says why it does not.
//!
//! `python3 -m env.baselines.record_findings` records its words anew.

mod common;

use common::upload;
use std::collections::BTreeMap;
use warpsim::{Arg, Device, Finding, Launch, PtxModule, Report};

type Row = BTreeMap<String, String>;

/// The rows of a table in `tests/findings`, cells by column name.
fn table(name: &str) -> Vec<Row> {
    let path = format!("{}/tests/findings/{name}.csv", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("the table is there");
    let mut lines = text.lines().filter(|line| !line.starts_with('#'));
    let columns: Vec<&str> = lines.next().expect("a header").split(';').collect();
    lines.map(|line| columns.iter().map(|c| c.to_string()).zip(line.split(';').map(str::to_string)).collect()).collect()
}

fn shape(text: &str) -> [u32; 3] {
    let sides: Vec<u32> = text.split(',').map(|side| side.parse().expect("a number")).collect();
    sides.try_into().expect("three sides")
}

/// A buffer of 4-byte words, the first of them with these values.
fn buffer(device: &mut Device, words: i64, values: &[i32]) -> Arg {
    if words == values.len() as i64 {
        return Arg::Pointer(upload(device, values));
    }
    let address = device.alloc(4 * words as usize).expect("memory");
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    device.write(address, &bytes).expect("inside");
    Arg::Pointer(address)
}

fn argument(device: &mut Device, text: &str) -> Arg {
    let parts: Vec<&str> = text.split(':').collect();
    let value = |at: usize| parts[at].parse::<i64>().expect("a number");
    let mut filled = |values: &[i32]| buffer(device, value(1), values);
    match parts[0] {
        "null" => Arg::Pointer(0),
        "i" => Arg::I32(value(1) as i32),
        "d" => Arg::F64(parts[1].parse().expect("a number")),
        "f" => filled(&vec![1f32.to_bits() as i32; value(1) as usize]),
        "z" => filled(&vec![0; value(1) as usize]),
        "u" => filled(&vec![1; value(2) as usize]),
        "g" => filled(&(0..value(1)).map(|i| ((7919 * i + 13) % value(2)) as i32).collect::<Vec<_>>()),
        other => panic!("an argument is f, g, z, u, i, d or null, and not {other}"),
    }
}

fn simulate(row: &Row, cores: usize) -> Report {
    let path = format!("{}/tests/findings/{}.ptx", env!("CARGO_MANIFEST_DIR"), row["module"]);
    let module = PtxModule::load(&std::fs::read_to_string(path).expect("the fixture is there")).expect("it loads");
    let mut device = Device::new();
    device.set_cores(cores);
    device.set_step_budget(100_000);
    let args: Vec<Arg> = row["arguments"].split_whitespace().map(|text| argument(&mut device, text)).collect();
    let shared_bytes = row["shared bytes"].parse().expect("a number");
    let launch = Launch { grid: shape(&row["grid"]), block: shape(&row["block"]), shared_bytes };
    device.launch(&module, &row["kernel"], launch, &args).expect("the call is right")
}

/// `kind@line` of a finding, for a race `kind@line+line`.
fn short(finding: &Finding) -> String {
    let line = finding.source.as_ref().map_or(0, |source| source.line);
    let other = finding.other.as_ref().map(|other| other.source.as_ref().map_or(0, |source| source.line));
    format!("{}@{line}{}", finding.kind.name(), other.map_or(String::new(), |line| format!("+{line}")))
}

#[test]
fn what_was_planted_is_found_and_nothing_else() {
    let scenarios = table("scenarios");
    let planted = scenarios.iter().filter(|row| !row["expected"].is_empty()).count();
    assert!(planted >= 20 && scenarios.len() - planted >= 15);
    let mut wrong = Vec::new();
    for row in &scenarios {
        let [one, four] = [1, 4].map(|cores| simulate(row, cores).findings);
        for finding in &one {
            assert!(finding.message.contains("; next: "), "{finding}");
            let file = finding.source.as_ref().map(|source| source.file.as_str());
            assert_eq!(file, Some(format!("{}.cu", row["module"]).as_str()), "{finding}");
        }
        let found: Vec<String> = one.iter().map(short).collect();
        if found.join(" ") != row["expected"] {
            let words: Vec<String> = one.iter().map(ToString::to_string).collect();
            let (name, planted) = (&row["name"], &row["expected"]);
            wrong.push(format!("{name}: {found:?}, planted {planted:?}\n  {}", words.join("\n  ")));
        }
        if one != four {
            wrong.push(format!("{}: other findings on four cores: {four:?}", row["name"]));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// `initcheck: why` exempts what one tool says of a scenario.
fn exempt<'a>(row: &'a Row, tool: &str) -> Option<&'a str> {
    let (name, why) = row["not equal"].split_once(": ")?;
    (name == tool && !why.is_empty()).then_some(why)
}

/// Whether a tool says what the simulator says: the same kinds, at the same lines. Its racecheck calls a race within a
/// warp a warning.
fn agrees(row: &Row, said: &[&Row]) -> bool {
    let expected: Vec<&str> = row["expected"].split_whitespace().collect();
    let found = said.iter().filter(|s| s["kind"] != "none");
    let kinds = found.clone().all(|s| expected.iter().any(|e| e.starts_with(s["kind"].trim_end_matches("_warning"))));
    let lines: Vec<&str> = found.flat_map(|s| s["lines"].split(' ')).collect();
    let ours = expected.iter().flat_map(|e| e.split_once('@').map_or("", |(_, at)| at).split('+'));
    kinds && ours.clone().all(|line| lines.contains(&line)) && lines.iter().all(|line| ours.clone().any(|o| o == *line))
}

#[test]
fn compute_sanitizer_says_the_same() {
    let (scenarios, recorded) = (table("scenarios"), table("h200"));
    let mut wrong = Vec::new();
    for row in &scenarios {
        let tools: Vec<&str> = match row["tool"].as_str() {
            "all" => vec!["memcheck", "racecheck", "initcheck", "synccheck"],
            "none" => {
                assert!(exempt(row, "none").is_some(), "{}: say why it is not launched", row["name"]);
                Vec::new()
            }
            tool => vec![tool],
        };
        for tool in tools {
            let said = recorded.iter().filter(|r| r["name"] == row["name"] && r["tool"] == tool);
            let said: Vec<&Row> = said.collect();
            assert!(
                !said.is_empty(),
                "{} under {tool}: record anew: python3 -m env.baselines.record_findings",
                row["name"]
            );
            match (agrees(row, &said), exempt(row, tool)) {
                (false, None) => {
                    wrong.push(format!("{} under {tool}: {said:?}, ours {:?}", row["name"], row["expected"]))
                }
                // An exemption that is not needed any more hides the next mistake.
                (true, Some(_)) => wrong.push(format!("{} under {tool}: equal, and exempted", row["name"])),
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Scenarios in which a tool names fewer threads or more, and what its log shows. Kind and line are the same in all.
const COUNTED_OTHERWISE: [(&str, &str); 3] = [
    (
        "swapped axes",
        "memcheck ends the launch, and names the second warp of each block alone; its log gives no reason",
    ),
    ("bytes for elements", "memcheck ends the launch, and names each thread once; here each goes on in its loop"),
    ("count onto nothing", "initcheck names one thread of each warp; here the first atomic's result counts as written"),
];

#[test]
fn memcheck_and_initcheck_count_the_same_threads() {
    let recorded = table("h200");
    let tools = ["memcheck", "initcheck"];
    for row in table("scenarios").iter().filter(|row| tools.contains(&row["tool"].as_str())) {
        let Some(said) = recorded.iter().find(|r| r["name"] == row["name"] && r["kind"] != "none") else { continue };
        let times: u64 = simulate(row, 2).findings.iter().map(|f| f.times).sum();
        let otherwise = COUNTED_OTHERWISE.iter().any(|(name, _)| *name == row["name"]);
        assert_eq!(times.to_string() != said["times"], otherwise, "{}: {times}, {} times", row["name"], said["times"]);
    }
}
