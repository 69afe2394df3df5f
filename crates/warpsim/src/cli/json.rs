//! A report as JSON.

use crate::{Counters, Finding, Other, Report};

/// One object with `counters`, `lines` and `findings`.
pub fn report(report: &Report) -> String {
    let lines = report.lines.iter().map(|(line, counters)| {
        let (file, number) = match line {
            Some(source) => (quoted(&source.file), source.line.to_string()),
            None => ("null".into(), "null".into()),
        };
        format!("{{\"file\": {file}, \"line\": {number}, {}}}", fields(counters))
    });
    format!(
        "{{\"counters\": {{{}}}, \"lines\": [{}], \"findings\": [{}], \"printed\": {}}}",
        fields(&report.counters),
        lines.collect::<Vec<_>>().join(", "),
        report.findings.iter().map(finding).collect::<Vec<_>>().join(", "),
        quoted(&report.printed)
    )
}

fn fields(counters: &Counters) -> String {
    let rows = counters.rows().into_iter().map(|(name, value)| format!("\"{name}\": {value}"));
    let lanes = format!("\"active_lanes_per_instruction\": {}", counters.active_lanes_per_instruction());
    rows.chain([lanes]).collect::<Vec<_>>().join(", ")
}

fn finding(finding: &Finding) -> String {
    let or_null = |text: Option<String>| text.unwrap_or_else(|| "null".into());
    format!(
        "{{\"kind\": {}, \"file\": {}, \"line\": {}, \"ptx_line\": {}, \"block\": {:?}, \"thread\": {:?}, \
         \"times\": {}, \"address\": {}, \"variable\": {}, \"parameter\": {}, \"other\": {}, \"message\": {}}}",
        quoted(finding.kind.name()),
        or_null(finding.source.as_ref().map(|s| quoted(&s.file))),
        or_null(finding.source.as_ref().map(|s| s.line.to_string())),
        finding.ptx_line,
        finding.block,
        finding.thread,
        finding.times,
        or_null(finding.address.map(|a| a.to_string())),
        or_null(finding.variable.as_deref().map(quoted)),
        or_null(finding.parameter.map(|number| number.to_string())),
        or_null(finding.other.as_deref().map(other)),
        quoted(&finding.message),
    )
}

/// The other access of a race.
fn other(other: &Other) -> String {
    let line = other.source.as_ref().map_or("null".into(), |s| s.line.to_string());
    let (ptx_line, block, thread, writes) = (other.ptx_line, other.block, other.thread, other.writes);
    format!(
        "{{\"line\": {line}, \"ptx_line\": {ptx_line}, \"block\": {block:?}, \"thread\": {thread:?}, \"writes\": {writes}}}"
    )
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
