"""Which kinds of errors the project prints, read from its sources, and which of them docs/troubleshooting.md explains.

A kind is a variant of `Error`; for the variants that say many things (`Invalid`, `Unsupported`, …) each part that makes
one: a module of support-crate, another crate, or a module of a large one; a driver's code with advice of its own; a
mistake that the simulator finds; a tool in env/ that fails with a next step. Not each text: a row explains a kind, and
names it in a comment, `<!-- for: Invalid in kernels/topics -->`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from env.notebooks import ROOT

PAGE = ROOT / "docs" / "troubleshooting.md"
CRATE, CRATES, TOOLS = ROOT / "support-crate" / "src", ROOT / "crates", ROOT / "env"
SIMULATOR, ERROR = CRATES / "warpsim" / "src", CRATES / "measure" / "src" / "error.rs"
# Variants whose text is made where they are raised.
BROAD = {"File", "Invalid", "Unsupported", "Driver", "LaunchLimit"}
# Crates of which each module in a folder of its own counts.
LARGE = {"cli", "kernels", "lessons", "measure", "nn", "onnx"}
FAILS = re.compile(r"\b(?:raise (?:Problem|SetupError|NotReadyError)|SetupError)\(|sys\.exit\(f?\"[^\"]*next: ")
MARK = re.compile(r"<!-- for: (.+?) -->")
QUOTE = re.compile(r"`([^`]+)`")


def kinds() -> set[str]:
    """Every kind of error that the sources hold."""
    return set(_variants()) | set(_parts()) | set(_codes()) | set(_simulator()) | set(_tools())


def _code(path: Path) -> str:
    """A Rust file without its tests."""
    return path.read_text(encoding="utf-8").split("#[cfg(test)]")[0]


def _sources(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*.rs")) if "tests" not in path.stem and "tests" not in path.parts)


def _own() -> Iterator[Path]:
    """The sources of all crates that share the one error type."""
    yield from _sources(CRATE)
    for folder in sorted(CRATES.glob("*/src")):
        if folder != SIMULATOR:
            yield from _sources(folder)


def _variants() -> Iterator[str]:
    text = _code(ERROR).partition("pub enum Error {")[2].partition("\n}")[0]
    return (f"Error::{name}" for name in re.findall(r"^    (\w+) \{", text, flags=re.MULTILINE))


def _parts() -> Iterator[str]:
    for path in _own():
        if path == ERROR or ERROR.with_suffix("") in path.parents:
            continue
        if CRATE in path.parents:
            part = path.relative_to(CRATE).with_suffix("").parts[0]
        else:
            crate, source, module = path.relative_to(CRATES).with_suffix("").parts[:3]
            is_large = crate in LARGE and (CRATES / crate / source / module).is_dir()
            part = f"{crate}/{module}" if is_large else crate
        # `gpulab-nn` makes most of its errors by two functions of these names; `save` is `gpulab_measure::error`'s.
        made = re.findall(
            r"Error::(\w+) *\{|(?<!fn )\b(invalid|unsupported)\(|(Error::file|(?<![.\w])(?<!fn )save)\(", _code(path)
        )
        for variant, function, file in made:
            variant = variant or function.capitalize() or (file and "File")
            if variant in BROAD:
                yield f"{variant} in {part}"


def _codes() -> Iterator[str]:
    return iter(re.findall(r"CUresult::(CUDA_ERROR_\w+)", _code(ERROR.with_suffix("") / "cuda.rs")))


def _simulator() -> Iterator[str]:
    words = _code(SIMULATOR / "finding.rs").partition("pub fn words")[2].partition("\n    }")[0]
    yield from (f"simulator: {mistake}" for mistake in re.findall(r'=> "([^"]+)"', words))
    text = _code(SIMULATOR / "error.rs").partition("pub enum Error {")[2].partition("\n}")[0]
    yield from (f"simulator: {name}" for name in re.findall(r"^    ([A-Z]\w+)(?: \{|\()", text, flags=re.MULTILINE))


def _tools() -> Iterator[str]:
    for path in sorted(TOOLS.rglob("*.py")):
        parts = path.relative_to(TOOLS).parts
        if parts[0] != "tests" and FAILS.search(path.read_text(encoding="utf-8")):
            yield f"env/{parts[0]}"


def explained(page: str) -> dict[str, list[str]]:
    """The kinds that a page's rows are for, each with its row."""
    found: dict[str, list[str]] = {}
    for row in page.splitlines():
        for mark in MARK.findall(row):
            for kind in mark.split(";"):
                found.setdefault(kind.strip(), []).append(row)
    return found


@cache
def _all_text() -> str:
    """What the project prints, as one text: string literals joined where a line of source goes on in the next."""
    paths = [*_own(), *_sources(SIMULATOR), *(one for one in TOOLS.rglob("*.py") if "tests" not in one.parts)]
    paths += [*TOOLS.rglob("*.sh"), ROOT / "Makefile"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return re.sub(r"\\\n\s*", "", text).replace('\\"', '"')


def misquoted(row: str) -> Iterator[str]:
    """Texts that a marked row quotes in its first cell and that nothing prints; `…` stands for what differs."""
    for quote in QUOTE.findall(MARK.sub("", row.split("|")[1])):
        if not all(piece.strip() in _all_text() for piece in quote.split("…")):
            yield quote


def wrong(page: str, there: set[str]) -> Iterator[tuple[str, str]]:
    """Kinds without a row, rows without a kind, and quotations of what nobody prints, each with what to do."""
    rows = explained(page)
    for kind in sorted(there - set(rows)):
        yield f"no row is for `{kind}`", f"add a row with its cause and its fix, marked `<!-- for: {kind} -->`"
    for kind in sorted(set(rows) - there):
        yield f"a row is for `{kind}`, which the project does not have", "take the mark away, or name the kind rightly"
    for row in dict.fromkeys(row for some in rows.values() for row in some):
        for quote in misquoted(row):
            yield f"a row quotes `{quote}`, which nothing prints", "quote it as it is printed, with … for what differs"
