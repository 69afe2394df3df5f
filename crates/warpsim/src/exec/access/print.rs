//! `printf` of a kernel, which the PTX calls `vprintf(format, arguments)`.

use super::memory::find;
use crate::exec::blocks::state::{Env, Warp};
use crate::exec::values::lanes::each;
use crate::finding::Kind;
use crate::memory::from_generic;
use crate::op::{Assertion, Print};
use crate::ptx::types::Space;

/// Text that a core keeps of a launch, in bytes; CUDA's own buffer holds 1 MiB.
const MAX_TEXT: usize = 1 << 20;
/// Characters of a format or a `%s`.
const MAX_STRING: u64 = 4096;

/// Prints in the lanes of the mask, lowest first.
#[cold]
#[inline(never)]
pub fn run(env: &mut Env, warp: &mut Warp, print: &Print, mask: u32) {
    each(mask, |lane| {
        let local = |slot: u32| crate::memory::window(Space::Local) + warp.wide[slot as usize][lane];
        let (format, arguments, result) = (local(print.format), local(print.arguments), print.result.map(local));
        let at = peek(env, warp, lane, format, 8).unwrap_or(0);
        let arguments = peek(env, warp, lane, arguments, 8).unwrap_or(0);
        // A loop that prints for ever: what is not kept is not made either.
        if env.printed_bytes >= MAX_TEXT
            && let Some(count) = env.printf_results.get(&at)
        {
            let count = *count;
            result.into_iter().for_each(|result| poke(warp, lane, result, count));
            return;
        }
        let (text, count) = match string(env, warp, lane, at) {
            Some(format) => expand(&format, &mut Arguments { env, warp, lane, at: arguments }),
            None => (String::from("(a format outside memory)\n"), -1),
        };
        env.printf_results.insert(at, count);
        if env.printed_bytes < MAX_TEXT {
            env.printed_bytes += text.len();
            env.printed.entry(env.block.0).or_default().push_str(&text);
        }
        if let Some(result) = result {
            poke(warp, lane, result, count);
        }
    });
}

/// Tells of a failed assertion, and stops the kernel.
#[cold]
#[inline(never)]
pub fn assertion(env: &mut Env, warp: &mut Warp, pc: u32, a: &Assertion, mask: u32) {
    let lane = mask.trailing_zeros() as usize;
    let [what, file, line, function] =
        a.0.map(|slot| crate::memory::window(Space::Local) + warp.wide[slot as usize][lane]);
    let mut text = |at: u64| {
        let at = peek(env, warp, lane, at, 8)?;
        string(env, warp, lane, at)
    };
    let [what, file, function] = [what, file, function].map(|at| text(at).unwrap_or_default());
    let line = peek(env, warp, lane, line, 4).unwrap_or(0);
    let place = file.rsplit(['/', '\\']).next().unwrap_or("");
    let message =
        format!("{place}:{line}: {function}: assertion `{what}` failed; next: look at the values it compares");
    env.note(Kind::Trap, pc, warp.first + lane as u32, None, message);
}

/// Reads an element at a generic address.
fn peek(env: &mut Env, warp: &mut Warp, lane: usize, address: u64, len: u8) -> Option<u64> {
    let (space, at) = from_generic(address);
    let shared = std::mem::take(&mut env.shared);
    let value = match at.is_multiple_of(len.into()) {
        true => find(env, &warp.local, &shared, space, (lane, at), len.into()).map(|(bytes, at)| bytes.load(at, len)),
        false => None,
    };
    env.shared = shared;
    value
}

/// The result of `vprintf`: the number of arguments, or -1.
fn poke(warp: &Warp, lane: usize, address: u64, count: i32) {
    let size = warp.local.len() / crate::exec::values::lanes::LANES;
    let at = lane * size + from_generic(address).1 as usize;
    if at + 4 <= warp.local.len() {
        warp.local.store(at, 4, u64::from(count as u32));
    }
}

fn string(env: &mut Env, warp: &mut Warp, lane: usize, at: u64) -> Option<String> {
    let mut bytes = Vec::new();
    for offset in 0..MAX_STRING {
        match peek(env, warp, lane, at.wrapping_add(offset), 1)? as u8 {
            0 => break,
            byte => bytes.push(byte),
        }
    }
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Arguments lie one after the other, each aligned to its size.
struct Arguments<'x, 'a> {
    env: &'x mut Env<'a>,
    warp: &'x mut Warp,
    lane: usize,
    at: u64,
}

impl Arguments<'_, '_> {
    fn next(&mut self, len: u8) -> u64 {
        let at = self.at.next_multiple_of(len.into());
        self.at = at + u64::from(len);
        peek(self.env, self.warp, self.lane, at, len).unwrap_or(0)
    }
}

/// The text of a format, and how many arguments it took.
fn expand(format: &str, arguments: &mut Arguments) -> (String, i32) {
    let (mut out, mut count) = (String::new(), 0);
    let mut rest = format;
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            out.push('%');
            rest = after;
            continue;
        }
        let end = rest.find(|c: char| !"-+ #0123456789.hlLzjt".contains(c)).unwrap_or(rest.len());
        let (options, after) = rest.split_at(end);
        let Some(kind) = after.chars().next() else { break };
        rest = &after[kind.len_utf8()..];
        count += 1;
        out.push_str(&one(kind, &Options::read(options), arguments));
    }
    out.push_str(rest);
    (out, count)
}

