//! The pages that say where things are, compared with the sources: a link to an item of the code, such as
//! ``[`Kernel::launch`](../support-crate/src/gpu/kernel.rs#L104)``, leads to the file and the line of its definition. With
//! `GPULAB_WRITE_PAGES=1` the test corrects the links instead.

use std::fs;
use std::path::{Path, PathBuf};

const WRITE: &str = "GPULAB_WRITE_PAGES";
const HOW: &str = "next: GPULAB_WRITE_PAGES=1 cargo test -p gpulab-cli --test pages";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/cli lies in the repository").to_path_buf()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The repository's paths of the files below a folder that end in `.extension`.
fn files(folder: &str, extension: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}")) {
        let entry = entry.expect("a folder that can be read");
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        match entry.file_type().expect("a file or a folder").is_dir() {
            true => found.extend(files(&path, extension)),
            false if path.ends_with(&format!(".{extension}")) => found.push(path),
            false => {}
        }
    }
    found.sort();
    found
}

/// The pages that may link to items.
fn pages() -> Vec<String> {
    let mut found = vec!["README.md".to_string()];
    found.extend(files("docs", "md"));
    found
}

/// The folders of the workspace's crates.
fn crates() -> Vec<String> {
    let folders = fs::read_dir(root().join("crates")).expect("the folder of the crates");
    let mut found: Vec<String> = folders
        .map(|entry| format!("crates/{}", entry.expect("an entry").file_name().to_string_lossy()))
        .filter(|folder| root().join(folder).join("Cargo.toml").exists())
        .collect();
    found.push("support-crate".to_string());
    found.sort();
    found
}

/// What a line of Rust that begins with `impl` is for: `Kernel` of `impl<T: Element> fmt::Debug for Kernel<T> {`.
fn implemented(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let end = rest.char_indices().find_map(|(at, letter)| {
            depth += i32::from(letter == '<') - i32::from(letter == '>');
            (depth == 0).then_some(at + 1)
        })?;
        rest = &rest[end..];
    }
    let rest = rest.split_once(" for ").map_or(rest, |(_, of)| of).trim_start();
    Some(word(rest))
}

/// The identifier that a text begins with.
fn word(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    &text[..end]
}

/// The name of what a line defines for other modules or crates, such as `launch` of `pub fn launch<'a>(`.
fn defined(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if let Some(name) = line.strip_prefix("macro_rules! ") {
        return Some(word(name));
    }
    let mut rest = line.strip_prefix("pub")?;
    if let Some(inner) = rest.strip_prefix("(") {
        rest = inner.split_once(')')?.1;
    }
    rest = rest.strip_prefix(' ')?;
    const KINDS: [&str; 9] =
        ["const fn ", "unsafe fn ", "fn ", "struct ", "enum ", "trait ", "type ", "const ", "static "];
    KINDS.iter().find_map(|kind| rest.strip_prefix(kind)).map(word)
}

/// The lines, from 1, of a file that define an item: `Type::method`, `function`, `Type`.
fn lines_of(text: &str, owner: Option<&str>, name: &str) -> Vec<usize> {
    let mut inside = None;
    let mut found = Vec::new();
    for (at, line) in text.lines().enumerate() {
        if line.starts_with("impl") {
            inside = implemented(line);
        } else if line.starts_with('}') {
            inside = None;
        }
        let top = !line.starts_with(' ');
        let here = if owner.is_some() { inside == owner && !top } else { top };
        if here && defined(line) == Some(name) {
            found.push(at + 1);
        }
    }
    found
}

