//! Output of `ncu --csv` becomes figures a rung.

use super::*;

/// Two rungs, of two launches and of one, in the form that ncu 2025.3.1 printed on an H200 (columns cut).
fn printed() -> String {
    let mut text = "==PROF== Connected to process 1\ngpulab: measured reduction/02_tree, 2 launches\n\
                    gpulab: measured vector_add/01_one_thread_each, 1 launches\n==PROF== Disconnected from process 1\n\
                    \"ID\",\"Process ID\",\"Kernel Name\",\"Metric Name\",\"Metric Unit\",\"Metric Value\"\n"
        .to_string();
    for (id, time, dram, barrier) in [(0, "70,000", "30.5", "4.5"), (1, "5000", "1", "0.1"), (2, "9000", "92", "0")] {
        let figures = [
            ("gpu__time_duration.sum", time),
            ("dram__throughput.avg.pct_of_peak_sustained_elapsed", dram),
            ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "100"),
            ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "400"),
            ("smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio", barrier),
            ("smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio", "2"),
            ("smsp__average_warps_issue_stalled_selected_per_issue_active.ratio", "1"),
        ];
        for (name, value) in figures {
            text += &format!("\"{id}\",\"1\",\"reduce\",\"{name}\",\"\",\"{value}\"\n");
        }
    }
    text
}

#[test]
fn launches_are_put_together_rung_by_rung() {
    let found = parse_ncu(&printed()).unwrap();
    let rungs: Vec<(&str, usize)> = found.iter().map(|one| (one.rung.as_str(), one.launches)).collect();
    assert_eq!(rungs, [("reduction/02_tree", 2), ("vector_add/01_one_thread_each", 1)]);
    // Times and counts are sums, the rest is the longest launch's.
    assert_eq!((found[0].get("time"), found[0].get("device memory")), (75.0, 30.5));
    assert_eq!((found[0].get("load requests"), found[0].sectors_per_load()), (200.0, 4.0));
    assert!(found[0].get("registers").is_nan());
    assert!(found[0].to_string().contains("gpu__time_duration.sum"));
    let table = Counted::table(&found, &["time", "device memory"]);
    assert!(
        table.contains("time (µs)  device memory (%)\nreduction/02_tree") && table.contains("75.0               30.5"),
        "{table}"
    );
    let bars = Counted::bars(&found, "device memory");
    assert_eq!((bars.len(), bars[1].summary.median, bars[0].unit.as_str()), (2, 92.0, "%"));
}

#[test]
fn a_roofline_stands_on_counted_bytes_and_the_hardwares_percentage() {
    let text = printed().replace("gpulab: measured vector", "gpulab: fp32 peak 66.9 TFLOP/s\ngpulab: measured vector");
    let mut found = parse_ncu(&text).unwrap();
    assert_eq!(found[0].metrics["fp32 peak"], 66.9);
    found[1].metrics.insert("dram__bytes_read.sum".to_string(), 27e6);
    found[1].metrics.insert("dram__bytes_write.sum".to_string(), 9e6);
    // 36 MB in 9 µs at 92 %: 4.35 TB/s; 72 million operations are 2 per byte, and 8 TFLOP/s.
    let svg = Counted::roofline(&[(found[1].clone(), 72e6)]).draw().svg();
    assert!(svg.contains("4.35 TB/s") && svg.contains("66.9") && svg.contains("01_one_thread_each"), "{svg}");
}

#[test]
fn counts_that_do_not_agree_with_the_launches_are_refused() {
    let text = printed();
    assert_eq!(parse_ncu(&text.replace(", 2 launches", ", 3 launches")), None);
    assert_eq!(parse_ncu(&text.replace("measured vector_add", "met vector_add")), None);
    assert_eq!(parse_ncu("==ERROR== ERR_NVGPUCTRPERM\n"), None);
    assert_eq!(parse_ncu(""), None);
}

#[test]
fn stalls_come_longest_first() {
    let found = parse_ncu(&printed()).unwrap();
    let stalls = found[0].stalls();
    assert_eq!((stalls.first(), stalls.reasons.len()), ("barrier", 3));
    assert!(stalls.to_string().contains("    4.50   60 %  barrier"), "{stalls}");
    assert_eq!(found[1].stalls().first(), "long_scoreboard");
    assert_eq!(
        (stalls.rows()[0].experiment.as_str(), stalls.rows()[0].unit.as_str()),
        ("barrier", "cycles an instruction")
    );
}

#[test]
fn figures_survive_the_way_through_rows() {
    let found = parse_ncu(&printed()).unwrap();
    assert_eq!(Counted::from_rows(&Counted::to_rows(&found, 1 << 22)), found);
}

#[test]
fn the_command_asks_for_every_figure() {
    let shown = ncu_command(1024, &["reduction/02_tree"]);
    assert!(
        shown.contains("sum,dram__throughput.avg.pct_of_peak_sustained_elapsed,...") && !shown.contains("barrier"),
        "{shown}"
    );
    let text = typed(&command(1024.into(), &["reduction/02_tree"]));
    assert!(NCU_METRICS.iter().all(|metric| text.contains(metric.name)), "{text}");
    assert!(text.contains("stalled_barrier_per_issue") && text.ends_with("gpulab demo ladder 1024 reduction/02_tree"));
}

#[test]
fn without_the_program_the_error_says_where_it_comes_from() {
    if gpulab::places::program("ncu").is_none() {
        let text = ncu(1024, &["reduction/02_tree"]).unwrap_err().to_string();
        assert!(text.contains("`ncu`") && text.contains("Nsight Compute"), "{text}");
    }
}
