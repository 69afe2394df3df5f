//! Tables and pictures of made-up launches: what they say, what they ask back, and that nothing makes them panic.

use super::*;
use warpsim::{Kind, SourceLine, UnevenLoop};

const SOURCE: &str = "extern \"C\" __global__ void add(const float *a, float *c, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + a[i + 1];
    }
}";

fn line(number: u32, instructions: u64, lanes: u64) -> Line {
    let text = SOURCE.lines().nth(number as usize - 1).unwrap_or_default().to_string();
    let counters =
        Counters { warp_instructions: instructions, thread_instructions: instructions * lanes, ..Counters::default() };
    Line { number, text, counters }
}

pub(super) fn access(variable: &str, kind: AccessKind, bytes: u32, offset: impl Fn(u64) -> Option<u64>) -> Access {
    let offsets = std::array::from_fn(|lane| offset(lane as u64));
    let sectors: std::collections::BTreeSet<u64> = offsets.iter().flatten().map(|offset| offset / 32).collect();
    let text = "c[i] = a[i] + a[i + 1];".to_string();
    let (variable, base, sectors) = (variable.to_string(), 0x1000, sectors.len() as u64);
    Access {
        line: Some(4),
        text,
        space: Space::Global,
        kind,
        bytes,
        variable,
        base,
        offsets,
        sectors,
        wavefronts: 0,
        conflicts: 0,
    }
}

pub(super) fn shared(bytes: u32, wavefronts: u64, conflicts: u64, offset: impl Fn(u64) -> Option<u64>) -> Access {
    let access = access("tile", AccessKind::Store, bytes, offset);
    let text = "tile[threadIdx.x] = i;".to_string();
    Access { line: Some(2), text, space: Space::Shared, sectors: 0, wavefronts, conflicts, ..access }
}

pub(super) fn finding(kind: Kind, block: [u32; 3], thread: [u32; 3]) -> Finding {
    Finding {
        kind,
        source: Some(SourceLine { file: "kernel.cu".to_string(), line: 4 }),
        ptx_line: 30,
        block,
        thread,
        times: 125,
        address: Some(0x2000),
        variable: Some("a".to_string()),
        parameter: None,
        other: None,
        message: "reads 4 bytes past the end of `a`; next: guard it with `if (i < n)`".to_string(),
    }
}

pub(super) fn inspection(accesses: Vec<Access>) -> Inspection {
    let mut lines: Vec<Line> = vec![line(1, 0, 0), line(2, 40, 32), line(3, 20, 32), line(4, 60, 24)];
    lines.extend([line(5, 0, 0), line(6, 10, 32)]);
    let counters = Counters {
        warp_instructions: 130,
        thread_instructions: 3680,
        global_load_requests: 10,
        global_load_sectors: 45,
        ..Counters::default()
    };
    let (grid, block, findings) = ([3907, 1, 1], [256, 1, 1], Vec::new());
    let (kernel, watched, printed) = ("add".to_string(), ([0; 3], 0), String::new());
    Inspection {
        kernel,
        grid,
        block,
        shared_bytes: 0,
        counters,
        longest_warp: 0,
        uneven_loops: Vec::new(),
        lines,
        watched,
        accesses,
        findings,
        printed,
    }
}

/// The words of a picture, in order.
pub(super) fn words(figure: &Figure) -> String {
    let svg = figure.svg();
    let texts = svg.split("<text").skip(1).filter_map(|text| text.split_once(">\n")?.1.split_once('\n'));
    texts.map(|(text, _)| text.replace("&gt;", ">").replace("&lt;", "<")).collect::<Vec<_>>().join("\n")
}

fn loads(bytes: u32, offset: impl Fn(u64) -> Option<u64>) -> Inspection {
    inspection(vec![access("a", AccessKind::Load, bytes, offset)])
}

