//! No cycle between the modules of a crate, for every crate of the workspace: who reads one file then knows what it can
//! do without. Cargo forbids cycles between crates, and nothing forbids them between modules but this test. And no two public
//! types of one name: who finds a name on a page finds one type.
//!
//! A module is a file. It depends on another where its code names it (`use crate::a::B`, `super::a::b()`, `a::c`);
//! tests, comments and `pub use` (a crate's front door) do not count, and a name that a module only passes on leads to
//! where it is defined.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

/// Cycles that are still there: crate, modules, and why. A new one fails the test; so does one here that is gone.
const KNOWN: &[(&str, &[&str], &str)] = &[
    (
        "warpsim",
        &["decode", "decode::call", "decode::pointer", "decode::recursion"],
        "the decoder puts in the bodies of functions, which are decoded in turn",
    ),
    (
        "warpsim",
        &[
            "exec::access::atomic",
            "exec::access::bulk",
            "exec::access::cluster",
            "exec::access::fast",
            "exec::access::matrix",
            "exec::access::memory",
            "exec::access::print",
            "exec::blocks::block",
            "exec::blocks::launch",
            "exec::blocks::resident",
            "exec::blocks::state",
            "exec::blocks::wait",
            "exec::checks::check",
            "exec::checks::report",
            "exec::checks::sums",
            "exec::checks::updates",
            "exec::values::rare",
            "exec::values::tensor",
            "exec::values::wgmma",
            "exec::warps::advance",
            "exec::warps::calls",
            "exec::warps::exchange",
            "exec::warps::gather",
            "exec::warps::mbarrier",
            "exec::warps::rest",
            "exec::warps::strands",
            "exec::warps::sync",
            "exec::warps::warp",
            "exec::warps::watch",
        ],
        "one machine: an instruction changes warps, memory and checks at once, and reaches into the blocks of its cluster",
    ),
    ("warpsim", &["ptx::location", "ptx::parser"], "the parser places its errors, and locations are parsed"),
    ("cli", &["crate", "demo", "demo::full", "demo::load", "gpt", "monitor", "train"], "siblings that use each other"),
    (
        "cpu",
        &["convolution", "convolution::columns", "convolution::direct", "convolution::winograd"],
        "the parent defines what its children use, and calls them",
    ),
];

/// A module: the paths that its code names, the names that it passes on or brings in, and what it defines below it.
#[derive(Default)]
struct Module {
    /// Paths named in code, as they stand there.
    named: BTreeSet<Vec<String>>,
    /// A name, and the path that a `use` or `pub use` gives it.
    names: BTreeMap<String, Vec<String>>,
    /// What `pub mod` and `pub use` pass on, under that name.
    passed_on: BTreeMap<String, Vec<String>>,
    /// Modules whose every name is passed on (`pub use a::*`).
    globs: Vec<Vec<String>>,
    /// Types that it declares `pub`, whether or not another crate reaches them.
    types: BTreeSet<String>,
}

/// A module's path below the crate's root.
type ModulePath = Vec<String>;

/// The source without comments, strings, characters and the modules of tests.
fn code(text: &str) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(first) = rest.chars().next() {
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |at| at + 2)
        } else if rest.starts_with("r\"")
            || rest.starts_with("r#") && rest[1..].trim_start_matches('#').starts_with('"')
        {
            let hashes = rest[1..].len() - rest[1..].trim_start_matches('#').len();
            let end = format!("\"{}", "#".repeat(hashes));
            rest[2 + hashes..].find(&end).map_or(rest.len(), |at| 2 + hashes + at + end.len())
        } else if first == '"' {
            let mut escaped = false;
            let end = rest.char_indices().skip(1).find(|(_, c)| {
                let ends = *c == '"' && !escaped;
                escaped = *c == '\\' && !escaped;
                ends
            });
            end.map_or(rest.len(), |(at, _)| at + 1)
        } else if first == '\'' {
            // A character, or else a lifetime.
            let mut chars = rest.char_indices().skip(1);
            match (chars.next(), chars.next()) {
                (Some((_, '\\')), _) => rest[3..].find('\'').map_or(1, |at| at + 4),
                (Some(_), Some((at, '\''))) => at + 1,
                _ => 1,
            }
        } else {
            0
        };
        if skip > 0 {
            out.push(' ');
            rest = &rest[skip..];
        } else {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    without_tests(&out)
}

fn without_tests(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = ["#[cfg(test)]", "#[cfg(all(test"].iter().filter_map(|mark| rest.find(mark)).min() {
        out += &rest[..at];
        let item = &rest[at..];
        // To the end of the item: its closing brace, or a semicolon before any brace.
        let mut depth = 0;
        let end = item.char_indices().find(|(_, c)| {
            depth += match c {
                '{' => 1,
                '}' => -1,
                _ => 0,
            };
            depth == 0 && matches!(c, '}' | ';')
        });
        rest = end.map_or("", |(at, _)| &item[at + 1..]);
    }
    out + rest
}

