//! PTX as rustc prints it to PTX as NVRTC does: `.loc` names lines of the kernel's text alone.
//!
//! A `.loc` of rustc's is often a line of `core` or of the device library, whose functions were inlined. Who called them stands
//! in the debug information only (DWARF 2: `DW_TAG_inlined_subroutine`, with the place of the call), which is read here and
//! then left out: with it the driver would compile the kernel without optimisation (`.target sm_90, debug`).

use std::collections::BTreeMap;

/// The PTX of a kernel whose file is called `name`.
pub(super) fn of_kernel(ptx: &str, name: &str) -> String {
    let own = own_file(ptx, name);
    let calls = own.map(|own| Calls::read(ptx, own)).unwrap_or_default();
    let mut text = String::with_capacity(ptx.len());
    for (number, line) in code(ptx).lines().enumerate() {
        let word = line.split_whitespace().next().unwrap_or_default();
        match word {
            ".loc" => {
                if let Some((own, (line, column))) = own.zip(calls.place(line, number)) {
                    text += &format!("\t.loc\t{own} {line} {column}\n");
                }
            }
            ".target" => text += &format!("{}\n", line.replace(", debug", "")),
            // Marks for the debug information, which would only cut the code into pieces.
            _ if word.starts_with("$L__") && word.ends_with(':') && !word.starts_with("$L__BB") => {}
            ".file" => {}
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    if let Some(own) = own {
        text += &format!("\t.file\t{own} \"{name}\"\n");
    }
    text
}

/// What stands before the debug information.
fn code(ptx: &str) -> &str {
    ptx.find("\n\t.section").map_or(ptx, |end| &ptx[..=end])
}

/// The number of the kernel's own file.
fn own_file(ptx: &str, name: &str) -> Option<u64> {
    let files = ptx.lines().filter_map(|line| line.trim_start().strip_prefix(".file"));
    let own = |rest: &str| {
        let (number, path) = rest.trim().split_once(' ')?;
        (path.trim().trim_matches('"').rsplit('/').next() == Some(name)).then(|| number.parse().ok()).flatten()
    };
    files.filter_map(own).next()
}

/// A call that was inlined.
#[derive(Debug, Default, Clone, PartialEq)]
struct Call {
    /// Lines of the PTX that came of it, as far as one range says.
    from: usize,
    to: usize,
    /// Where the function stands that was called.
    file: u64,
    line: u64,
    /// Where it was called: file, line, column.
    caller: (u64, u64, u64),
    /// The call around it.
    outer: Option<usize>,
}

/// All of them.
#[derive(Debug, Default)]
struct Calls {
    own: u64,
    all: Vec<Call>,
}

impl Calls {
    fn read(ptx: &str, own: u64) -> Calls {
        Calls { own, all: read(ptx).unwrap_or_default() }
    }

    /// Line and column of the kernel's text for a `.loc` at that line of the PTX; `None` where there is none.
    fn place(&self, loc: &str, at: usize) -> Option<(u64, u64)> {
        let mut numbers = loc.split_whitespace().skip(1).map_while(|word| word.parse::<u64>().ok());
        let (file, line, column) = (numbers.next()?, numbers.next()?, numbers.next().unwrap_or(0));
        if file == self.own {
            // Line 0 is code that belongs to no line.
            return (line > 0).then_some((line, column));
        }
        let around = self.all.iter().filter(|call| call.from <= at && at < call.to);
        // The innermost function whose text can hold that line: ranges of calls overlap where the code was moved about.
        let of_file = around.clone().filter(|call| call.file == file && call.line <= line);
        let innermost = of_file.max_by_key(|call| (call.line, usize::MAX - (call.to - call.from)));
        let mut call = innermost.or_else(|| around.min_by_key(|call| call.to - call.from))?;
        while call.caller.0 != self.own {
            call = self.all.get(call.outer?)?;
        }
        Some((call.caller.1, call.caller.2))
    }
}

/// A section's bytes; labels stand beside them, by position.
#[derive(Debug, Default)]
struct Section<'a> {
    bytes: Vec<u8>,
    labels: BTreeMap<usize, &'a str>,
}

impl<'a> Section<'a> {
    /// The section of that name: `.b8 1,2`, `.b32 17`, `.b64 $L__tmp3`.
    fn read(ptx: &'a str, name: &str) -> Option<Section<'a>> {
        let start = ptx.split_once(&format!("\t.section\t{name}\n"))?.1;
        let mut section = Section::default();
        for line in start.lines().map(str::trim).skip_while(|line| *line != "{").skip(1).take_while(|line| *line != "}")
        {
            let Some((kind, values)) = line.split_once(char::is_whitespace) else { continue };
            let size = match kind {
                ".b8" => 1,
                ".b16" => 2,
                ".b32" => 4,
                ".b64" => 8,
                _ => continue,
            };
            for value in values.split(',').map(str::trim) {
                let number = value.parse::<i64>().unwrap_or_else(|_| {
                    section.labels.insert(section.bytes.len(), value);
                    0
                });
                section.bytes.extend(&number.to_le_bytes()[..size]);
            }
        }
        Some(section)
    }
}

/// Reads numbers one after the other.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn number(&mut self, size: usize) -> Option<u64> {
        let bytes = self.bytes.get(self.at..self.at + size)?;
        self.at += size;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    }

    /// LEB128. (Of a signed one the value is of no interest here.)
    fn leb(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.number(1)?;
            number |= (byte & 0x7f).checked_shl(shift)?;
            shift += 7;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
    }

    /// An attribute's value, as far as it is a number.
    fn form(&mut self, form: u64) -> Option<u64> {
        let skipped = match form {
            0x01 | 0x07 => return self.number(8),                      // addr, data8
            0x05 | 0x12 => return self.number(2),                      // data2, ref2
            0x06 | 0x0e | 0x13 | 0x17 | 0x10 => return self.number(4), // data4, strp, ref4, sec_offset, ref_addr
            0x0b | 0x0c | 0x11 => return self.number(1),               // data1, flag, ref1
            0x0d | 0x0f | 0x15 => return self.leb(),                   // sdata, udata, ref_udata
            0x19 => return Some(1),                                    // flag_present
            0x08 => self.bytes.get(self.at..)?.iter().position(|&byte| byte == 0)? + 1, // string
            0x03 => self.number(2)? as usize,                          // block2
            0x04 => self.number(4)? as usize,                          // block4
            0x0a => self.number(1)? as usize,                          // block1
            0x09 | 0x18 => self.leb()? as usize,                       // block, exprloc
            _ => return None,
        };
        self.at += skipped;
        Some(0)
    }
}

