//! Traces as lanes, as parts, as a table.

use super::*;

pub(crate) fn sample() -> Trace {
    let kernel = Activity {
        kind: ActivityKind::Kernel,
        name: "reduce".to_string(),
        start_ns: 4_000,
        end_ns: 10_000,
        stream: 7,
        bytes: 0,
        grid: [512, 2, 1],
        block: [256, 1, 1],
        registers: 32,
        shared_bytes: 1024,
    };
    let copy = Activity {
        kind: ActivityKind::CopyToDevice,
        name: "copy to device".to_string(),
        start_ns: 0,
        end_ns: 2_000,
        stream: 13,
        bytes: 1 << 20,
        grid: [0; 3],
        block: [0; 3],
        ..kernel.clone()
    };
    let range = NamedRange { name: "a \"sum\"".to_string(), start_ns: 500, end_ns: 12_000 };
    Trace { gpu: "X".to_string(), activities: vec![copy, kernel], ranges: vec![range], total_ns: 16_000, lost: 0 }
}

#[test]
fn lanes_are_the_host_and_the_streams() {
    let spans = sample().spans();
    let lanes: Vec<&str> = spans.iter().map(|span| span.lane.as_str()).collect();
    assert_eq!(lanes, ["host", "stream 13", "default stream"]);
    assert_eq!((spans[2].start_ms, spans[2].end_ms), (0.004, 0.01));
    let mut nested = sample();
    nested.ranges.push(NamedRange { name: "inner".to_string(), start_ns: 600, end_ns: 700 });
    assert_eq!(nested.spans()[1].lane, "host, level 2");
}

#[test]
fn busy_counts_overlapping_work_once() {
    let mut trace = sample();
    assert_eq!(trace.busy(), 0.5);
    trace.activities[1].start_ns = 1_000;
    assert_eq!(trace.busy(), 10.0 / 16.0);
    trace.activities.clear();
    assert_eq!(trace.busy(), 0.0);
}

#[test]
fn a_part_of_a_trace_begins_at_its_range() {
    let part = sample().within("a \"sum\"");
    assert_eq!((part.activities.len(), part.activities[0].start_ns, part.total_ns), (1, 3_500, 11_500));
    assert_eq!((part.ranges[0].start_ns, part.ranges[0].end_ns), (0, 11_500));
    let none = sample().within("no such range");
    assert_eq!((none.activities.len(), none.total_ns, none.busy()), (0, 0, 0.0));
}

#[test]
fn the_table_names_launches_and_rates() {
    let text = sample().to_string();
    assert!(text.contains("1024 blocks of 256 threads, 32 registers") && text.contains("524 GB/s"), "{text}");
    let mut long = sample();
    long.activities = vec![long.activities[0].clone(); SHOWN + 2];
    long.lost = 3;
    let text = long.to_string();
    assert!(text.contains("… and 2 more") && text.contains("3 records were lost"), "{text}");
}

#[test]
fn every_bar_has_a_track_with_a_name() {
    let file = of_trace(&sample());
    let events = file["traceEvents"].as_array().unwrap();
    let names: Vec<&str> = events
        .iter()
        .filter(|event| event["name"] == "thread_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["host", "stream 13", "default stream"]);
    let kernel = events.iter().find(|event| event["name"] == "reduce").unwrap();
    assert_eq!((kernel["ts"].as_f64(), kernel["dur"].as_f64()), (Some(4.0), Some(6.0)));
    assert_eq!(kernel["args"]["grid"], json!([512, 2, 1]));
    assert_eq!(kernel["ph"], "X");
}

#[test]
fn files_are_json_and_a_path_that_cannot_be_written_is_named() {
    let folder = std::env::temp_dir().join(format!("gpulab-trace-{}", std::process::id()));
    let path = folder.join("a/trace.json");
    save_spans(&sample().spans(), &path).unwrap();
    let read: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    assert_eq!(read["traceEvents"].as_array().unwrap().len(), 1 + 2 * 3 + 3);
    let text = sample().save(path.join("b.json")).unwrap_err().to_string();
    assert!(text.contains("trace.json/b.json") && text.contains("\nnext: "), "{text}");
    std::fs::remove_dir_all(folder).unwrap();
}