/// Identifiers and signs; `::` is one sign.
fn tokens(code: &str) -> Vec<String> {
    let mut tokens: Vec<String> = Vec::new();
    let mut chars = code.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_alphanumeric() || c == '_' {
            let mut word = c.to_string();
            while let Some(next) = chars.next_if(|next| next.is_alphanumeric() || *next == '_') {
                word.push(next);
            }
            tokens.push(word);
        } else if c == ':' && chars.next_if_eq(&':').is_some() {
            tokens.push("::".to_string());
        } else if !c.is_whitespace() {
            tokens.push(c.to_string());
        }
    }
    tokens
}

/// The paths of a `use` tree from token `at` on, each with the name that it gives; and the token behind the tree.
fn tree(tokens: &[String], mut at: usize, prefix: &[String], found: &mut Vec<(ModulePath, String)>) -> usize {
    let mut path = prefix.to_vec();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    at = tree(tokens, at, &path, found);
                    at += usize::from(tokens.get(at).is_some_and(|token| token == ","));
                }
                return at + 1;
            }
            Some("::") => at += 1,
            Some("as") => {
                found.push((path, tokens[at + 1].clone()));
                return at + 2;
            }
            Some(word) if word.starts_with(|c: char| c.is_alphanumeric() || c == '_' || c == '*') => {
                path.push(word.to_string());
                at += 1;
            }
            _ => {
                let name = path.last().cloned().unwrap_or_default();
                if name == "self" {
                    path.pop();
                    let name = path.last().cloned().unwrap_or_default();
                    found.push((path, name));
                } else {
                    found.push((path, name));
                }
                return at;
            }
        }
    }
}

fn parse(text: &str) -> Module {
    let tokens = tokens(&code(text));
    let mut module = Module::default();
    let (mut at, mut depth) = (0, 0);
    while at < tokens.len() {
        depth += i32::from(tokens[at] == "{") - i32::from(tokens[at] == "}");
        if depth == 0 && at > 0 && tokens[at - 1] == "pub" {
            match tokens[at].as_str() {
                "struct" | "enum" | "trait" | "type" | "union" => _ = module.types.insert(tokens[at + 1].clone()),
                "unsafe" if tokens[at + 1] == "trait" => _ = module.types.insert(tokens[at + 2].clone()),
                "mod" => _ = module.passed_on.insert(tokens[at + 1].clone(), vec![tokens[at + 1].clone()]),
                _ => {}
            }
        }
        if tokens[at] == "use" {
            let everywhere = at > 0 && tokens[at - 1] == "pub";
            let public = everywhere || at > 0 && tokens[at - 1] == ")";
            let mut found = Vec::new();
            at = tree(&tokens, at + 1, &[], &mut found);
            for (mut path, name) in found {
                if name == "*" {
                    path.pop();
                    module.globs.extend(everywhere.then(|| path.clone()));
                } else {
                    if everywhere {
                        module.passed_on.insert(name.clone(), path.clone());
                    }
                    module.names.insert(name, path.clone());
                }
                if !public {
                    module.named.insert(path);
                }
            }
            continue;
        }
        if tokens.get(at + 1).is_some_and(|next| next == "::") && (at == 0 || tokens[at - 1] != "::") {
            let mut path = vec![tokens[at].clone()];
            while tokens.get(at + 1).is_some_and(|next| next == "::")
                && tokens.get(at + 2).is_some_and(|word| word.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
            {
                path.push(tokens[at + 2].clone());
                at += 2;
            }
            module.named.insert(path);
        }
        at += 1;
    }
    module
}

/// The module in which a path, written in module `from`, ends.
fn resolve(
    modules: &BTreeMap<ModulePath, Module>,
    from: &[String],
    path: &[String],
    depth: usize,
) -> Option<ModulePath> {
    let mut here = from.to_vec();
    let mut rest = path;
    match rest.first()?.as_str() {
        "crate" => (here, rest) = (Vec::new(), &rest[1..]),
        "self" => rest = &rest[1..],
        "super" => {}
        word => {
            let mut child = here.clone();
            child.push(word.to_string());
            let named = modules[from].names.get(word);
            if !modules.contains_key(&child) && (named.is_none() || named.is_some_and(|path| path[..] == rest[..1])) {
                return None; // another crate, or a type's own function
            }
        }
    }
    while rest.first().is_some_and(|word| word == "super") {
        here.pop();
        rest = &rest[1..];
    }
    while let Some(word) = rest.first() {
        let mut child = here.clone();
        child.push(word.clone());
        if modules.contains_key(&child) {
            (here, rest) = (child, &rest[1..]);
            continue;
        }
        if depth > 0 {
            let module = modules.get(&here)?;
            if let Some(target) = module.names.get(word).filter(|target| target.len() > 1 || *target != &rest[..1]) {
                let mut whole = target.clone();
                whole.extend_from_slice(&rest[1..]);
                return resolve(modules, &here, &whole, depth - 1);
            }
            // A name that is passed on by `pub use a::*`: it is taken to lie there if that module knows it.
        }
        break;
    }
    modules.contains_key(&here).then_some(here)
}

fn read(folder: &Path, module: &[String], modules: &mut BTreeMap<ModulePath, Module>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_string();
        let beside_library = stem == "main" && folder.join("lib.rs").exists();
        if stem == "tests" || stem.ends_with("_tests") || stem == "bin" || beside_library {
            continue;
        }
        let mut own = module.to_vec();
        if path.is_dir() {
            own.push(stem);
            read(&path, &own, modules);
        } else if path.extension().is_some_and(|end| end == "rs") {
            if !matches!(stem.as_str(), "mod" | "lib" | "main") {
                own.push(stem);
            }
            modules.insert(own, parse(&fs::read_to_string(&path).unwrap()));
        }
    }
}

