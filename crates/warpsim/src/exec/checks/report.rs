//! Words for findings about addresses.

use crate::decode::Symbol;
use crate::decode::flow::{ANYWHERE, Home};
use crate::exec::access::memory::at_home;
use crate::exec::access::memory::generic;
use crate::exec::blocks::state::{Env, Machine};
use crate::finding::Kind;
use crate::memory::Allocation;
use crate::ptx::types::Space;

/// Notes an access that is misaligned or outside of everything.
pub fn access(env: &mut Env, thread: u32, pc: u32, (space, at): (Space, u64), len: u64, load: bool) {
    beyond(env, thread, pc, (space, at, ANYWHERE), len, load);
}

/// The same, for an address that belongs to known variables.
#[cold]
#[inline(never)]
pub fn beyond(env: &mut Env, thread: u32, pc: u32, (space, at, home): (Space, u64, Home), len: u64, load: bool) {
    let kind = if at & (len - 1) != 0 { Kind::Misaligned } else { Kind::OutOfBounds };
    if env.again(kind, pc) {
        return;
    }
    let verb = if load { "reads" } else { "writes" };
    let (mut variable, place) = describe(env.machine, space, at);
    let by_element = match space {
        Space::Global => element(env.machine, at, len),
        // Bytes that belong to a neighbour, or to nobody.
        Space::Shared if !at_home(space, home, at, len) => owned(env.machine, home).and_then(|symbol| {
            let name = local_name(&symbol.name).to_owned();
            variable = Some(name.clone());
            past((symbol.at, symbol.bytes, &format!("`{name}`")), at, len)
        }),
        _ => None,
    };
    let what = match by_element.filter(|_| kind == Kind::OutOfBounds) {
        Some(element) => format!("{verb} {len} bytes {element}"),
        None => format!("{verb} {len} bytes at {:#x} ({place})", generic(space, at)),
    };
    let hint = if kind == Kind::Misaligned {
        format!("next: make the address a multiple of {len}")
    } else {
        "next: guard the access with the size, as in `if (i < n)`, or check the index".to_owned()
    };
    env.note(kind, pc, thread, Some((generic(space, at), variable)), format!("{what}; {hint}"));
}

/// The variable or parameter nearest to an address, and words for the place.
pub fn describe(machine: &Machine, space: Space, at: u64) -> (Option<String>, String) {
    match space {
        Space::Shared => {
            let size = machine.shared_bytes;
            within(machine, space, at, format!("offset {at} of {size} bytes of shared memory"))
        }
        Space::Local => {
            let size = machine.kernel.layout.local_bytes;
            within(machine, space, at, format!("offset {at} of {size} bytes of local memory"))
        }
        Space::Param => within(machine, space, at, format!("offset {at} of the parameters")),
        _ => global(machine, at),
    }
}

/// The variable that starts at or below an offset of a space, and words with it.
fn within(machine: &Machine, space: Space, at: u64, place: String) -> (Option<String>, String) {
    match last_symbol(machine, space, at) {
        // The compiler's own name for a function's stack is no help.
        Some(symbol) if !symbol.name.starts_with("__local_depot") => {
            let (name, byte) = (local_name(&symbol.name).to_owned(), at - symbol.at);
            let place = format!("{place}, byte {byte} from the start of {name}");
            (Some(name), place)
        }
        symbol => (symbol.map(|s| s.name.clone()), place),
    }
}

/// `words` for `_ZZ7reverseE5words`, C++'s name for a variable of a function: the last length and word of it.
fn local_name(known: &str) -> &str {
    let ends = known.match_indices('E').filter(|_| known.starts_with("_ZZ")).map(|(at, _)| &known[at + 1..]);
    let mut found = ends.filter_map(|rest| {
        let name = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        let length: usize = rest[..rest.len() - name.len()].parse().ok()?;
        (length == name.len()).then_some(name)
    });
    found.next().unwrap_or(known)
}

/// The variable or parameter that an address lies in, and where that starts.
pub fn home(machine: &Machine, space: Space, at: u64) -> (Option<String>, Option<u64>) {
    if space == Space::Global {
        let found = machine.memory.range(at, 1).and_then(|(number, _)| machine.memory.get(number));
        return (found.and_then(|a| owner(machine, a)), found.map(|a| a.base));
    }
    let symbol = last_symbol(machine, space, at);
    (symbol.map(|s| s.name.clone()), symbol.map(|s| s.at))
}

