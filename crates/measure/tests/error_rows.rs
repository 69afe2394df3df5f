//! Which kinds of errors the project prints, read from its sources, and which of them docs/troubleshooting.md explains.
//!
//! A kind is a variant of `Error`; for the variants that say many things (`Invalid`, `Unsupported`, …) each part that makes
//! one: a module of support-crate, another crate, or a module of a large one; a driver's code with advice of its own; a
//! mistake that the simulator finds; a tool in env/ that fails with a next step. Not each text: a row explains a kind, and
//! names it in a comment, `<!-- for: Invalid in kernels/topics -->`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Variants whose text is made where they are raised.
const BROAD: [&str; 5] = ["File", "Invalid", "Unsupported", "Driver", "LaunchLimit"];
/// Crates of which each module in a folder of its own counts.
const LARGE: [&str; 6] = ["cli", "kernels", "lessons", "measure", "nn", "onnx"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("crates/measure lies in the repository")
        .to_path_buf()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The files below a folder that end in `.extension`, without tests.
fn files(folder: &Path, extension: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let path = entry.expect("a folder that can be read").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        if path.is_dir() && name != "tests" {
            files(&path, extension, found);
        } else if path.extension().is_some_and(|this| this == extension) && !name.contains("tests") {
            found.push(path);
        }
    }
    found.sort();
}

/// The sources of all crates that share the one error type, or of the simulator alone.
fn rust(simulator: bool) -> Vec<PathBuf> {
    let (mut found, crates) = (Vec::new(), root().join("crates"));
    if !simulator {
        files(&root().join("support-crate/src"), "rs", &mut found);
    }
    for entry in fs::read_dir(crates).expect("the folder of the crates") {
        let source = entry.expect("an entry").path().join("src");
        if source.is_dir() && source.ends_with("warpsim/src") == simulator {
            files(&source, "rs", &mut found);
        }
    }
    found
}

/// A Rust file without its tests.
fn code(path: &Path) -> String {
    read(path).split("#[cfg(test)]").next().unwrap_or_default().to_string()
}

/// What lies between two texts; empty where they are not there.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    text.split_once(begin).map_or("", |(_, rest)| rest.split(end).next().unwrap_or_default())
}

/// The word that a text begins with.
fn word(text: &str) -> &str {
    &text[..text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len())]
}

/// The variants of an enum.
fn variants<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let lines = between(text, &format!("pub enum {name} {{"), "\n}").lines();
    let named = lines.filter_map(|line| line.strip_prefix("    ")).filter(|line| line.starts_with(char::is_uppercase));
    named.map(word).collect()
}

/// Where errors of the broad variants are made: `Invalid in kernels/topics`.
fn parts(kinds: &mut BTreeSet<String>) {
    for path in rust(false) {
        let place = path.strip_prefix(root()).expect("a file of the repository").with_extension("");
        let names: Vec<&str> = place.iter().map(|name| name.to_str().expect("a name in ASCII")).collect();
        let part = match names[..] {
            ["crates", "measure", "src", "error", ..] => continue,
            ["support-crate", "src", module, ..] => module.to_string(),
            ["crates", name, "src", module, _, ..] if LARGE.contains(&name) => format!("{name}/{module}"),
            ["crates", name, "src", module] if LARGE.contains(&name) && path.with_extension("").is_dir() => {
                format!("{name}/{module}")
            }
            ["crates", name, ..] => name.to_string(),
            _ => panic!("{}: where is this?", path.display()),
        };
        let text = code(&path);
        let pieces: Vec<&str> = text.split("Error::").skip(1).collect();
        let braced = pieces.iter().filter(|piece| piece[word(piece).len()..].trim_start_matches(' ').starts_with('{'));
        let mut made: BTreeSet<&str> = braced.map(|piece| word(piece)).collect();
        // Most are made by constructors; `save` is that of module `error`.
        let constructors = [
            ("invalid(", "Invalid"),
            ("unsupported(", "Unsupported"),
            ("Error::file(", "File"),
            ("Error::io(", "File"),
            ("save(", "File"),
        ];
        for (function, variant) in constructors {
            let is_call = |at: usize| {
                let before = &text[..at];
                let inside_a_word = |letter: char| letter.is_alphanumeric() || "_.".contains(letter);
                !before.ends_with("fn ") && !before.ends_with(inside_a_word)
            };
            if text.match_indices(function).any(|(at, _)| is_call(at)) {
                made.insert(variant);
            }
        }
        kinds.extend(made.iter().filter(|name| BROAD.contains(name)).map(|name| format!("{name} in {part}")));
    }
}