/// The cycles of a crate: sets of modules that all reach each other.
fn cycles(modules: &BTreeMap<ModulePath, Module>) -> Vec<BTreeSet<String>> {
    let name = |path: &ModulePath| if path.is_empty() { "crate".to_string() } else { path.join("::") };
    let mut reached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, module) in modules {
        let targets = module.named.iter().filter_map(|named| resolve(modules, path, named, 8));
        reached.insert(name(path), targets.filter(|target| target != path).map(|target| name(&target)).collect());
    }
    loop {
        let mut grown = false;
        for from in reached.keys().cloned().collect::<Vec<_>>() {
            let more: BTreeSet<String> = reached[&from].iter().flat_map(|to| reached[to].clone()).collect();
            let own = reached.get_mut(&from).unwrap();
            let before = own.len();
            own.extend(more);
            grown |= own.len() > before;
        }
        if !grown {
            break;
        }
    }
    let mut cycles: Vec<BTreeSet<String>> = Vec::new();
    for from in reached.keys().filter(|from| reached[*from].contains(*from)) {
        let with: BTreeSet<String> = reached[from].iter().filter(|to| reached[*to].contains(from)).cloned().collect();
        if !cycles.contains(&with) {
            cycles.push(with);
        }
    }
    cycles
}

type Crates = BTreeMap<String, BTreeMap<ModulePath, Module>>;

/// The modules of every crate, by the crate's folder.
static CRATES: LazyLock<Crates> = LazyLock::new(|| {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
    let folders = fs::read_dir(root.join("crates")).unwrap().flatten().map(|entry| entry.path());
    let folders = folders.chain([root.join("support-crate")]).filter(|folder| folder.join("src").is_dir());
    let modules = |folder: &Path| {
        let mut modules = BTreeMap::new();
        read(&folder.join("src"), &[], &mut modules);
        modules
    };
    let crates: Crates =
        folders.map(|folder| (folder.file_name().unwrap().display().to_string(), modules(&folder))).collect();
    assert!(crates.len() >= 10, "only {} crates were found below {}", crates.len(), root.display());
    crates
});

#[test]
fn modules_of_a_crate_form_no_cycle() {
    let mut problems = String::new();
    let mut seen: Vec<bool> = vec![false; KNOWN.len()];
    for (of, modules) in CRATES.iter() {
        for cycle in cycles(modules) {
            let known =
                |known: &(&str, &[&str], &str)| known.0 == of && cycle.iter().all(|it| known.1.contains(&it.as_str()));
            match KNOWN.iter().position(known) {
                Some(at) => seen[at] = true,
                None => problems += &format!("{of}: {}\n", cycle.into_iter().collect::<Vec<_>>().join(", ")),
            }
        }
    }
    for ((of, modules, why), seen) in KNOWN.iter().zip(seen) {
        println!("known: {of}: {} ({why})", modules.join(", "));
        if !seen {
            problems += &format!("{of}: {} form no cycle any more: take them off the list\n", modules.join(", "));
        }
    }
    assert!(problems.is_empty(), "cycles between modules:\n{problems}next: move what both need to a third module");
}

/// Modules of a made-up crate, by path and text.
fn made_up(files: &[(&str, &str)]) -> BTreeMap<ModulePath, Module> {
    let path = |name: &str| name.split("::").filter(|part| *part != "crate").map(str::to_string).collect();
    files.iter().map(|(name, text)| (path(name), parse(text))).collect()
}

