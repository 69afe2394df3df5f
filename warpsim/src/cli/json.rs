//! A report as JSON.

use crate::{Counters, Finding, Report};

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
         \"times\": {}, \"address\": {}, \"variable\": {}, \"message\": {}}}",
        quoted(finding.kind.name()),
        or_null(finding.source.as_ref().map(|s| quoted(&s.file))),
        or_null(finding.source.as_ref().map(|s| s.line.to_string())),
        finding.ptx_line,
        finding.block,
        finding.thread,
        finding.times,
        or_null(finding.address.map(|a| a.to_string())),
        or_null(finding.variable.as_deref().map(quoted)),
        quoted(&finding.message),
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