#[test]
fn sectors_are_counted_and_so_are_the_bytes_used() {
    let said = |it: &Inspection| words(&it.sectors("a[i]").unwrap());
    for (it, sentence) in [
        (
            loads(4, |lane| Some(4 * lane)),
            "32 lanes read 4 bytes each: 4 sectors of 32 bytes, 128 of 128 bytes used (100 %).",
        ),
        (loads(4, |lane| Some(4 * lane + 4)), "5 sectors of 32 bytes, 128 of 160 bytes used (80 %)."),
        (loads(4, |lane| Some(8 * lane)), "8 sectors of 32 bytes, 128 of 256 bytes used (50 %)."),
        (loads(4, |lane| Some(128 * lane)), "32 sectors of 32 bytes, 128 of 1,024 bytes used (12.5 %)."),
        (loads(4, |lane| Some(lane * 7919 % 32 * 4096)), "32 sectors of 32 bytes, 128 of 1,024 bytes used (12.5 %)."),
        (loads(4, |_| Some(40)), "1 sector of 32 bytes, 4 of 32 bytes used (12.5 %)."),
        (
            loads(16, |lane| Some(16 * lane)),
            "32 lanes read 16 bytes each: 16 sectors of 32 bytes, 512 of 512 bytes used (100 %).",
        ),
        (
            loads(8, |lane| (lane < 5).then_some(8 * lane)),
            "5 lanes read 8 bytes each: 2 sectors of 32 bytes, 40 of 64 bytes used (62.5 %).",
        ),
        (
            loads(1, |lane| (lane == 31).then_some(3)),
            "1 lane reads 1 byte: 1 sector of 32 bytes, 1 of 32 bytes used (3.1 %).",
        ),
    ] {
        let said = said(&it).replace('\n', " ");
        assert!(said.contains(sentence), "{sentence}\n{said}");
    }
    let some = said(&loads(4, |lane| (lane % 2 == 0).then_some(4 * lane)));
    assert!(some.contains("(16 of 32 take part)") && some.contains("bytes from the start of a"), "{some}");
}

#[test]
fn banks_are_stacked_by_wavefront() {
    let said = |access: Access| words(&inspection(vec![access]).banks("tile").unwrap()).replace('\n', " ");
    let one = said(shared(4, 1, 0, |lane| Some(4 * lane)));
    assert!(one.contains("32 lanes write 4 bytes each: 1 wavefront, no bank conflict."), "{one}");
    let two = said(shared(4, 2, 1, |lane| Some(8 * lane)));
    assert!(
        two.contains("2 wavefronts, 1 of them a bank conflict; each of 16 banks holds 2 different words."),
        "{two}"
    );
    let column = said(shared(4, 32, 31, |lane| Some(128 * lane + 12)));
    let all = "32 wavefronts, 31 of them bank conflicts; bank 3 holds 32 different words.";
    assert!(column.contains(all), "{column}");
    assert!(column.contains("wavefront 32") && !column.contains("wavefront 33"), "{column}");
    let padded = said(shared(4, 1, 0, |lane| Some(132 * lane)));
    assert!(padded.contains("1 wavefront, no bank conflict"), "{padded}");
    let same = said(shared(4, 1, 0, |_| Some(64)));
    assert!(same.contains("×32") && same.contains("1 wavefront, no bank conflict."), "{same}");
    let wide = said(shared(16, 4, 0, |lane| Some(16 * lane)));
    assert!(wide.contains("lanes 24 to 31") && wide.contains("4 wavefronts, no bank conflict"), "{wide}");
    let refused = said(shared(4, 1, 0, |lane| Some(8 * lane)));
    assert!(refused.contains("The counters say 1 wavefront"), "{refused}");
}

#[test]
fn neighbours_that_read_the_same_wide_word_are_served_at_once() {
    let pairs = |kind| {
        let access = shared(8, 1, 0, |lane| Some(lane / 2 * 8));
        banks::parts(&Access { kind, ..access }).len()
    };
    assert_eq!((pairs(AccessKind::Load), pairs(AccessKind::Store)), (1, 2));
}