/// Every kind of error that the sources hold.
fn kinds() -> BTreeSet<String> {
    let (crates, mut kinds) = (root().join("crates"), BTreeSet::new());
    let error = read(&crates.join("measure/src/error.rs"));
    kinds.extend(variants(&error, "Error").iter().map(|name| format!("Error::{name}")));
    parts(&mut kinds);
    let driver = code(&crates.join("measure/src/error/cuda.rs"));
    kinds.extend(
        driver.split("CUresult::").skip(1).map(word).filter(|name| name.starts_with("CUDA_ERROR_")).map(String::from),
    );
    let finding = code(&crates.join("warpsim/src/finding.rs"));
    let words = between(&finding, "pub fn words", "\n    }").split("=> \"").skip(1);
    kinds.extend(words.map(|rest| format!("simulator: {}", rest.split('"').next().unwrap_or_default())));
    let simulator = code(&crates.join("warpsim/src/error.rs"));
    kinds.extend(variants(&simulator, "SimulatorError").iter().map(|name| format!("simulator: {name}")));
    let (mut tools, folder) = (Vec::new(), root().join("env"));
    files(&folder, "py", &mut tools);
    for path in tools {
        let text = read(&path).replace("class ToolError(", "");
        let ends =
            text.split("sys.exit(").skip(1).any(|rest| rest.lines().next().unwrap_or_default().contains("\\nnext: "));
        if ends || ["ToolError(", "raise NotReadyError("].iter().any(|made| text.contains(made)) {
            let place = path.strip_prefix(&folder).expect("a tool").iter().next().expect("a name");
            kinds.insert(format!("env/{}", place.to_string_lossy()));
        }
    }
    kinds
}

/// The kinds that the page's rows are for, each with its rows.
fn explained(page: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in page.lines() {
        for mark in row.split("<!-- for: ").skip(1) {
            for kind in mark.split(" -->").next().unwrap_or_default().split(';') {
                found.entry(kind.trim()).or_default().push(row);
            }
        }
    }
    found
}

/// What the project prints, as one text: string literals joined where a line of source goes on in the next.
fn all_text() -> String {
    let mut paths = [rust(false), rust(true)].concat();
    for extension in ["py", "sh"] {
        files(&root().join("env"), extension, &mut paths);
    }
    paths.push(root().join("Makefile"));
    let text: Vec<String> = paths.iter().map(|path| read(path)).collect();
    let mut pieces = Vec::new();
    for (at, piece) in text.join("\n").split("\\\n").enumerate() {
        pieces.push(if at == 0 { piece.to_string() } else { piece.trim_start().to_string() });
    }
    pieces.concat().replace("\\\"", "\"")
}

/// What a row quotes in its first cell.
fn quotes(row: &str) -> impl Iterator<Item = &str> {
    let cell = row.split('|').nth(1).unwrap_or_default();
    cell.split("<!--").next().unwrap_or_default().split('`').skip(1).step_by(2)
}

/// What is wrong with the page, each with what to do.
fn wrong(page: &str, kinds: &BTreeSet<String>, printed: &str) -> Vec<String> {
    let (rows, mut found) = (explained(page), Vec::new());
    for kind in kinds.iter().filter(|kind| !rows.contains_key(kind.as_str())) {
        found.push(format!(
            "no row is for `{kind}`\nnext: add one with its cause and its fix, marked `<!-- for: {kind} -->`"
        ));
    }
    for kind in rows.keys().filter(|kind| !kinds.contains(**kind)) {
        found.push(format!(
            "a row is for `{kind}`, which the project does not have\nnext: take the mark away, or name it rightly"
        ));
    }
    for row in rows.values().flatten().collect::<BTreeSet<_>>() {
        for quote in quotes(row).filter(|quote| !quote.split('…').all(|piece| printed.contains(piece.trim()))) {
            found.push(format!(
                "a row quotes `{quote}`, which nothing prints\nnext: quote what is printed, with … for what differs"
            ));
        }
    }
    found
}

fn page() -> String {
    read(&root().join("docs/troubleshooting.md"))
}

#[test]
fn every_kind_of_error_has_a_row_that_quotes_what_is_printed() {
    let found = wrong(&page(), &kinds(), &all_text());
    assert!(found.is_empty(), "docs/troubleshooting.md:\n{}", found.join("\n"));
}

#[test]
fn kinds_are_read_from_the_sources() {
    let kinds = kinds();
    for kind in [
        "Error::NoGpu",
        "Invalid in kernels/topics",
        "Invalid in measure",
        "Unsupported in nn/gpt",
        "CUDA_ERROR_ILLEGAL_ADDRESS",
        "simulator: deadlock",
        "simulator: Syntax",
        "env/setup",
        "env/in_venv.py",
    ] {
        assert!(kinds.contains(kind), "{kind} is not among {kinds:?}");
    }
}

#[test]
fn a_new_kind_a_stale_row_and_a_wrong_quotation_are_named() {
    let (page, printed) = (page(), all_text());
    let mut more = kinds();
    more.insert("Error::TooCold".to_string());
    assert!(wrong(&page, &more, &printed)[0].starts_with("no row is for `Error::TooCold`"));
    more = kinds();
    more.remove("Error::NoGpu");
    assert!(wrong(&page, &more, &printed)[0].starts_with("a row is for `Error::NoGpu`"));
    let row = "| `your GPU is too cold` <!-- for: Error::A; File in b --> | cause | fix |";
    let there = ["Error::A", "File in b"].map(String::from).into();
    assert_eq!(wrong(row, &there, &printed).len(), 1);
    assert!(wrong(row, &there, "your GPU is too cold today").is_empty());
}