/// Number of the parameter that points to the buffer nearest to an address of global memory.
pub fn parameter(machine: &Machine, at: u64) -> Option<usize> {
    let (space, at) = crate::memory::from_generic(at);
    nearest(machine, at).filter(|_| space == Space::Global).and_then(|a| pointer(machine, a))
}

/// The first parameter that points to the start of an allocation.
fn pointer(machine: &Machine, allocation: &Allocation) -> Option<usize> {
    let layout = &machine.kernel.layout;
    layout.params.iter().position(|&symbol| {
        let symbol = &layout.symbols[symbol as usize];
        symbol.bytes == 8 && machine.params.load(symbol.at as usize, 8) == allocation.base
    })
}

/// Name of an allocation: its variable's, or the parameter's that points to its start.
fn owner(machine: &Machine, allocation: &Allocation) -> Option<String> {
    allocation.name.clone().or_else(|| pointer(machine, allocation).map(|index| format!("parameter {index}")))
}

/// The last symbol that starts at or below an offset.
fn last_symbol<'a>(machine: &'a Machine, space: Space, at: u64) -> Option<&'a Symbol> {
    let symbols = machine.kernel.layout.symbols.iter().filter(|s| s.space == space && s.at <= at);
    symbols.max_by_key(|s| s.at)
}

/// The allocation that an address lies in, or is nearest to.
fn nearest<'a>(machine: &'a Machine, at: u64) -> Option<&'a Allocation> {
    let below = machine.memory.below(at);
    // Farther away than any buffer is large, no name helps.
    let (mut number, mut best) = (usize::MAX, 1 << 32);
    // A negative index is nearer to the allocation above.
    for candidate in [below.unwrap_or(0), below.map_or(0, |b| b + 1)] {
        if let Some(allocation) = machine.memory.get(candidate) {
            let end = allocation.base + allocation.bytes.len() as u64;
            let distance = if at < allocation.base { allocation.base - at } else { at.saturating_sub(end) };
            if distance < best {
                (number, best) = (candidate, distance);
            }
        }
    }
    machine.memory.get(number)
}

/// The shared variable that has just these bytes.
fn owned<'a>(machine: &'a Machine, home: Home) -> Option<&'a Symbol> {
    let mut shared = machine.kernel.layout.symbols.iter().filter(|s| s.space == Space::Shared);
    shared.find(|s| s.bytes != 0 && (s.at, s.at + s.bytes) == (home.0.into(), home.1.into()))
}

/// A place outside the nearest buffer in elements of the access's size, as the reader's index counts them.
fn element(machine: &Machine, at: u64, len: u64) -> Option<String> {
    let allocation = nearest(machine, at).filter(|_| at >= 4096)?;
    let (base, size) = (allocation.base, allocation.bytes.len() as u64);
    past((base, size, &owner(machine, allocation)?), at, len)
}

/// A place outside of what begins at `base`.
fn past((base, size, owner): (u64, u64, &str), at: u64, len: u64) -> Option<String> {
    if !at.abs_diff(base).is_multiple_of(len) || !size.is_multiple_of(len) {
        return None;
    }
    let (number, count) = (at.abs_diff(base) / len, size / len);
    let elements = if count == 1 { "element" } else { "elements" };
    Some(match at < base {
        true => format!("before the start of {owner}, at index -{number}"),
        false => format!("past the end of {owner}, at index {number}: it has {count} {elements} of {len} bytes"),
    })
}

fn global(machine: &Machine, at: u64) -> (Option<String>, String) {
    if at < 4096 {
        return (None, "a null pointer".into());
    }
    let Some(allocation) = nearest(machine, at) else { return (None, "no allocation".into()) };
    let (base, size) = (allocation.base, allocation.bytes.len() as u64);
    let name = owner(machine, allocation);
    let owner = name.clone().unwrap_or_else(|| "the nearest buffer".into());
    let place = if at < base {
        format!("{} bytes before {owner}", base - at)
    } else if at >= base + size {
        format!("{} bytes past the end of {owner}, which has {size}", at - base - size)
    } else {
        format!("offset {} of {owner}, which has {size} bytes", at - base)
    };
    (name, place)
}