#[test]
fn a_piece_of_the_line_finds_the_variable_that_is_meant() {
    let load = |at| access("a", AccessKind::Load, 4, move |lane| Some(4 * lane + at));
    let store = access("c", AccessKind::Store, 4, |lane| Some(4 * lane));
    let it = inspection(vec![load(0), load(4), store]);
    let title = |what: &str| it.sectors(what).unwrap().html();
    for (what, title_of) in
        [("a[i]", "load of a"), ("a [ i ]", "load of a"), ("c[i]", "store of c"), ("c", "store of c")]
    {
        assert!(title(what).contains(title_of), "{what}");
    }
    assert!(title("store c[i]").contains("store of c, line 4"));
    assert!(words(&it.sectors("a[i] #2").unwrap()).contains("time 2 of 2"));
    for (what, part, next) in [
        (
            "x[i]",
            "no access to global memory fits `x[i]`; warp 0 of block 0 made:\n  line 4, load of a",
            "`sectors(\"a\")`",
        ),
        ("+", "`+` fits more than one access", "give more of the source line"),
        ("a[i] #3", "Warp 0 of block 0 did `a[i]` 2 times, and `#3` asks for a later one", "ask for #1 to #2"),
        ("a[i] #0", "behind # stands which time", "write \"a[i] #2\""),
        ("atomic a[i]", "no access to global memory fits", "ask for one of them"),
    ] {
        let text = it.sectors(what).unwrap_err().to_string();
        assert!(text.contains(part) && text.split_once("\nnext: ").unwrap().1.contains(next), "{text}");
    }
    let text = it.banks("a[i]").unwrap_err().to_string();
    assert!(text.contains("no access to shared memory\nnext: `sectors(\"a[i]\")` shows this one"), "{text}");
    let text = inspection(Vec::new()).banks("tile").unwrap_err().to_string();
    assert!(text.contains("Warp 0 of block 0 made no access") && text.contains("kernel.inspect_warp"), "{text}");
}

#[test]
fn the_launch_leads_to_one_thread_and_follows_the_first_finding() {
    let mut it = inspection(Vec::new());
    let said = words(&it.launch()).replace('\u{a0}', " ");
    for text in [
        "add: 3,907 blocks of 256 threads",
        "i = blockIdx.x * blockDim.x + threadIdx.x = 0 * 256 + 5 = 5",
        "block 0: 256 threads in 8 warps",
        "31,256 warps",
    ] {
        assert!(said.contains(text), "{text}: {said}");
    }
    it.findings = vec![finding(Kind::OutOfBounds, [3906, 0, 0], [67, 0, 0]); 2];
    let said = words(&it.launch()).replace('\u{a0}', " ");
    assert!(said.contains("= 3906 * 256 + 67 = 1000003") && said.contains("warp 2: 32 threads"), "{said}");
    assert_eq!(said.matches("access out of bounds, line 4: first in block 3906, thread 67").count(), 1, "{said}");
    // A warp that was asked for is the one that is shown.
    it.watched = ([1, 0, 0], 7);
    assert!(words(&it.launch()).contains("block 1: 256 threads"));
}

#[test]
fn the_source_shows_lanes_instructions_and_findings() {
    let mut it = loads(4, |lane| Some(8 * lane));
    it.lines[3].counters.global_load_requests = 2;
    it.lines[3].counters.global_load_sectors = 16;
    it.findings = vec![finding(Kind::OutOfBounds, [3906, 0, 0], [67, 0, 0])];
    let said = words(&it.source()).replace('\u{a0}', " ");
    for text in ["if (i < n) {", "\n8\n", "\n24\n", "▲ ", ", a: first in block 3906, thread 67", "28.3 active lanes"]
    {
        assert!(said.contains(text), "{text}: {said}");
    }
    assert!(
        said.contains("more sectors or wavefronts than these bytes need")
            && said.contains("line 4 takes more than any other: 46 %"),
        "{said}"
    );
    // Without lines nothing can be said of them.
    let none = Inspection { lines: Vec::new(), ..it };
    assert!(words(&none.source()).contains("No line of this source was counted"));
}

