//! Which of a warp's accesses a reader means by a piece of the source, such as `a[i]`.

use super::words::counted;
use super::{Access, AccessKind, Inspection, Space};
use gpulab_measure::Error;
use gpulab_measure::Result;

/// How many candidates a message lists.
const LISTED: usize = 8;

/// An access, and which of how many times its line made it.
#[derive(Debug)]
pub(super) struct Found<'a> {
    pub access: &'a Access,
    pub time: usize,
    pub times: usize,
}

/// The accesses to `space` that `what` means: all from one place of the source. `#2` behind `what` asks for the second.
pub(super) fn find<'a>(it: &'a Inspection, what: &str, space: Space) -> Result<Found<'a>> {
    let (text, time) = occurrence(what)?;
    let (kind, text) = kind_of(text);
    let squeezed = squeeze(text);
    let fits = |access: &&Access| kind.is_none_or(|kind| access.kind == kind) && names(access, &squeezed);
    let mut found: Vec<&Access> = it.accesses.iter().filter(|access| access.space == space).filter(fits).collect();
    // `a[i]` stands in `c[i] = a[i] + b[i]`, where three variables are used: the one before the bracket is meant.
    let word = squeezed.split(|c: char| !(c.is_alphanumeric() || c == '_')).find(|word| !word.is_empty());
    if let Some(word) = word.filter(|word| found.iter().any(|access| access.variable == **word)) {
        found.retain(|access| access.variable == word);
    }
    let Some(first) = found.first().copied() else {
        return Err(nothing(it, what, space));
    };
    if found.iter().any(|access| (access.line, &access.variable) != (first.line, &first.variable)) {
        let listed = list(found.iter().copied());
        let text = format!("`{what}` fits more than one access of {}:\n{listed}", warp(it));
        let fix = "give more of the source line, or the variable with its index, such as \"a[i]\"".to_string();
        return Err(Error::invalid(text, fix));
    }
    // A line such as `a[i] += 1` reads, then writes.
    found.retain(|access| access.kind == first.kind);
    let times = found.len();
    let access = found.get(time - 1).copied().ok_or_else(|| {
        Error::invalid(
            format!(
                "{} did `{text}` {}, and `#{time}` asks for a later one",
                capital(&warp(it)),
                counted(times as u64, "time")
            ),
            if times == 1 { "leave the # away".to_string() } else { format!("ask for #1 to #{times}") },
        )
    })?;
    Ok(Found { access, time, times })
}

/// `warp 0 of block (0, 0, 0)`.
pub(super) fn warp(it: &Inspection) -> String {
    let (block, warp) = it.watched;
    format!("warp {warp} of block {}", super::words::place(block, it.grid))
}

/// `load of a, line 7`.
pub(super) fn title(found: &Found<'_>) -> String {
    let access = found.access;
    let line = access.line.map_or(String::new(), |line| format!(", line {line}"));
    let owner = if access.variable.is_empty() { String::new() } else { format!(" of {}", access.variable) };
    format!("{}{owner}{line}", access.kind.name())
}

/// `Warp 0 of block 0, the first of 64 times: sum += a[k];`
pub(super) fn which(it: &Inspection, found: &Found<'_>) -> String {
    let warp = capital(&warp(it));
    let time = if found.times > 1 { format!(", time {} of {}", found.time, found.times) } else { String::new() };
    let text = if found.access.text.is_empty() { String::new() } else { format!(": {}", found.access.text) };
    format!("{warp}{time}{text}")
}

/// The text as the beginning of a sentence.
pub(super) fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// Splits `a[i] #2` into the text and the number.
fn occurrence(what: &str) -> Result<(&str, usize)> {
    let Some((text, number)) = what.rsplit_once('#') else {
        return Ok((what.trim(), 1));
    };
    match number.trim().parse() {
        Ok(number) if number > 0 => Ok((text.trim(), number)),
        _ => Err(Error::invalid(
            format!("`{what}`: behind # stands which time is meant, from 1"),
            format!("write \"{} #2\" for the second time", text.trim()),
        )),
    }
}

/// Splits `store a[i]` into the kind and the text.
fn kind_of(text: &str) -> (Option<AccessKind>, &str) {
    let kinds = [AccessKind::Load, AccessKind::Store, AccessKind::Atomic];
    let found =
        kinds.into_iter().find_map(|kind| Some((Some(kind), text.strip_prefix(kind.name())?.strip_prefix(' ')?)));
    found.unwrap_or((None, text))
}

fn squeeze(text: &str) -> String {
    text.chars().filter(|c| !c.is_whitespace()).collect()
}

fn names(access: &Access, squeezed: &str) -> bool {
    access.variable == squeezed || squeeze(&access.text).contains(squeezed)
}

fn nothing(it: &Inspection, what: &str, space: Space) -> Error {
    let (name, method, other, others) = match space {
        Space::Shared => ("shared", "banks", Space::Global, "sectors"),
        _ => ("global", "sectors", Space::Shared, "banks"),
    };
    let all: Vec<&Access> = it.accesses.iter().filter(|access| access.space == space).collect();
    let elsewhere = find_quietly(it, what, other);
    let (text, fix) = if elsewhere {
        let text = format!("`{what}` of {} is no access to {name} memory", warp(it));
        (text, format!("`{others}(\"{what}\")` shows this one"))
    } else if all.is_empty() {
        let text = format!("{} made no access to {name} memory", capital(&warp(it)));
        (text, "look at a warp that does: `kernel.inspect_warp(config, args, block, warp)`".to_string())
    } else {
        let listed = list(all.iter().copied());
        let text = format!("no access to {name} memory fits `{what}`; {} made:\n{listed}", warp(it));
        let first = all[0];
        let example = if first.variable.is_empty() { &first.text } else { &first.variable };
        (text, format!("ask for one of them by a piece of its line or by its variable: `{method}(\"{example}\")`"))
    };
    Error::invalid(text, fix)
}

fn find_quietly(it: &Inspection, what: &str, space: Space) -> bool {
    let squeezed = squeeze(kind_of(occurrence(what).map_or(what, |found| found.0)).1);
    it.accesses.iter().any(|access| access.space == space && names(access, &squeezed))
}

/// One line for each place of the source.
fn list<'a>(accesses: impl Iterator<Item = &'a Access>) -> String {
    let mut lines: Vec<String> = Vec::new();
    for access in accesses {
        let line = access.line.map_or("an unknown line".to_string(), |line| format!("line {line}"));
        let variable = if access.variable.is_empty() { String::new() } else { format!(" of {}", access.variable) };
        let text = format!("  {line}, {}{variable}: {}", access.kind.name(), access.text);
        if !lines.contains(&text) {
            lines.push(text);
        }
    }
    let more = lines.len().saturating_sub(LISTED);
    lines.truncate(LISTED);
    if more > 0 {
        lines.push(format!("  and {more} more"));
    }
    lines.join("\n")
}
