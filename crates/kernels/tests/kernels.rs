//! Every CUDA C source of the course goes through NVRTC, for old and new GPUs: the ladders' files, and the kernels
//! that stand in notebooks and solutions. No GPU is needed, so no lesson can ship a kernel that does not compile.
#![cfg(not(target_os = "macos"))] // there is no NVRTC for macOS

use gpulab::cuda::{compile_to_ptx, nvrtc_version, supported_architectures};
use gpulab::launch::Source;
use gpulab::sim::{
    self,
    shipped::{self, Pack},
};
use gpulab_kernels::ladder::{self, OPERATORS, RUNGS};
use std::path::{Path, PathBuf};

/// A source with this text in it is there to be refused by the compiler.
const REFUSED: &str = "does not compile";
/// The course's own headers, the ladder beside whose rungs each lies, and the oldest GPU that has its instructions; Hopper's are on no
/// other.
const HEADERS: [(&str, &str, &str); 3] = [
    ("#include \"ampere.cuh\"", "matmul_bf16", "compute_80"),
    ("#include \"hopper.cuh\"", "matmul_bf16", HOPPER),
    ("#include \"wgmma.cuh\"", "flash_attention", HOPPER),
];
const HOPPER: &str = "compute_90a";

fn header_of(text: &str) -> Option<&'static (&'static str, &'static str, &'static str)> {
    HEADERS.iter().find(|(include, ..)| text.contains(include))
}

/// What runs on Turing, on the oldest GPU that it runs on; what is between that and the newest is compiled for the pack.
#[test]
fn files_compile_for_sm_75() {
    files_compile_for("compute_75", |needs| needs <= (7, 5));
}

#[test]
fn files_that_need_ampere_compile_for_sm_80() {
    files_compile_for("compute_80", |needs| needs > (7, 5) && needs <= (8, 0));
}

#[test]
fn files_that_need_hopper_compile_for_sm_90a() {
    files_compile_for("compute_90a", |needs| needs > (8, 0));
}

#[test]
fn files_compile_for_the_newest_that_the_compiler_knows() {
    let newest = known().into_iter().max().unwrap_or_default();
    assert!(newest > 90, "this NVRTC knows nothing newer than sm_90\nnext: make setup installs the pinned one");
    files_compile_for(&format!("compute_{newest}"), |_| true);
}

#[test]
fn kernels_in_notebooks_compile_for_the_oldest_and_the_newest() {
    let newest = known().into_iter().max().unwrap_or(90);
    for (place, source) in in_lessons() {
        let oldest = header_of(&source.text).map_or("compute_75", |&(.., oldest)| oldest);
        let both = [oldest.to_string(), format!("compute_{newest}")];
        for architecture in if oldest == HOPPER { &both[..1] } else { &both[..] } {
            let refused = source.text.contains(REFUSED);
            match compile_to_ptx(&source, architecture) {
                Ok(ptx) if !refused => assert!(ptx.contains(".entry"), "{place}: no kernel in the PTX"),
                Ok(_) => panic!("{place} says `{REFUSED}`, and compiles\nnext: fix one of the two"),
                Err(_) if refused => {}
                Err(error) => panic!("{place} for {architecture}: {error}\n{}", source.text),
            }
        }
    }
}

/// The NVRTC that `make setup` installs where no driver asks for an older one.
const PINNED: (i32, i32) = (13, 0);