/// What one entry's code stands for: its tag, whether others lie in it, its attributes with their forms.
type Abbreviation = (u64, bool, Vec<(u64, u64)>);

fn abbreviations(bytes: &[u8]) -> Option<BTreeMap<u64, Abbreviation>> {
    let mut reader = Reader { bytes, at: 0 };
    let mut all = BTreeMap::new();
    while let Some(code) = reader.leb().filter(|&code| code != 0) {
        let (tag, children) = (reader.leb()?, reader.number(1)? != 0);
        let mut attributes = Vec::new();
        loop {
            match (reader.leb()?, reader.leb()?) {
                (0, 0) => break,
                pair => attributes.push(pair),
            }
        }
        all.insert(code, (tag, children, attributes));
    }
    Some(all)
}

const INLINED_SUBROUTINE: u64 = 0x1d;
const LOW_PC: u64 = 0x11;
const HIGH_PC: u64 = 0x12;
const ORIGIN: u64 = 0x31;
const DECL_FILE: u64 = 0x3a;
const DECL_LINE: u64 = 0x3b;
const CALL_COLUMN: u64 = 0x57;
const CALL_FILE: u64 = 0x58;
const CALL_LINE: u64 = 0x59;

/// All inlined calls of the PTX's debug information; `None` where it is of another kind than LLVM writes today.
fn read(ptx: &str) -> Option<Vec<Call>> {
    let labels: BTreeMap<&str, usize> = (0..)
        .zip(code(ptx).lines())
        .filter_map(|(number, line)| Some((line.trim().strip_suffix(':')?, number)))
        .collect();
    let abbreviations = abbreviations(&Section::read(ptx, ".debug_abbrev")?.bytes)?;
    let info = Section::read(ptx, ".debug_info")?;
    let mut reader = Reader { bytes: &info.bytes, at: 0 };
    let end = reader.number(4)? as usize + 4;
    // Version, offset of the abbreviations, size of an address.
    reader.at += 7;
    let (mut calls, mut origins, mut functions) = (Vec::new(), Vec::new(), BTreeMap::new());
    // For each open entry: the inlined call that it lies in.
    let mut open: Vec<Option<usize>> = Vec::new();
    while reader.at < end {
        let offset = reader.at as u64;
        let code = reader.leb()?;
        if code == 0 {
            open.pop();
            continue;
        }
        let (tag, children, attributes) = abbreviations.get(&code)?;
        let (mut found, mut marks) = (BTreeMap::new(), BTreeMap::new());
        for &(attribute, form) in attributes {
            marks.insert(attribute, info.labels.get(&reader.at).and_then(|label| labels.get(label)));
            found.insert(attribute, reader.form(form)?);
        }
        let value = |attribute| found.get(&attribute).copied().unwrap_or(0);
        let mut inside = open.last().copied().flatten();
        functions.insert(offset, (value(DECL_FILE), value(DECL_LINE)));
        if *tag == INLINED_SUBROUTINE {
            let mark = |attribute| marks.get(&attribute).copied().flatten().copied();
            calls.push(Call {
                from: mark(LOW_PC).unwrap_or(0),
                to: mark(HIGH_PC).unwrap_or(0),
                caller: (value(CALL_FILE), value(CALL_LINE), value(CALL_COLUMN)),
                outer: inside,
                ..Call::default()
            });
            origins.push(value(ORIGIN));
            inside = Some(calls.len() - 1);
        }
        if *children {
            open.push(inside);
        }
    }
    for (call, origin) in calls.iter_mut().zip(origins) {
        (call.file, call.line) = functions.get(&origin).copied().unwrap_or_default();
    }
    Some(calls)
}