#[test]
fn a_planted_cycle_is_found_however_it_is_written() {
    let root = ("crate", "mod a; mod b; pub use a::One; pub use b::Two;");
    let set = |names: &[&str]| vec![names.iter().map(|name| name.to_string()).collect::<BTreeSet<_>>()];
    for back in [
        "use crate::a::One;",
        "use super::{a, b};",
        "fn f() { crate::a::f() }",
        "use crate::One;",
        "fn f(_: super::One) {}",
    ] {
        let found = cycles(&made_up(&[root, ("a", "use crate::{b::Two}; pub struct One;"), ("b", back)]));
        assert_eq!(found, set(&["a", "b"]), "{back}");
    }
    for harmless in [
        "use std::fmt; // crate::a::One",
        "const A: &str = \"crate::a::One\";",
        "#[cfg(test)] mod tests { use crate::a::One; }",
        "pub use crate::a::One;",
        "fn f<'a>(a: &'a str) { let c = '\\''; }",
    ] {
        let found = cycles(&made_up(&[root, ("a", "use crate::{b::Two}; pub struct One;"), ("b", harmless)]));
        assert!(found.is_empty(), "{harmless}: {found:?}");
    }
    // What a parent defines itself, and calls its child with.
    let found = cycles(&made_up(&[("crate", "mod a; pub struct One; fn f() { a::f() }"), ("a", "use super::One;")]));
    assert_eq!(found, set(&["a", "crate"]));
}

/// Types that other crates can name, by the module that defines them.
fn public_types(modules: &BTreeMap<ModulePath, Module>) -> BTreeSet<(String, String)> {
    let (mut found, mut seen) = (BTreeSet::new(), BTreeSet::new());
    let mut open: Vec<(ModulePath, Option<String>)> = vec![(Vec::new(), None)];
    while let Some((path, only)) = open.pop() {
        if !seen.insert((path.clone(), only.clone())) {
            continue;
        }
        let Some(module) = modules.get(&path) else { continue };
        let wanted = |name: &String| only.as_ref().is_none_or(|only| only == name);
        found.extend(module.types.iter().filter(|name| wanted(name)).map(|name| (name.clone(), path.join("::"))));
        for (_, target) in module.passed_on.iter().filter(|(name, _)| wanted(name)) {
            // A module, or a name in one: either may be meant.
            let end = target.last().cloned().unwrap_or_default();
            let Some(lies_in) = resolve(modules, &path, target, 8) else { continue };
            let is_module = lies_in.last() == Some(&end);
            open.push((lies_in, (!is_module).then_some(end)));
        }
        for target in &module.globs {
            open.extend(resolve(modules, &path, target, 8).map(|lies_in| (lies_in, only.clone())));
        }
    }
    found
}

/// Names that more than one crate gives a public type, each with the places.
fn named_twice<'a>(
    crates: impl IntoIterator<Item = (&'a String, &'a BTreeMap<ModulePath, Module>)>,
) -> Vec<(String, Vec<String>)> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (of, modules) in crates {
        for (name, module) in public_types(modules) {
            places
                .entry(name)
                .or_default()
                .push(format!("{of}: {}", if module.is_empty() { "crate" } else { &module }));
        }
    }
    places.into_iter().filter(|(_, places)| places.len() > 1).collect()
}

#[test]
fn no_two_public_types_have_one_name() {
    let found: usize = CRATES.values().map(|modules| public_types(modules).len()).sum();
    assert!(found >= 400, "only {found} public types were found");
    let twice = named_twice(CRATES.iter());
    assert!(
        twice.is_empty(),
        "named twice: {twice:#?}\nnext: make one type of two, or give one the name that the field has"
    );
}

#[test]
fn a_planted_second_type_is_found_where_others_can_name_it() {
    let first = ("one".to_string(), made_up(&[("crate", "pub mod a;"), ("a", "pub struct Same;")]));
    let twice = |files: &[(&str, &str)]| {
        let second = ("two".to_string(), made_up(files));
        !named_twice([(&first.0, &first.1), (&second.0, &second.1)]).is_empty()
    };
    for root in
        ["pub mod b;", "mod b; pub use b::Same;", "mod b; pub use b::*;", "mod b; pub use crate::b::{Other, Same};"]
    {
        for text in ["pub enum Same {}", "pub trait Same {}", "pub unsafe trait Same {}", "pub type Same = u8;"] {
            assert!(twice(&[("crate", root), ("b", text)]), "{root} {text}");
        }
        for text in ["struct Same;", "pub(crate) struct Same;", "fn f() { pub struct Same; }", "pub use one::a::Same;"]
        {
            assert!(!twice(&[("crate", root), ("b", text)]), "{root} {text}");
        }
    }
    for root in ["mod b;", "mod b; pub(crate) use b::Same;", "mod b; pub use b::Other;", "mod b; use b::*;"] {
        assert!(!twice(&[("crate", root), ("b", "pub struct Same; pub struct Other;")]), "{root}");
    }
}
