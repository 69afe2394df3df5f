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