/// Where an item such as `Kernel::launch`, `check::axpy` or `Kernel` is defined, in the crate of that folder.
fn definitions(folder: &str, item: &str) -> Vec<(String, usize)> {
    let (before, name) = item.rsplit_once("::").map_or((None, item), |(before, name)| (Some(before), name));
    let is_type = before.is_some_and(|before| before.starts_with(char::is_uppercase));
    let (owner, module) = if is_type { (before, None) } else { (None, before) };
    let mut found = Vec::new();
    for path in files(&format!("{folder}/src"), "rs") {
        let in_module = |module: &str| {
            let parts = path.trim_end_matches(".rs").split('/').collect::<Vec<_>>();
            module.split("::").all(|part| parts.contains(&part))
        };
        if module.is_none_or(in_module) {
            let text = read(&path);
            found.extend(lines_of(&text, owner, name).into_iter().map(|line| (path.clone(), line)));
        }
    }
    found
}

/// A link of a page to an item: what stands between `[` and `)`.
struct Link<'a> {
    text: &'a str,
    item: &'a str,
    /// The text names file and line, too.
    told: bool,
    file: &'a str,
}

/// The links to items in a page's text, in order.
fn links(page: &str) -> Vec<Link<'_>> {
    let begins = page.match_indices("[`").map(|(at, _)| at);
    begins
        .filter_map(|at| {
            let (label, rest) = page[at + 1..].split_once("](")?;
            let (target, _) = rest.split_once(')')?;
            let (file, line) = target.split_once("#L")?;
            if label.contains('\n') || label.contains(']') || line.parse::<usize>().is_err() || !file.ends_with(".rs") {
                return None;
            }
            let (item, told) = label[1..].split_once('`')?;
            let text = &page[at..=at + 1 + label.len() + 2 + target.len()];
            Some(Link { text, item, told: !told.is_empty(), file: file.trim_start_matches("../") })
        })
        .collect()
}

impl Link<'_> {
    /// The line that it leads to.
    fn line(&self) -> usize {
        let (_, line) = self.text.rsplit_once("#L").expect("a link to a line");
        line.trim_end_matches(')').parse().expect("a line's number")
    }

    /// The same link as the sources have it.
    fn right(&self, page: &str) -> Result<String, String> {
        let crates = crates();
        let folder = crates.iter().find(|folder| self.file.starts_with(&format!("{folder}/")));
        let mut found = folder.map(|folder| definitions(folder, self.item)).unwrap_or_default();
        if found.is_empty() {
            found = crates.iter().flat_map(|folder| definitions(folder, self.item)).collect();
        }
        let [(file, line)] = found.as_slice() else {
            return Err(format!(
                "{page}: `{}` is defined in {} places {found:?}\nnext: name an item that there is, as `Type::method` or \
                 `module::function`",
                self.item,
                found.len()
            ));
        };
        let up = if page.contains('/') { "../" } else { "" };
        let told = if self.told { format!(", {file}:{line}") } else { String::new() };
        Ok(format!("[`{}`{told}]({up}{file}#L{line})", self.item))
    }
}