#[test]
fn a_long_source_shows_what_ran() {
    let mut it = inspection(Vec::new());
    let text = |n: u32| {
        if n == 1 { "__global__ void add(int n) {".to_string() } else { format!("x = {n}; // {}", "y".repeat(200)) }
    };
    it.lines = (1..=200).map(|number| Line { number, text: text(number), counters: Counters::default() }).collect();
    it.lines[99].counters.warp_instructions = 7;
    let said = words(&it.source()).replace('\u{a0}', " ");
    assert!(said.contains("x = 100;") && said.contains("x = 102;") && !said.contains("x = 104;"), "{said}");
}

#[test]
fn the_table_names_the_metrics_and_leaves_zeros_out() {
    let mut it = inspection(Vec::new());
    it.findings = vec![finding(Kind::OutOfBounds, [3906, 0, 0], [67, 0, 0])];
    it.printed = "hello <b>\n".to_string();
    let (text, html) = (it.to_string(), it.html());
    for part in [
        "add: 3,907 blocks of 256 threads, 31,256 warps",
        "line 4, block 3906, thread 67, first of 125 times",
        "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
        "4.50 a request",
        "28.3 lanes per instruction",
    ] {
        assert!(text.contains(part) && html.contains(part), "{part}: {text}");
    }
    it.findings.push(Finding {
        variable: Some("b".into()),
        message: "reads past `b`; next: x".into(),
        ..it.findings[0].clone()
    });
    let both = it.to_string();
    assert!(
        both.contains("end of `a`\n  reads past `b`\n  next: guard") && both.matches("first of").count() == 1,
        "{both}"
    );
    assert!(words(&it.source()).contains("access out of bounds, a, b: first in block 3906"));
    assert!(text.contains("\n  next: guard it with `if (i < n)`\n"), "{text}");
    assert!(html.contains("<em>next: guard it with <code>if (i &lt; n)</code></em>"), "{html}");
    assert!(!html.contains("<th></th>"), "{html}");
    assert!(html.contains("<pre>hello &lt;b&gt;") && !text.contains("atomics") && !text.contains("shared"), "{text}");
}

#[test]
fn counts_that_depend_on_ptxas_are_told() {
    let at = |line: u32| SourceLine { file: "kernel.cu".to_string(), line };
    let mut it = inspection(Vec::new());
    assert!(!it.to_string().contains("ptxas"), "{it}");
    it.uneven_loops = vec![UnevenLoop { source: Some(at(3)), accesses: vec![at(2), at(4)] }];
    let (text, html) = (it.to_string(), it.html());
    for part in ["leave the loop that ends on line 3", "the counts of lines 2 and 4 may differ on a GPU"] {
        assert!(text.contains(part) && html.contains(part), "{part}: {text}");
    }
}

#[test]
fn odd_accesses_never_panic() {
    for bytes in [0, 1, 2, 3, 4, 8, 16, 32, 200] {
        for base in [0, 1, 31, u64::MAX - 3, u64::MAX] {
            for offset in [0, 1, 33, u64::MAX] {
                for space in [Space::Global, Space::Shared] {
                    let part = access("a", AccessKind::Atomic, bytes, |lane| (lane > 3).then_some(offset));
                    let it = inspection(vec![Access { base, space, line: None, variable: String::new(), ..part }]);
                    let drawn = if space == Space::Global { it.sectors("a[i]") } else { it.banks("a[i]") };
                    assert!(drawn.unwrap().svg().contains("</svg>"));
                }
            }
        }
    }
    let none = inspection(vec![access("a", AccessKind::Load, 4, |_| None)]);
    assert!(none.sectors("a").unwrap().svg().contains("0 lanes"));
}
