"""What the type analysis is told of the crates: those that are built, and the whole list where that cannot be found out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from env import paths
from env.kernel_cache import analysis, metadata, recipe, rust_src
from env.kernel_cache.signatures import signatures

PLATFORM = "x86_64-unknown-linux-gnu"
ARGUMENTS = ["metadata", "--format-version", "1", "--manifest-path", "/k/Cargo.toml", "--filter-platform", PLATFORM]


def package(name: str, version: str = "1.0.0") -> dict:
    return {"id": f"{name}@{version}", "name": name, "version": version}


def node(name: str, features: list[str], *deps: str) -> dict:
    deps = tuple(f"{one}@1.0.0" for one in deps)
    used = [{"name": one, "pkg": one, "dep_kinds": []} for one in deps]
    return {"id": f"{name}@1.0.0", "features": features, "dependencies": list(deps), "deps": used}


LONG = {
    "packages": [package("ctx"), package("candle"), package("metal"), package("metal", "2.0.0")],
    "workspace_members": ["ctx@1.0.0"],
    "resolve": {"nodes": [node("ctx", [], "candle"), node("candle", ["cuda", "default", "metal"], "metal")]},
}
TREE = "ctx v1.0.0 (/k)|\ncandle v1.0.0|default\nserde v1.0.0 (proc-macro)|std,derive (*)\n\n"


def fake(folder: Path, tree: str) -> str:
    """A cargo that answers `metadata` with the long list, and `tree` as told; it keeps what it was asked."""
    (folder / "long.json").write_text(json.dumps(LONG))
    (folder / "cargo").write_text(
        f'#!/bin/sh\necho "$CARGO_HOME: $@" >> {folder}/asked\n'
        f'case "$1" in metadata) cat {folder}/long.json;; tree) {tree};; *) exit 7;; esac\n'
    )
    (folder / "cargo").chmod(0o755)
    return str(folder / "cargo")


def test_what_is_not_built_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tree").write_text(TREE)
    cargo = fake(tmp_path, f"cat {tmp_path}/tree")
    assert (
        metadata.main(str(tmp_path / "answers"), cargo, [*ARGUMENTS, "-Zlockfile-path", "--offline", "--no-such"]) == 0
    )
    short = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in short["packages"]] == ["ctx", "candle"]
    ctx, candle = short["resolve"]["nodes"]
    assert ctx["deps"] and candle["deps"] == [] and candle["dependencies"] == [] and candle["features"] == ["default"]
    asked = (tmp_path / "asked").read_text().splitlines()[1]
    assert f"--target={PLATFORM}" in asked and "--manifest-path /k/Cargo.toml" in asked
    assert "-Zlockfile-path" in asked and "--offline" in asked and "--no-such" not in asked


def test_a_crate_that_the_reader_asks_for_is_there_with_what_it_needs() -> None:
    crates = ["ctx", "candle", "rayon", "rayon-core", "csv"]
    nodes = [node("ctx", [], "candle", "rayon"), node("candle", [], "rayon", "csv"), node("rayon", [], "rayon-core")]
    nodes += [node("rayon-core", []), node("csv", [])]
    long = {
        "packages": [package(one) for one in crates],
        "workspace_members": ["ctx@1.0.0"],
        "resolve": {"nodes": nodes},
    }
    found = {(one, "1.0.0"): set() for one in crates}
    short = metadata.shorten(json.loads(json.dumps(long)), found)
    assert [one["name"] for one in short["packages"]] == ["ctx", "candle", "rayon", "rayon-core"]
    nodes[0] = node("ctx", [], "candle")
    assert [one["name"] for one in metadata.shorten(long, found)["packages"]] == ["ctx", "candle"]


@pytest.mark.parametrize("tree", ["exit 101", "echo nonsense", "echo '|'"])
def test_without_the_tree_the_whole_list_is_passed_on(tmp_path: Path, capsys, tree: str) -> None:
    cargo = fake(tmp_path, tree)
    assert metadata.main(str(tmp_path / "answers"), cargo, ARGUMENTS) == 0
    assert json.loads(capsys.readouterr().out) == LONG


def test_an_error_of_cargo_is_passed_on(tmp_path: Path) -> None:
    assert metadata.main(str(tmp_path / "answers"), fake(tmp_path, "true"), ["nonsense"]) == 7


def test_the_folder_is_the_readers_own_but_for_cargo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own home"
    (own / "bin").mkdir(parents=True)
    (own / "config.toml").write_text("[net]\n")
    monkeypatch.setenv("CARGO_HOME", str(own))
    monkeypatch.setattr(analysis, "ANSWERS", tmp_path / "kept answers")
    (tmp_path / "tree").write_text(TREE)
    cargo = fake(tmp_path, f"cat {tmp_path}/tree")
    kernel = tmp_path / "kernel"
    for _ in range(2):
        (kernel / "config").mkdir(parents=True, exist_ok=True)
        recipe.write_config(kernel, None)
    assert f":build_env CARGO_HOME={own}" in (kernel / "config" / "evcxr.toml").read_text()
    env = recipe.environment(dict(os.environ), kernel, tmp_path, tmp_path)
    home = Path(env["CARGO_HOME"])
    # Beside the build: the analysis would read the whole registry through the link.
    assert kernel not in home.parents and (home / "config.toml").read_text() == "[net]\n"
    program = [str(home / "bin" / "cargo")]
    env["CARGO"] = cargo

    def ask(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*program, *arguments], env=env, capture_output=True, text=True, check=False)

    assert len(json.loads(ask(*ARGUMENTS).stdout)["packages"]) == 2
    assert json.loads(ask(*ARGUMENTS, "--no-deps").stdout) == LONG
    assert ask("config", "get").returncode == 7
    # cargo itself sees the reader's folder.
    assert all(line.startswith(f"{own}: ") for line in (tmp_path / "asked").read_text().splitlines())
    assert analysis.home() == own


def test_cargo_and_its_tree_agree_on_the_course(tmp_path: Path) -> None:
    """With cargo itself: candle is listed with what is for Macs, and left without it."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.rs").touch()
    (tmp_path / "Cargo.lock").write_bytes((recipe.paths.ROOT / "Cargo.lock").read_bytes())
    (tmp_path / "Cargo.toml").write_text(
        f'[package]\nname = "ctx"\nversion = "1.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\n'
        f'gpulab = {{ path = "{recipe.paths.CRATE}" }}\ngpulab-nn = {{ path = "{recipe.paths.CRATES / "nn"}" }}\n'
    )
    manifest = str(tmp_path / "Cargo.toml")
    asked = ["metadata", "--format-version", "1", "--manifest-path", manifest, "--filter-platform", PLATFORM]
    long = json.loads(subprocess.run(["cargo", *asked], capture_output=True, text=True, check=True).stdout)
    program = [sys.executable, "-I", metadata.__file__, str(tmp_path / "answers"), "cargo", *asked]
    said = [subprocess.run(program, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert said[0] == said[1] and len(list((tmp_path / "answers").iterdir())) == 1
    short = json.loads(said[0])
    before, after = ({one["name"] for one in found["packages"]} for found in (long, short))
    assert {"candle-metal-kernels", "objc2-metal"} <= before - after
    assert {
        "ctx",
        "gpulab",
        "gpulab-nn",
        "warpsim",
        "candle-core",
        "candle-nn",
        "tokenizers",
        "cudarc",
        "serde_derive",
    } <= after
    nodes = {one["id"]: one for one in short["resolve"]["nodes"]}
    assert set(nodes) == {one["id"] for one in short["packages"]}
    candle = next(one for id, one in nodes.items() if "candle-core@" in id)
    assert "metal" not in candle["features"] and "default" in candle["features"]


def test_what_only_functions_call_is_left_out_of_the_standard_library_too(tmp_path: Path) -> None:
    std = {
        "packages": [package(name) for name in ("core", "std", "gimli", "hashbrown")],
        "workspace_members": ["core@1.0.0", "std@1.0.0"],
        "resolve": {"nodes": [node("core", []), node("std", [], "core", "gimli", "hashbrown"), node("gimli", [])]},
    }
    found = {(name, "1.0.0"): set() for name in ("core", "std", "gimli", "hashbrown")}
    assert [one["name"] for one in metadata.shorten(std, found)["packages"]] == ["core", "std", "hashbrown"]


def asked_of(folder: Path, cargo: str, capsys, manifest: str) -> dict:
    """The answer for a crate in `folder`, which is also in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Cargo.toml").write_text(manifest)
    arguments = [*ARGUMENTS[:4], str(folder / "Cargo.toml"), *ARGUMENTS[5:]]
    assert metadata.main(str(folder.parent / "answers"), cargo, arguments) == 0
    return json.loads(capsys.readouterr().out)


def test_an_answer_is_kept_until_what_it_depends_on_changes(tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "tree").write_text(TREE)
    cargo = fake(tmp_path, f"cat {tmp_path}/tree")
    first = tmp_path / "a folder"
    monkeypatch.setitem(LONG, "workspace_root", str(first))
    monkeypatch.setitem(LONG, "address", f"path+file://{tmp_path}/a%20folder#ctx")
    fake(tmp_path, f"cat {tmp_path}/tree")
    asked = tmp_path / "asked"
    assert asked_of(first, cargo, capsys, "[package]")["workspace_root"] == str(first)
    once = asked.read_text()
    # The next kernel's crate lies elsewhere, and cargo is not asked again.
    second = tmp_path / "another folder"
    answer = asked_of(second, cargo, capsys, "[package]")
    assert asked.read_text() == once
    assert answer["workspace_root"] == str(second) and answer["address"].endswith("/another%20folder#ctx")
    # evcxr names the dependencies in any order.
    two = ["[dependencies]", 'a = "1"', 'b = "2"']
    asked_of(second, cargo, capsys, "\n".join(two))
    once = asked.read_text()
    asked_of(first, cargo, capsys, "\n".join([two[0], two[2], two[1]]))
    assert asked.read_text() == once
    # Another manifest is another question.
    asked_of(second, cargo, capsys, "[package] # changed")
    assert asked.read_text() != once


def test_only_so_many_answers_are_kept(tmp_path: Path) -> None:
    for number in range(metadata.MOST_ANSWERS + 3):
        metadata.keep(tmp_path / "answers" / f"{number}.json", "{}")
    assert len(list((tmp_path / "answers").iterdir())) == metadata.MOST_ANSWERS


def test_the_lean_sources_keep_what_types_come_from(tmp_path: Path, monkeypatch) -> None:
    library = tmp_path / "library"
    files = {
        "core/src/lib.rs": "mod num;\n",
        "core/tests/all.rs": "test",
        "core/README.md": "text",
        "Cargo.toml": "[workspace]",
        "stdarch/crates/core_arch/src/mod.rs": "mod x86;",
        "stdarch/crates/core_arch/src/x86/mod.rs": "instructions",
        "portable-simd/crates/core_simd/src/mod.rs": "simd",
    }
    for name, text in files.items():
        (library / name).parent.mkdir(parents=True, exist_ok=True)
        (library / name).write_text(text)
    lean = tmp_path / "made" / "library"
    for _ in range(2):
        rust_src.lean(library, lean)
    kept = {str(file.relative_to(lean)): file.read_text() for file in lean.rglob("*") if file.is_file()}
    assert kept == {
        **{name: files[name] for name in ("core/src/lib.rs", "Cargo.toml", "stdarch/crates/core_arch/src/mod.rs")},
        "stdarch/crates/core_arch/src/x86/mod.rs": "",
        "portable-simd/crates/core_simd/src/mod.rs": "simd",
    }
    monkeypatch.setattr(rust_src, "LIBRARY", lean)
    assert rust_src.environment() == {"RUST_SRC_PATH": str(lean)}
    monkeypatch.setattr(rust_src, "LIBRARY", tmp_path / "missing")
    assert rust_src.environment() == {}


STABLE = '#[stable(since = "1")] #[doc(hidden)] '


@pytest.mark.parametrize(
    ("whole", "short"),
    [
        ("pub fn one(x: [u8; 3]) -> u8 { x[0] }", "pub fn one(x: [u8; 3]) -> u8 {loop{}}"),
        ("fn f<T>() where T: Fn() -> [u8; { 2 }] { a(); { b } }\nstruct S { x: fn(u8) -> u8 }", None),
        ('impl T for S { unsafe fn f(&self); fn g() { "}" } }', "impl T for S { unsafe fn f(&self); fn g() {loop{}} }"),
        ("const fn size() -> usize { 4 }", "const fn size() -> usize { 4 }"),
        ('const unsafe extern "C" fn f() { 4 }', 'const unsafe extern "C" fn f() { 4 }'),
        ("const X: u8 = 1; fn f() { 4 }", "const X: u8 = 1; fn f() {loop{}}"),
        ("macro_rules! m { ($n:ident) => { fn $n() { 1 } }; }", "macro_rules! m { ($n:ident) => { fn $n() { 1 } }; }"),
        (
            "// no\nfn f<'a>(x: &'a str) { '}'; b'\\''; r#\"}\"}\"#; /* } /* } */ */ }",
            "\nfn f<'a>(x: &'a str) {loop{}}",
        ),
        ("/// One.\n/// More.\n///\n/// Long.\nstruct A;\n//// no\n", "/// One.\n/// More.\nstruct A;\n"),
        ("//! One.\n//!\n//! Long.\nmod a;", "//! One.\nmod a;"),
        (
            '#[must_use = "x]"]#[stable(since = "1")] #[doc = "x"]#[doc(hidden)] fn f() { 1 }',
            f"{STABLE}fn f() {{loop{{}}}}",
        ),
        # As it is where it cannot be read.
        ("fn f() { /* } ", "fn f() { /* } "),
        ("fn f() { ", "fn f() { "),
    ],
)
def test_of_a_function_the_signature_is_left(whole: str, short: str | None) -> None:
    short = short or "fn f<T>() where T: Fn() -> [u8; { 2 }] {loop{}}\nstruct S { x: fn(u8) -> u8 }"
    assert signatures(whole) == short
    assert signatures(short) == short


def test_of_what_is_made_a_dozen_times_only_lengths_keep_their_bodies() -> None:
    macro = "macro_rules! m { ($t:ty) => { #[inline] pub const fn NAME(self) -> $t { 1 } fn $n() { 2 } }; }"
    left = macro.replace("#[inline] ", " ")
    assert signatures(macro.replace("NAME", "pow"), whole=True) == left.replace("NAME", "pow")
    assert signatures(macro.replace("NAME", "min"), whole=True) == left.replace("NAME", "min").replace(
        "{ 1 }", "{loop{}}"
    )
    source = Path(run("rustc", "--print", "sysroot").strip()) / "lib/rustlib/src/rust/library"
    # A file that has been renamed would be read as it is.
    assert all((source / name).is_file() for name in rust_src.MANIFOLD | {rust_src.EMPTY[-1]})
    assert len(signatures((source / "core/src/num/int_macros.rs").read_text(encoding="utf-8"), whole=True)) < 40_000


@pytest.mark.parametrize("crate", ["core", "alloc", "std"])
def test_rust_can_read_what_is_left_of_its_library(crate: str, tmp_path: Path) -> None:
    source = Path(run("rustc", "--print", "sysroot").strip()) / "lib/rustlib/src/rust/library" / crate / "src"
    for name in ("lib.rs", "sync.rs" if crate == "alloc" else "mem/mod.rs" if crate == "core" else "io/mod.rs"):
        short = signatures((source / name).read_text(encoding="utf-8"))
        (tmp_path / "x.rs").write_text(short, encoding="utf-8")
        command = ["rustc", "--edition", "2024", "-Zunpretty=normal", str(tmp_path / "x.rs")]
        run(*command, RUSTC_BOOTSTRAP="1")
        assert len(short) < 0.7 * (source / name).stat().st_size


def run(*command: str, **environment: str) -> str:
    """What a command says; it must go well."""
    return subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL
    ).stdout


def test_rustc_is_asked_once_for_what_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And compiles each time."""
    rustc, asked = tmp_path / "tools/bin/rustc", tmp_path / "asked"
    rustc.parent.mkdir(parents=True)
    script = f'#!/bin/sh\necho "$@" >>{asked}\ncase "$*" in *bad*) echo wrong >&2; exit 3;; esac\necho "said $RUSTC_BOOTSTRAP $*"\n'
    rustc.write_text(script)
    rustc.chmod(0o755)
    monkeypatch.setattr(paths, "STATE", tmp_path / "setup.json")
    monkeypatch.setattr(paths, "GENERATED", tmp_path / "made")
    env = recipe.environment(dict(os.environ), tmp_path / "k", tmp_path / "tools", tmp_path / "evcxr")
    assert env["RUSTC"] == str(recipe.RUSTC_ANSWERS) and env["GPULAB_RUSTC"] == str(rustc)

    def ask(*arguments: str, **more: str) -> tuple[int, str, str]:
        command = [env["RUSTC"], *arguments]
        done = subprocess.run(command, env={**env, **more}, capture_output=True, text=True, check=False, input="")
        return done.returncode, done.stdout, done.stderr

    questions = [
        ["-vV"],
        ["--print", "sysroot"],
        ["-", "--crate-name", "___", "--print=file-names"],
        ["-O", "--print", "cfg"],
    ]
    for question in questions:
        for _ in range(2):
            assert ask(*question) == (0, f"said  {' '.join(question)}\n", "")
    assert len(asked.read_text().splitlines()) == len(questions)
    # Another answer under another setting.
    assert ask("-vV", RUSTC_BOOTSTRAP="1")[1] == "said 1 -vV\n"
    for compiled in (["--crate-name", "ctx", "src/lib.rs", "--print=cfg"], ["-", "--crate-name", "x", "--print=cfg"]):
        before = len(asked.read_text().splitlines())
        assert [ask(*compiled)[0] for _ in range(2)] == [0, 0]
        assert len(asked.read_text().splitlines()) == before + 2
    assert ask("--print", "bad") == (3, "", "wrong\n")
    assert ask("--print", "bad") == (3, "", "wrong\n")
    # Another compiler is asked anew.
    os.utime(rustc, ns=(1, 1))
    assert recipe.environment(dict(os.environ), tmp_path / "k", tmp_path / "tools", tmp_path / "e") != env
    # Where nothing can be kept, rustc answers.
    (tmp_path / "file").touch()
    assert ask("-vV", GPULAB_RUSTC_ANSWERS=str(tmp_path / "file/x"))[:2] == (0, "said  -vV\n")