#[test]
fn links_to_items_lead_to_their_definitions() {
    let write = std::env::var_os(WRITE).is_some();
    let (mut checked, mut wrong) = (0, Vec::new());
    for page in pages() {
        let text = read(&page);
        let mut corrected = text.clone();
        for link in links(&text) {
            checked += 1;
            match link.right(&page) {
                Err(problem) => wrong.push(problem),
                Ok(right) if right == link.text => {}
                Ok(right) if write => corrected = corrected.replace(link.text, &right),
                Ok(right) => wrong.push(format!("{page}: {} is now {right}\n{HOW}", link.text)),
            }
        }
        if corrected != text {
            fs::write(root().join(&page), corrected).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(checked >= 12, "{checked} links to items");
}

/// The code cells of all notebooks, as JSON text.
fn code_cells() -> Vec<String> {
    let notebooks = files("notebooks", "ipynb");
    assert!(notebooks.len() >= 17, "{notebooks:?}");
    let of = |path: &String| {
        let text = read(path);
        let cells = text.split("\"cell_type\": \"").skip(1).filter(|cell| cell.starts_with("code\""));
        cells.map(str::to_string).collect::<Vec<_>>()
    };
    notebooks.iter().flat_map(of).collect()
}

#[test]
fn the_twelve_calls_stand_in_notebooks_and_lead_to_their_functions() {
    let page = read("docs/where.md");
    let cells = code_cells();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    assert_eq!(rows.len(), 12, "one row a call: {rows:#?}");
    for row in rows {
        let call = row[3..].split_once("` |").expect("a call in the first cell").0;
        let begin = call.split('…').next().unwrap_or(call);
        let written = begin.replace('"', "\\\"");
        assert!(
            cells.iter().any(|cell| cell.contains(&written)),
            "docs/where.md: no code cell has `{begin}`\nnext: take a call that a notebook makes"
        );
        let name = word(call.split('(').next().and_then(|path| path.rsplit([':', '.']).next()).unwrap_or_default());
        let links = links(row);
        let first = links.first().unwrap_or_else(|| panic!("docs/where.md: the row of `{call}` leads nowhere"));
        assert!(first.told, "docs/where.md: the row of `{call}` shows no file and line");
        assert_eq!(first.item.rsplit("::").next(), Some(name), "docs/where.md: the row of `{call}`");
        let line = read(first.file).lines().nth(first.line() - 1).map(str::to_string).unwrap_or_default();
        assert!(line.contains(&format!("pub fn {name}")), "docs/where.md: `{call}` leads to `{line}`\n{HOW}");
    }
}

#[test]
fn every_crate_has_its_row_in_the_design() {
    let design = read("docs/DESIGN.md");
    for folder in crates() {
        let manifest = read(&format!("{folder}/Cargo.toml"));
        let name = manifest.lines().find_map(|line| line.strip_prefix("name = ")).expect("a name").trim_matches('"');
        let rows = design.lines().filter(|line| line.starts_with(&format!("| [`{name}`](../{folder}")));
        assert_eq!(rows.count(), 1, "docs/DESIGN.md: the table of crates has no row, or several, for `{name}`");
    }
}

#[test]
fn paths_that_pages_name_exist() {
    let mut checked = 0;
    for page in pages() {
        let text = read(&page);
        for span in text.split('`').skip(1).step_by(2) {
            let ours = ["crates/", "support-crate/", "env/"].iter().any(|folder| span.starts_with(folder));
            // `crates/kernels/TOPIC/`, `env/*.py`
            let open = span.contains(|letter: char| letter.is_uppercase() || " *…<{(".contains(letter));
            if ours && !open {
                checked += 1;
                let path = span.split(':').next().unwrap_or(span);
                assert!(root().join(path).exists(), "{page}: there is no `{path}`\nnext: correct the path");
            }
        }
    }
    assert!(checked > 20, "{checked} paths");
}

#[test]
fn definitions_are_told_apart() {
    let text = "\
pub struct Kernel {
impl<'a, T: Into<Vec<u8>>> fmt::Debug for Kernel<T> {
    pub fn launch(&self) {}
}
impl Graph {
    pub const fn launch(
}
pub fn launch() {}
pub(super) trait Inner {}
fn hidden() {}
";
    assert_eq!(lines_of(text, Some("Kernel"), "launch"), [3]);
    assert_eq!(lines_of(text, Some("Graph"), "launch"), [6]);
    assert_eq!(lines_of(text, None, "launch"), [8]);
    assert_eq!(lines_of(text, None, "Kernel"), [1]);
    assert_eq!(lines_of(text, None, "Inner"), [9]);
    assert_eq!(lines_of(text, None, "hidden"), [0; 0]);
    let page = "see [`Kernel::launch`, a.rs:1](../crates/x/src/a.rs#L1), [`b`](c.md) and [`d`](../crates/x/src/d.rs)";
    let found = links(page);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].line(), 1);
    assert!(found[0].told && found[0].item == "Kernel::launch" && found[0].file == "crates/x/src/a.rs");
    assert_eq!(found[0].text, "[`Kernel::launch`, a.rs:1](../crates/x/src/a.rs#L1)");
}
