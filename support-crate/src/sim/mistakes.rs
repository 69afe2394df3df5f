//! What the simulator found, in the words of the reader's source.

use super::SimKernel;
use crate::error::{Error, Mistake, Result};
use warpsim::{Finding, Kind};

/// Mistakes that a message shows: later ones often follow from the first.
const SHOWN: usize = 3;

/// An error when anything was found.
pub(super) fn none(kernel: &SimKernel, findings: &[Finding]) -> Result<()> {
    if findings.is_empty() {
        return Ok(());
    }
    let mut shown: Vec<Mistake> = Vec::new();
    for mistake in findings.iter().map(|finding| mistake(kernel, finding)) {
        // `c[i] = a[i] + b[i]` without its guard is one mistake in three accesses.
        match shown.iter_mut().find(|other| other.kind == mistake.kind && other.place == mistake.place) {
            Some(same) => same.what.extend(mistake.what),
            None => shown.push(mistake),
        }
    }
    let more = shown.len().saturating_sub(SHOWN);
    shown.truncate(SHOWN);
    Err(Error::Mistakes { kernel: kernel.name.clone(), shown, more })
}

/// A finding with the parameter's own name in place of its number, and what a reader of a notebook can do.
pub(super) fn named(kernel: &SimKernel, mut finding: Finding) -> Finding {
    if let Some(number) = &finding.variable {
        let name = variable(kernel, number);
        if name != *number {
            finding.message = finding.message.replace(number.as_str(), &format!("`{name}`"));
            finding.variable = Some(name);
        }
    }
    if let Some((what, fix)) = finding.message.split_once("; next: ") {
        finding.message = format!("{what}; next: {}", mend(finding.kind, fix));
    }
    finding
}

/// What the reader calls a variable that the simulator names: `parameter 2` or a compiler's name for shared memory.
pub(super) fn variable(kernel: &SimKernel, known: &str) -> String {
    let parameter = known.strip_prefix("parameter ").and_then(|number| number.parse::<usize>().ok());
    match parameter {
        Some(number) => kernel.parameters.get(number).filter(|name| !name.is_empty()).map_or(known, String::as_str),
        None => local_name(known),
    }
    .to_string()
}

/// `_ZZ4tileE6buffer` is C++'s name for `buffer` in the function `tile`: the last length and word of it.
fn local_name(known: &str) -> &str {
    if !known.starts_with("_ZZ") {
        return known;
    }
    let ends = known.char_indices().filter(|(_, c)| *c == 'E').map(|(at, _)| &known[at + 1..]);
    let mut found = ends.filter_map(|rest| {
        let name = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let length: usize = rest[..rest.len() - name.len()].parse().ok()?;
        (length == name.len()).then_some(name)
    });
    found.next().unwrap_or(known)
}

fn mistake(kernel: &SimKernel, finding: &Finding) -> Mistake {
    let finding = named(kernel, finding.clone());
    let (what, fix) = finding.message.split_once("; next: ").unwrap_or((&finding.message, mend(finding.kind, "")));
    let times = if finding.times > 1 { format!(" ({} times in all)", finding.times) } else { String::new() };
    let place = match &finding.source {
        Some(source) => source.to_string(),
        None => format!("PTX line {}", finding.ptx_line),
    };
    let triple = |[x, y, z]: [u32; 3]| format!("({x}, {y}, {z})");
    Mistake {
        kind: finding.kind.words().to_string(),
        place: format!("{place}, block {}, thread {}", triple(finding.block), triple(finding.thread)),
        line: finding.source.as_ref().and_then(|source| {
            let text = line(kernel, source)?;
            Some((source.line, text.to_string()))
        }),
        what: vec![format!("{what}{times}")],
        fix: fix.to_string(),
    }
}

/// What to do, where the finding's own words are not for a notebook.
fn mend(kind: Kind, fix: &str) -> &str {
    match kind {
        // A notebook has no budget to raise.
        Kind::StepBudget => "look for a loop that never ends; if there is none, launch more blocks, or a smaller size",
        _ if fix.is_empty() => "look at that line with this block and thread in mind",
        _ => fix,
    }
}

/// The text of a source line.
pub(super) fn line<'a>(kernel: &'a SimKernel, at: &warpsim::SourceLine) -> Option<&'a str> {
    let source = kernel.source.as_ref().filter(|source| source.name == at.file)?;
    source.text.lines().nth((at.line as usize).checked_sub(1)?)
}

#[cfg(test)]
mod tests {
    use super::local_name;

    #[test]
    fn names_of_shared_arrays_are_the_readers() {
        for (known, name) in [
            ("_ZZ9transposeILi0EEvPKfPfiiE4tile", "tile"),
            ("_ZZ6matmulE6a_tile", "a_tile"),
            ("_ZZ6matmulE6a_tile_0", "_ZZ6matmulE6a_tile_0"),
            ("buffer", "buffer"),
            ("_ZZ4E", "_ZZ4E"),
        ] {
            assert_eq!(local_name(known), name);
        }
    }
}