#[test]
fn the_packed_ptx_is_what_the_compiler_makes() {
    let found = nvrtc_version().unwrap_or_else(|error| panic!("{error}"));
    if found != PINNED {
        return eprintln!("skipped: needs NVRTC {}.{}, this is {}.{}", PINNED.0, PINNED.1, found.0, found.1);
    }
    let pack = Pack::read(&Pack::path()).unwrap_or_else(|error| panic!("{error}"));
    let rungs = RUNGS.iter().map(|rung| (rung.path, rung.source().unwrap()));
    let operators = OPERATORS.iter().map(|operator| (operator.path, operator.source().unwrap()));
    let all: Vec<(&str, Source)> = rungs.chain(operators).collect();
    let packed = |path: &str, source: &Source| {
        pack.0.get(&shipped::key(source)).filter(|kernel| kernel.users.contains(&format!("course/{path}")))
    };
    let missing: Vec<&str> =
        all.iter().filter(|(path, source)| packed(path, source).is_none()).map(|(path, _)| *path).collect();
    assert!(missing.is_empty(), "changed, or new, since the PTX was packed: {}\nnext: make ptx", missing.join(", "));
    for (path, source) in all {
        let made = shipped::wanted(&source, || sim::compile(&source)).unwrap_or_else(|error| panic!("{error}"));
        let same = packed(path, &source).is_some_and(|kernel| kernel.text == made);
        assert!(same, "the compiler makes other PTX of {path} than what is packed\nnext: make ptx");
    }
}

/// What the packed PTX is for: the same text in another dress (a notebook shows it without comments) finds it, with the
/// lines of that text; other constants, and other code, do not.
#[test]
fn the_packed_ptx_is_found_by_what_a_source_says() {
    let pack = Pack::read(&Pack::path()).unwrap();
    let tiled = ladder::rung("matmul/02_tiled").unwrap().source().unwrap();
    let (shown, code) = (pack.ptx(&tiled).unwrap(), tiled.text.replace("sum +=", "sum -="));
    assert!(shown.contains(".entry matmul(") && shown.contains("\"02_tiled.cu\""), "{shown}");
    assert!(code != tiled.text);
    let other_tile = Source { defines: vec![("TILE".to_string(), "16".to_string())], ..tiled.clone() };
    assert_eq!((pack.ptx(&other_tile), pack.ptx(&Source { text: code, ..tiled })), (None, None));
    let add = ladder::rung("vector_add/01_one_thread_each").unwrap().source().unwrap();
    let bare: Vec<&str> = add.text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let line = |text: &str| text.lines().position(|line| line.contains("c[i] = a[i] + b[i];")).unwrap() + 1;
    let (own, file) = (pack.ptx(&Source::text(&bare.join("\n"))).unwrap(), pack.ptx(&add).unwrap());
    assert!(line(&bare.join("\n")) < line(&add.text));
    for (ptx, line) in [(own, line(&bare.join("\n"))), (file, line(&add.text))] {
        assert!(ptx.contains(&format!("\t.loc\t1 {line} ")), "line {line}: {ptx}");
    }
}

fn known() -> Vec<u32> {
    supported_architectures().unwrap_or_else(|error| panic!("{error}"))
}

/// Every rung and operator whose need is `meant` and that runs on a GPU of that architecture, such as `compute_80`.
fn files_compile_for(architecture: &str, meant: fn((u32, u32)) -> bool) {
    let digits: String = architecture.chars().filter(char::is_ascii_digit).collect();
    let number: u32 = digits.parse().unwrap();
    let capability = (number / 10, number % 10);
    let rungs: Vec<_> = RUNGS.iter().filter(|rung| meant(rung.needs) && rung.runs_on(capability).is_ok()).collect();
    assert!(!rungs.is_empty());
    for rung in rungs {
        let source = rung.source().unwrap_or_else(|error| panic!("{error}"));
        let ptx = compile_to_ptx(&source, architecture).unwrap_or_else(|error| panic!("{}: {error}", rung.path));
        assert!(ptx.contains(&format!(".entry {}", rung.kernel)), "{}: no entry `{}`", rung.path, rung.kernel);
        // Without line numbers an error at run time could not name the reader's line.
        assert!(ptx.contains(".loc"), "{}: no source lines in the PTX", rung.path);
    }
    for operator in OPERATORS.iter().filter(|one| meant(one.needs) && one.runs_on(capability).is_ok()) {
        let source = operator.source().unwrap_or_else(|error| panic!("{error}"));
        let ptx = compile_to_ptx(&source, architecture).unwrap_or_else(|error| panic!("{}: {error}", operator.path));
        for kernel in operator.kernels {
            assert!(ptx.contains(&format!(".entry {kernel}(")), "{}: no entry `{kernel}`", operator.path);
        }
    }
}

