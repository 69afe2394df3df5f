//! The charts as a learner meets them: what they write, what they leave out, and that nothing makes them panic.

use super::*;
use crate::measurement::{Backend, Summary};

fn summary(median: f64) -> Summary {
    Summary { median, p10: median * 0.9, p90: median * 1.2, samples: 21 }
}

fn row(experiment: &str, backend: Backend, size: usize, ms: f64, machine: &str, recorded: bool) -> Measurement {
    let mut row = Measurement::time_ms(experiment, backend, size, summary(ms));
    (row.machine, row.recorded) = (machine.to_string(), recorded);
    row
}

/// A CPU curve t = n / 100 ms, measured here, and a GPU curve t = 1 ms, recorded: they cross at 100.
fn two() -> Vec<Measurement> {
    let cpu =
        [10, 1000].map(|n| row("work", Backend::Cpu, n, n as f64 / 100.0, "Intel(R) Xeon(R) CPU @ 2.70GHz", false));
    let gpu = [10, 1000].map(|n| row("work", Backend::Cuda, n, 1.0, "NVIDIA H200", true));
    [cpu, gpu].concat()
}

#[test]
fn curves_are_labelled_with_machine_and_source() {
    let svg = time_over_size(&two()).title("T").x_label("n").draw().svg();
    for text in
        ["work (Intel Xeon)", "work (NVIDIA H200, recorded)", "time (ms, log scale; lower is faster)", "n (log scale)"]
    {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

#[test]
fn the_crossing_is_written_or_its_absence() {
    let svg = time_over_size(&two()).crossover().prediction("your prediction", 256usize).draw().svg();
    assert!(
        svg.contains("crossing: 100") && svg.contains("your prediction: 256") && svg.contains("two machines"),
        "{svg}"
    );
    assert!((crossing(&two()).unwrap() - 100.0).abs() < 1e-9);
    let svg = time_over_size(&two()).sizes_in_bytes().crossover().draw().svg();
    assert!(svg.contains("crossing: 100 B"), "{svg}");
    let apart: Vec<Measurement> = two().into_iter().filter(|row| row.size == 10).collect();
    let svg = time_over_size(&apart).crossover().draw().svg();
    assert!(svg.contains("No crossing in this range: work (Intel Xeon) is faster throughout"), "{svg}");
    let svg = time_over_size(&two()[..2]).crossover().draw().svg();
    assert!(svg.contains("takes a CPU curve and a GPU curve"), "{svg}");
}

#[test]
fn sizes_may_have_a_fraction_and_values_no_unit() {
    let one = |size| Measurement::new("int", Backend::Cpu, size, "perplexity", "", summary(20.0));
    let svg = over_size(&[one(4250), one(8062)]).sizes_times(1e-3).x_label("bits").draw().svg();
    for text in ["perplexity (log scale)", "bits (log scale)", "4.25: 20.0", "8.062: 20.0"] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

#[test]
fn what_a_log_axis_cannot_hold_is_counted() {
    let mut rows = two();
    rows.push(row("work", Backend::Cpu, 0, 1.0, "", false));
    rows.push(row("work", Backend::Cpu, 5, f64::NAN, "", false));
    rows.push(row("work", Backend::Cpu, 5, -1.0, "", false));
    rows.push(Measurement::new("other", Backend::Cpu, 5, "time", "s", summary(1.0)));
    let svg = over_size(&rows).ceiling("top", f64::INFINITY).prediction("guess", 1usize << 50).draw().svg();
    assert!(svg.contains("Not drawn: 3 rows; a logarithmic axis"), "{svg}");
    assert!(svg.contains("1 row of another kind (time in s)"), "{svg}");
    assert!(svg.contains("Not drawn: top") && svg.contains("far outside the chart"), "{svg}");
    assert!(!svg.contains("NaN"), "{svg}");
}

#[test]
fn a_chart_of_nothing_says_what_to_do() {
    let texts = [
        time_over_size(&[]).crossover().ceiling("c", 1.0).draw().svg(),
        bars(&[]).log().prediction("p", 1.0).draw().svg(),
        memory_life(&[]).with_free().prediction("p", &[Some(1)]).draw().svg(),
        timeline(&[]).mark("m", 1.0).draw().svg(),
        bandwidth_over_size(&two()).draw().svg(),
        ladder(&[]).peer("p").prediction(5.0).draw().svg(),
        roofline(&[]).memory_roof("m", 1.0).draw().svg(),
        timeline(&[Span::new("host", "x", f64::NAN, 1.0), Span::new("host", "y", 2.0, 1.0)]).draw().svg(),
        bars(&[row("w", Backend::Cpu, 1, f64::NAN, "", false)]).draw().svg(),
    ];
    for svg in &texts {
        assert!(svg.contains("Nothing to draw") && svg.contains("next: "), "{svg}");
    }
    assert!(texts[4].contains("has the metric `bandwidth`") && texts[7].contains("2 spans"));
}

#[test]
fn bars_compare_with_the_slowest() {
    let svg = bars(&two()).log().prediction("your prediction", 2.0).draw().svg();
    assert!(svg.contains("10.0 ms, the slowest") && svg.contains("1.00 ms, 10.0× as fast"), "{svg}");
    assert!(svg.contains("your prediction: 2 ms") && svg.contains("work (NVIDIA H200, recorded), size 10"), "{svg}");
    let rate = |value: f64| Measurement::new("copy", Backend::Cuda, 1, "bandwidth", "GB/s", summary(value));
    let svg = bars(&[rate(50.5), rate(10.1)]).draw().svg();
    assert!(svg.contains("10.1 GB/s, the slowest") && svg.contains("50.5 GB/s, 5.00× as fast"), "{svg}");
    let size = |value: f64| Measurement::new("peak", Backend::Cuda, 1, "memory", "MiB", summary(value));
    assert!(bars(&[size(50.0), size(10.0)]).draw().svg().contains("10 MiB, 0.200× the first"));
    assert!(bars(&[size(0.0), size(0.0)]).draw().svg().contains("0 MiB"));
}

/// Two rungs and a peer, recorded.
fn rungs() -> Vec<Measurement> {
    let rate = |(name, value): (&str, f64)| {
        let mut row = Measurement::new(name, Backend::Cuda, 4096, "rate", "TFLOP/s", summary(value));
        (row.machine, row.recorded, row.time) = ("NVIDIA H200".into(), true, "2026-11-21T04:34:20Z".into());
        row
    };
    [("01_naive", 0.3), ("02_tiled", 30.0), ("cuBLAS", 60.0)].map(rate).to_vec()
}

#[test]
fn a_ladder_has_a_share_of_its_peer_and_says_where_it_was_recorded() {
    let chart = ladder(&rungs()).title("T").peer("cuBLAS").ceiling("fp32", 66.9).prediction(70.0).note("Left out: x.");
    let svg = chart.draw().svg();
    for text in [
        ">\n0.5 %\n<",
        ">\n50 %\n<",
        ">\n100 %\n<",
        "cuBLAS: 100 %",
        "fp32: 66.9 TFLOP/s",
        "your prediction: 70 %",
        "Recorded on NVIDIA H200, 2026-11-21.",
        "Left out: x.",
    ] {
        assert!(svg.contains(text), "{text}: {svg}");
    }
    let mut live = rungs();
    live.iter_mut().for_each(|row| row.recorded = false);
    let svg = ladder(&live).peer("CUB").prediction(70.0).draw().svg();
    assert!(svg.contains("Measured on NVIDIA H200") && svg.contains("70 %: there is no peer"), "{svg}");
    assert!(!svg.contains("of peer"), "{svg}");
    let svg = ladder(&two()).draw().svg();
    assert!(svg.contains("Nothing to draw") && svg.contains("next: "), "{svg}");
}

#[test]
fn a_roofline_names_every_point_once_and_no_name_covers_another() {
    let point = |n: usize| Reached {
        name: format!("{n:02}_rung"),
        flop_per_byte: 0.25,
        tflop_per_s: 1.0 + n as f64 * 0.01,
        recorded: n < 3,
    };
    let points: Vec<Reached> = (0..30).map(point).collect();
    let chart = roofline(&points).memory_roof("copy", 4200.0).compute_roof("fp32", 66.9).note("N.");
    let svg = chart.draw().svg();
    let heights: Vec<f64> = points.iter().map(|point| height_of(&svg, &point.name)).collect();
    for (at, height) in heights.iter().enumerate() {
        assert!(heights[..at].iter().all(|other| (height - other).abs() >= 160.0), "{at}: {heights:?}");
    }
    assert!(svg.contains("memory roof: copy, 4.2 TB/s") && svg.contains("compute roof: fp32, 66.9 TFLOP/s"), "{svg}");
    assert!(svg.contains("Above the roof: 09_rung, 10_rung"), "{svg}");
    assert!(svg.contains(">\na rung\n<") && !svg.contains("a peer"), "{svg}");
    let svg = roofline(&points[..2]).compute_roof("none", f64::NAN).draw().svg();
    assert!(svg.contains("a rung, recorded") && svg.contains("Not drawn: none, NaN"), "{svg}");
    assert!(!svg.contains("Above the roof"), "{svg}");
}

/// The height at which a text stands, in tenths of a pixel.
fn height_of(svg: &str, text: &str) -> f64 {
    let before = svg.split(&format!(">\n{text}\n<")).next().unwrap();
    let element = before.rsplit("<text ").next().unwrap();
    element.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
}

#[test]
fn counts_of_different_things_have_no_ratio_and_need_no_unit() {
    let count = |name: &str, value: f64| {
        Measurement::new(name, Backend::Cpu, 1, "held at once", "", Summary::of(&[value])).dtype("")
    };
    let svg = bars(&[count("threads", 4.0), count("numbers", 64.0)]).prediction("guess", 16.0).log().draw().svg();
    assert!(svg.contains("held at once (log scale)") && svg.contains("guess: 16\n") && svg.contains("64\n"), "{svg}");
    assert!(!svg.contains("the first"), "{svg}");
}

#[test]
fn memory_shows_steps_predictions_and_wrong_counts() {
    let points = [MemoryPoint::new("start", 0, 0, 1 << 37), MemoryPoint::new("allocate", 64 << 20, 96 << 20, 1 << 36)];
    let svg =
        memory_life(&points).with_free().recorded_on("NVIDIA H200").prediction("predicted", &[Some(0)]).draw().svg();
    for text in
        ["allocate", ">\n64\n<", ">\n96\n<", "recorded", "predicted: 1 value for 2 steps", "free on the whole device"]
    {
        assert!(svg.contains(text), "{text}: {svg}");
    }
}

#[test]
fn a_timeline_picks_its_unit_and_names_what_has_no_room() {
    let spans = [Span::new("host", "launch", 0.0, 0.004), Span::new("stream 1", "kernel", 0.004, 0.9)];
    let svg = timeline(&spans).mark("returns", 0.004).prediction("you", 0.5).draw().svg();
    assert!(svg.contains("time (µs)") && svg.contains("returns: 4 µs") && svg.contains("you: 500 µs"), "{svg}");
    let many: Vec<Span> = (0..50).map(|n| Span::new("copy", &format!("in {n}"), n as f64, n as f64 + 1.0)).collect();
    let svg = timeline(&many).draw().svg();
    assert!(svg.contains(">\nin\n<") && !svg.contains(">\nin 0\n<"), "{svg}");
}

#[test]
fn a_timeline_of_many_kinds_names_the_longest_of_a_lane() {
    let mut spans = vec![Span::new("host", "step", 0.0, 100.0)];
    let kernels =
        (0..30).map(|n| (n, if n == 7 { "im2col_f32".to_string() } else { format!("{}_kernel", "k".repeat(n + 60)) }));
    for (n, name) in kernels {
        spans.push(Span::new("stream 1", &name, n as f64, n as f64 + if n == 7 { 0.9 } else { 0.01 }));
    }
    let svg = timeline(&spans).draw().svg();
    assert!(svg.contains("stream 1: im2col_f32") && svg.contains("25 other kinds that take less time"), "{svg}");
    let shown = svg.matches("stream 1: k").count();
    assert!(svg.contains("kkk…") && shown > 0, "{shown}: {svg}");
}

#[test]
fn odd_rows_never_panic() {
    let values = [f64::MIN_POSITIVE, 1e-300, 1.0, 1e300, f64::MAX, f64::INFINITY, f64::NAN, 0.0, -0.0];
    for (n, value) in values.iter().enumerate() {
        for other in values {
            let rows =
                [row("a", Backend::Cpu, n, *value, "", false), row("b", Backend::Cuda, usize::MAX, other, "", true)];
            let chart = time_over_size(&rows).crossover().ceiling("c", other).prediction_value("v", *value);
            assert!(chart.prediction("p", 0usize).draw().svg().contains("</svg>"));
            assert!(bars(&rows).prediction("p", other).draw().svg().contains("</svg>"));
            assert!(bars(&rows).log().prediction("p", other).draw().svg().contains("</svg>"));
            let mut rates = rungs();
            (rates[0].summary.median, rates[2].summary.p90) = (*value, other);
            let chart = ladder(&rates).peer("01_naive").ceiling("c", other).prediction(*value);
            assert!(chart.draw().svg().contains("</svg>"));
            let reached = |flop_per_byte: f64, tflop_per_s: f64| Reached {
                name: "a".into(),
                flop_per_byte,
                tflop_per_s,
                recorded: false,
            };
            let chart = roofline(&[reached(*value, other), reached(1.0, 1.0)]);
            let svg = chart.memory_roof("m", other).compute_roof("c", *value).draw().svg();
            assert!(svg.contains("</svg>") && !svg.contains("\"NaN"), "{value} {other}");
            let spans = [Span::new("a", "b", *value, other), Span::new("a", "b", other, *value)];
            assert!(timeline(&spans).mark("m", other).draw().svg().contains("</svg>"));
        }
    }
    let points = [MemoryPoint::new("", u64::MAX, 0, 0), MemoryPoint::new("", 0, u64::MAX, u64::MAX)];
    assert!(memory_life(&points).with_free().draw().svg().contains("</svg>"));
}

/// What a screen reader says of a figure.
fn description(figure: &Figure) -> String {
    let svg = figure.svg();
    let text = svg.split_once("<desc").and_then(|(_, rest)| rest.split_once('>')).unwrap().1;
    text.split_once("</desc>").unwrap().0.to_string()
}

#[test]
fn every_chart_tells_its_values_to_a_screen_reader() {
    let points = [MemoryPoint::new("allocate", 64 << 20, 96 << 20, 1 << 36)];
    let reached = Reached { name: "02_tiled".into(), flop_per_byte: 16.0, tflop_per_s: 30.0, recorded: true };
    let parts = [row("a whole", Backend::Cpu, 1, 7.0, "", false)];
    for (figure, told) in [
        (time_over_size(&two()).crossover().draw(), "work (Intel Xeon): 10: 0.100 ms, 1000: 10.0 ms"),
        (time_over_size(&two()).crossover().draw(), "crossing: 100"),
        (bars(&two()).draw(), "work (Intel Xeon), size 1000: 10.0 ms, the slowest"),
        (stacked(&parts).draw(), "a whole: time 7 ms"),
        (ladder(&rungs()).peer("cuBLAS").draw(), "02_tiled: 30.0 TFLOP/s, 50 % of cuBLAS"),
        (roofline(&[reached]).memory_roof("copy", 4200.0).draw(), "02_tiled: 16.0 FLOP/byte, 30.0 TFLOP/s"),
        (memory_life(&points).with_free().draw(), "allocate: used 64 MiB, reserved 96 MiB"),
        (memory_life(&points).with_free().draw(), "free on the whole device: allocate 65536 MiB"),
        (timeline(&[Span::new("host", "launch", 0.0, 0.5)]).draw(), "host: launch from 0 to 0.500 ms"),
        (heat_map(&[1.0, f64::NAN], &["I"], &["I", "am"]).draw(), "I: 1, empty"),
        (bars(&[]).draw(), "Nothing to draw"),
    ] {
        let text = description(&figure);
        assert!(text.contains(told), "{told}: {text}");
    }
}

#[test]
fn a_prediction_that_is_not_made_is_told_and_not_drawn() {
    let none: Option<f64> = None;
    let spans = [Span::new("host", "launch", 0.0, 0.004)];
    let points = [MemoryPoint::new("start", 0, 0, 1 << 37), MemoryPoint::new("allocate", 64 << 20, 96 << 20, 1 << 36)];
    for svg in [
        bars(&two()).prediction("guess", none).draw().svg(),
        stacked(&two()).prediction("guess", none).draw().svg(),
        time_over_size(&two()).prediction("guess", None::<usize>).draw().svg(),
        time_over_size(&two()).prediction_value("guess", none).draw().svg(),
        timeline(&spans).prediction("guess", none).draw().svg(),
        memory_life(&points).prediction("guess", &[None, None]).draw().svg(),
    ] {
        assert!(svg.contains("guess: none yet"), "{svg}");
    }
    assert!(ladder(&rungs()).prediction(none).draw().svg().contains("your prediction: none yet"));
    let svg = memory_life(&points).prediction("guess", &[None, None]).draw().svg();
    assert_eq!(svg.matches("guess").count(), 2, "no mark in the legend without one in the chart: {svg}");
    // One step that is predicted is enough.
    let svg = memory_life(&points).prediction("guess", &[None, Some(64 << 20)]).draw().svg();
    assert!(!svg.contains("none yet"), "{svg}");
}

#[test]
fn a_share_has_an_axis_from_zero() {
    let row = |n: usize, right: f64| Measurement::new("right", Backend::Cpu, n, "accuracy", "%", Summary::of(&[right]));
    let rows = [row(100, 80.0), row(1000, 90.0)];
    let svg = over_size(&rows).linear().draw().svg();
    assert!(svg.contains("accuracy (%)") && svg.lines().any(|text| text == "0"), "{svg}");
    assert!(over_size(&rows).draw().svg().contains("accuracy (%, log scale)"));
}

#[test]
fn an_axis_that_does_not_start_at_zero_says_so_and_hides_no_value() {
    let row = |n: usize, right: f64| Measurement::new("right", Backend::Cpu, n, "accuracy", "%", Summary::of(&[right]));
    let rows = [row(100, 91.0), row(1000, 96.0)];
    let svg = over_size(&rows).linear_from(90.0).draw().svg();
    assert!(svg.contains("accuracy (%, axis starts at 90)") && svg.lines().any(|text| text == "90"), "{svg}");
    assert!(!svg.lines().any(|text| text == "0"), "{svg}");
    // What lies below is seen, and no more is than that takes.
    let lower = over_size(&[row(100, 89.0), row(1000, 96.0)]).linear_from(90.0).draw().svg();
    assert!(lower.contains("axis starts at 88"), "{lower}");
    let guessed = over_size(&rows).linear_from(90.0).prediction_value("guess", 50.0).draw().svg();
    assert!(guessed.contains("axis starts at 50"), "{guessed}");
    let far = over_size(&[row(100, 3.0), row(1000, 96.0)]).linear_from(90.0).draw().svg();
    assert!(far.contains("accuracy (%)") && far.lines().any(|text| text == "0"), "{far}");
    assert!(over_size(&rows).linear_from(90.0).prediction_value("guess", None).draw().svg().contains("starts at 90"));
    // All values where the axis starts.
    let flat = over_size(&[row(1, 90.0), row(2, 90.0)]).linear_from(90.0).draw().svg();
    assert!(!flat.contains("NaN"), "{flat}");
}

#[test]
fn points_have_no_lines_and_each_size_has_a_tick() {
    let row = |name: &str, seed: usize, right: f64| {
        Measurement::new(name, Backend::Cpu, seed, "accuracy", "%", Summary::of(&[right]))
    };
    let rows: Vec<Measurement> =
        [3, 1, 7].iter().flat_map(|&seed| [row("one", seed, 60.0 + seed as f64), row("other", seed, 70.0)]).collect();
    let lines = over_size(&rows).x_label("seed").linear().linear_sizes();
    let points = lines.clone().points();
    let (with, without) = (lines.draw().svg(), points.draw().svg());
    for seed in ["1", "3", "7"] {
        assert!(without.lines().any(|text| text == seed), "{seed}: {without}");
    }
    assert!(!without.lines().any(|text| text == "5") && without.contains("seed") && !without.contains("log scale"));
    let joints = |svg: &str| svg.matches("<polyline").count() + svg.matches("<path").count();
    assert!(joints(&without) < joints(&with), "{without}");
    assert!(over_size(&[row("one", 5, 60.0)]).points().draw().svg().contains("</svg>"));
}

#[test]
fn a_lone_lane_is_not_repeated_in_the_legend() {
    let of = |lane: &str| -> Vec<Span> {
        let short = |n: usize| Span::new(lane, &"k".repeat(n + 60), n as f64, n as f64 + 0.01);
        (0..30).map(short).collect()
    };
    let alone = timeline(&of("a step")).draw().svg();
    let two = timeline(&[of("a step"), of("another")].concat()).draw().svg();
    // Names in the legend are cut; those that a screen reader tells are not.
    let in_legend = |svg: &str, start: &str| svg.lines().any(|text| text.starts_with(start) && text.ends_with('…'));
    assert!(in_legend(&alone, "kkk") && !in_legend(&alone, "a step: k"), "{alone}");
    assert!(in_legend(&two, "a step: kkk"), "{two}");
}

#[test]
fn numbers_of_two_low_lines_stand_apart() {
    let low = MemoryPoint::new("parameters", 14 << 20, 32 << 20, 1 << 36);
    let high = MemoryPoint::new("backward pass", 294 << 20, 294 << 20, 1 << 36);
    let svg = memory_life(&[low, high]).draw().svg();
    let height = |number: &str| -> f64 {
        let before = svg.split(&format!(">\n{number}\n<")).next().unwrap();
        let tag = before.rsplit("<text").next().unwrap();
        tag.split(" y=\"").nth(1).unwrap().split('"').next().unwrap().parse().unwrap()
    };
    assert!(height("14") - height("32") >= 14.0, "{svg}");
}
