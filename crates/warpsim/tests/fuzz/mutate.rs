//! Small changes to PTX: most of them still load, so that what runs is strange and not only what is read.

use crate::common::Random;

const NUMBERS: [&str; 12] =
    ["0", "1", "-1", "3", "31", "32", "255", "4096", "2147483647", "-2147483648", "9999999999", "0x7ff0000000000000"];

/// Words that may stand in for others.
pub struct Words {
    all: Vec<String>,
    /// Parts of instructions' names: `.f32`, `.shared`, `.rn`.
    modifiers: Vec<String>,
}

impl Words {
    pub fn of(texts: &[String]) -> Self {
        let sorted = |mut words: Vec<String>| {
            words.sort();
            words.dedup();
            words
        };
        let all = sorted(texts.iter().flat_map(|t| t.split_whitespace()).map(str::to_owned).collect());
        let names = all.iter().filter(|w| w.contains('.') && w.starts_with(|c: char| c.is_ascii_lowercase()));
        let modifiers = names.flat_map(|w| w.split('.').skip(1)).map(|m| m.trim_end_matches(';').to_owned());
        Self { modifiers: sorted(modifiers.collect()), all }
    }
}

fn pick<'a, T>(from: &'a [T], random: &mut Random) -> Option<&'a T> {
    (!from.is_empty()).then(|| &from[random.bits() as usize % from.len()])
}

/// Changes one to four places.
pub fn mutate(text: &str, words: &Words, random: &mut Random) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    for _ in 0..1 + random.bits() % 4 {
        let (at, other) = (random.bits() as usize % lines.len(), random.bits() as usize % lines.len());
        match random.bits() % 16 {
            0 => lines.swap(at, other),
            1 => drop(lines.remove(at)),
            2 => lines.insert(at, lines[other].clone()),
            3 => byte(&mut lines[at], random),
            4 => word(&mut lines[at], words, random),
            5..8 => modifier(&mut lines[at], words, random),
            8..11 => number(&mut lines[at], random),
            11 => name(text, &mut lines[at], "$L", random),
            _ => name(text, &mut lines[at], "%", random),
        }
        if lines.is_empty() {
            break;
        }
    }
    lines.join("\n")
}

fn byte(line: &mut String, random: &mut Random) {
    let mut bytes = line.clone().into_bytes();
    if !bytes.is_empty() {
        let place = random.bits() as usize % bytes.len();
        bytes[place] = b' ' + (random.bits() % 95) as u8;
    }
    *line = String::from_utf8_lossy(&bytes).into_owned();
}

fn word(line: &mut String, words: &Words, random: &mut Random) {
    let mut parts: Vec<&str> = line.split(' ').collect();
    let part = random.bits() as usize % parts.len();
    if let Some(word) = pick(&words.all, random) {
        parts[part] = word;
    }
    *line = parts.join(" ");
}

fn modifier(line: &mut String, words: &Words, random: &mut Random) {
    let Some(start) = line.find(|c: char| c.is_ascii_lowercase()) else { return };
    let end = line[start..].find([' ', '\t', ';']).map_or(line.len(), |at| start + at);
    let mut parts: Vec<&str> = line[start..end].split('.').collect();
    let part = random.bits() as usize % parts.len();
    if let (1.., Some(new)) = (part, pick(&words.modifiers, random)) {
        parts[part] = new;
    }
    *line = format!("{}{}{}", &line[..start], parts.join("."), &line[end..]);
}

fn number(line: &mut String, random: &mut Random) {
    let digits: Vec<usize> = line
        .char_indices()
        .filter(|&(at, c)| c.is_ascii_digit() && line[..at].ends_with([' ', '\t', '+', '-', '<', '[', ',']))
        .map(|(at, _)| at)
        .collect();
    let Some(&at) = pick(&digits, random) else { return };
    let end = line[at..].find(|c: char| !c.is_ascii_alphanumeric()).map_or(line.len(), |n| at + n);
    let new = pick(&NUMBERS, random).copied().unwrap_or("0");
    *line = format!("{}{new}{}", &line[..at], &line[end..]);
}

/// One register (or label) in place of another: of its own kind two times in three.
fn name(text: &str, line: &mut String, sign: &str, random: &mut Random) {
    let named = |t: &str| -> Vec<(usize, usize)> {
        let end =
            |at: usize| t[at + 1..].find(|c: char| !c.is_alphanumeric() && c != '_').map_or(t.len(), |n| at + 1 + n);
        t.match_indices(sign).map(|(at, _)| (at, end(at))).collect()
    };
    let here = named(line);
    let Some(&(from, to)) = pick(&here, random) else { return };
    let kind = line[from..to].trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let alike = !random.bits().is_multiple_of(3);
    let all = named(text);
    let found: Vec<&str> = all.iter().map(|&(a, b)| &text[a..b]).collect();
    let fitting: Vec<&str> =
        found.iter().copied().filter(|w| !alike || w.trim_end_matches(|c: char| c.is_ascii_digit()) == kind).collect();
    let Some(new) = pick(&fitting, random) else { return };
    *line = format!("{}{new}{}", &line[..from], &line[to..]);
}