/// The CUDA C in raw strings of code cells and solutions, each with its place.
fn in_lessons() -> Vec<(String, Source)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../notebooks");
    let mut found = Vec::new();
    for path in with_extension(&folder, "ipynb") {
        let notebook: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let code = notebook["cells"].as_array().into_iter().flatten().filter(|cell| cell["cell_type"] == "code");
        let text = |cell: &serde_json::Value| match &cell["source"] {
            serde_json::Value::Array(lines) => lines.iter().filter_map(|line| line.as_str()).collect::<String>(),
            other => other.as_str().unwrap_or_default().to_string(),
        };
        let cells: Vec<(String, String)> = code.map(|cell| (cell["id"].to_string(), text(cell))).collect();
        let all: String = cells.iter().map(|(_, text)| text.as_str()).collect();
        for (id, text) in &cells {
            add(&mut found, format!("{}, cell {id}", path.display()), text, &all);
        }
    }
    for path in with_extension(&folder.join("solutions"), "rs") {
        let text = std::fs::read_to_string(&path).unwrap();
        add(&mut found, path.display().to_string(), &text, &text);
    }
    found
}

fn with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|found| found == extension)).collect();
    paths.sort();
    paths
}

/// Adds the raw strings of `rust` that hold a kernel, with what `.define(…)` in the notebook or file gives them: a source may be
/// written in one cell, and get its constants in the next.
fn add(found: &mut Vec<(String, Source)>, place: String, rust: &str, all: &str) {
    let defines: Vec<&str> = all.split(".define(\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
    // Words in capitals that the notebook replaces. What it makes of such a template, or of one that `format!` fills, is compiled
    // when the notebook runs.
    let filled = |name: &&str| !name.is_empty() && name.chars().all(|letter| letter.is_ascii_uppercase());
    let filled: Vec<&str> =
        all.split(".replace(\"").skip(1).filter_map(|rest| rest.split('"').next()).filter(filled).collect();
    for hashes in ["#", "##"] {
        let (open, close) = (format!("r{hashes}\""), format!("\"{hashes}"));
        for (at, _) in rust.match_indices(open.as_str()) {
            let text = rust[at + open.len()..].split(close.as_str()).next().unwrap_or_default();
            let template = rust[..at].ends_with("format!(") || filled.iter().any(|name| text.contains(name));
            if text.contains("__global__") && !template {
                let mut source = Source::text(text);
                if let Some((_, folder, _)) = header_of(text) {
                    source.folder = Some(gpulab_kernels::ladder::folder().join(folder));
                }
                // 16 suits a tile's side and a count alike; the lesson's own value needs the lesson to run.
                let needed = defines.iter().filter(|name| text.contains(**name));
                let source = needed.fold(source, |source, name| source.define(name, 16));
                found.push((place.clone(), source));
            }
        }
    }
}

#[test]
fn kernels_in_cells_are_found() {
    let mut found = Vec::new();
    let cell = "let m = gpu.compile(Source::text(r#\"__global__ void k(float *x) { x[0] = N; }\"#).define(\"N\", 3))?;";
    add(&mut found, "here".to_string(), cell, cell);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1.defines, [("N".to_string(), "16".to_string())]);
    assert_eq!(found[0].1.text, "__global__ void k(float *x) { x[0] = N; }");
    let template = "Source::text(&format!(r#\"__global__ void k(float *x) {{ x[0] = {n}; }}\"#))";
    add(&mut found, "here".to_string(), template, template);
    assert_eq!(found.len(), 1, "a template has no constants yet");
}