struct Options {
    flags: String,
    width: usize,
    precision: Option<usize>,
    wide: bool,
}

impl Options {
    fn read(text: &str) -> Self {
        let flags: String = text.chars().take_while(|c| "-+ #0".contains(*c)).collect();
        let size = text[flags.len()..].trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let (width, precision) = match size.split_once('.') {
            Some((width, precision)) => (width, Some(precision.parse().unwrap_or(0))),
            None => (size, None),
        };
        // A kernel's mistake must not make gigabytes of blanks.
        let limit = |n: usize| n.min(MAX_STRING as usize);
        let wide = text.contains(['l', 'j', 'z', 't']);
        Self { flags, width: limit(width.parse().unwrap_or(0)), precision: precision.map(limit), wide }
    }

    /// Sign and padding.
    fn pad(&self, sign: &str, digits: &str, zeros: bool) -> String {
        let fill = self.width.saturating_sub(sign.len() + digits.chars().count());
        match (self.flags.contains('-'), zeros && self.flags.contains('0')) {
            (true, _) => format!("{sign}{digits}{}", " ".repeat(fill)),
            (false, true) => format!("{sign}{}{digits}", "0".repeat(fill)),
            (false, false) => format!("{}{sign}{digits}", " ".repeat(fill)),
        }
    }

    fn sign(&self, negative: bool) -> &'static str {
        match negative {
            true => "-",
            false if self.flags.contains('+') => "+",
            false if self.flags.contains(' ') => " ",
            false => "",
        }
    }
}

fn one(kind: char, options: &Options, arguments: &mut Arguments) -> String {
    let whole =
        |text: String| format!("{}{text}", "0".repeat(options.precision.unwrap_or(0).saturating_sub(text.len())));
    let size = if options.wide { 8 } else { 4 };
    match kind {
        'd' | 'i' => {
            let bits = arguments.next(size);
            let value = if options.wide { bits as i64 } else { i64::from(bits as i32) };
            options.pad(options.sign(value < 0), &whole(value.unsigned_abs().to_string()), options.precision.is_none())
        }
        'u' | 'x' | 'X' | 'o' => {
            let value = arguments.next(size);
            let sharp = options.flags.contains('#') && value != 0;
            let (prefix, digits) = match kind {
                'x' => ("0x", format!("{value:x}")),
                'X' => ("0X", format!("{value:X}")),
                'o' => ("0", format!("{value:o}")),
                _ => ("", value.to_string()),
            };
            options.pad(if sharp { prefix } else { "" }, &whole(digits), options.precision.is_none())
        }
        'f' | 'F' | 'e' | 'E' | 'g' | 'G' => {
            let value = f64::from_bits(arguments.next(8));
            let digits = float(kind, value.abs(), options.precision.unwrap_or(6));
            options.pad(options.sign(value.is_sign_negative()), &digits, value.is_finite())
        }
        'c' => options.pad("", &char::from(arguments.next(4) as u8).to_string(), false),
        'p' => options.pad("", &format!("{:#x}", arguments.next(8)), false),
        's' => {
            let at = arguments.next(8);
            let text = string(arguments.env, arguments.warp, arguments.lane, at).unwrap_or_else(|| "(null)".into());
            let most = options.precision.unwrap_or(usize::MAX);
            options.pad("", &text.chars().take(most).collect::<String>(), false)
        }
        other => format!("%{other}"),
    }
}

/// A float that is not negative, as C prints it.
fn float(kind: char, value: f64, precision: usize) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "nan".into() } else { "inf".into() };
    }
    match kind.to_ascii_lowercase() {
        'f' => format!("{value:.precision$}"),
        'e' => exponent(value, precision, kind),
        _ => {
            let digits = precision.max(1);
            let scientific = exponent(value, digits - 1, if kind == 'G' { 'E' } else { 'e' });
            let (mantissa, power) = scientific.split_once(['e', 'E']).unwrap_or((&scientific, "0"));
            let power: i32 = power.parse().unwrap_or(0);
            let trim = |text: &str| match text.contains('.') {
                true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
                false => text.to_owned(),
            };
            if power < -4 || power >= digits as i32 {
                format!("{}{}", trim(mantissa), &scientific[mantissa.len()..])
            } else {
                trim(&format!("{value:.*}", (digits as i32 - 1 - power) as usize))
            }
        }
    }
}

/// With at least two digits of exponent and its sign.
fn exponent(value: f64, precision: usize, letter: char) -> String {
    let text = format!("{value:.precision$e}");
    let (mantissa, power) = text.split_once('e').unwrap_or((&text, "0"));
    let power: i32 = power.parse().unwrap_or(0);
    let sign = if power < 0 { '-' } else { '+' };
    format!("{mantissa}{letter}{sign}{:02}", power.abs())
}
