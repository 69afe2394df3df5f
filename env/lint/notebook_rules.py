"""The rules that one notebook has to keep."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from env.lint import page_rules
from env.notebooks import KERNEL, ROOT, Lesson, relative, tags

SECTIONS = ["Question", "Prediction", "Experiment", "Plot", "Explanation", "Exercise", "Check", "Where next"]
# What is on neither path, before the last section.
DEEPER = "Going deeper (optional)"
MOST_LINES = 15
# For a cell that shows a thing in full, once: it says which.
MOST_LINES_IN_FULL = 40
LOAD = ':dep gpulab = { path = "../support-crate" }'
# Each crate more that a lesson loads is one more thing to know about it.
MOST_CRATES = 4
CRATE = re.compile(
    r':dep (gpulab-(\w+)|warpsim) = \{ path = "\.\./crates/(\w+)"(?:, features = \["\w+"(?:, "\w+")*\])? \}'
)
USES = re.compile(r"(?:use [^;]+;\s*)+")
# tag, and the key in the cell's metadata that says more
TAGS = {"exercise": "exercise", "check": "check", "expected-error": "expected_error", "in-full": "in_full"}
NAME = re.compile(r"^\d\d[a-z]?_[a-z0-9_]+$")
# A prediction of the reader's, and what it is set to.
GUESS = re.compile(r"^let (my_\w+)(?:\s*:[^=\n]+)?\s*=\s*([^;\n]*);", re.MULTILINE)
MINUTES = re.compile(r"(\d+)\s*minutes")


@dataclass
class Finding:
    """A broken rule: where, what, and what to do next."""

    file: Path
    where: str
    what: str
    step: str

    def __str__(self) -> str:
        return f"{relative(self.file)}{', ' + self.where if self.where else ''}: {self.what}\nnext: {self.step}"


def cell_name(number: int, cell: NotebookNode) -> str:
    """How a finding names a cell: its place among all cells, and its id."""
    return f"cell {number} (id {cell.get('id', 'none')})"


def minutes(lesson: Lesson) -> int | None:
    """The minutes that a lesson states in its first cell."""
    cells = lesson.notebook.cells
    stated = MINUTES.search(cells[0].source) if cells else None
    return int(stated[1]) if stated else None


def check(lesson: Lesson) -> list[Finding]:
    """All findings in one notebook."""
    rules = (_valid, _clean, _head, _sections, _first_code, _code, _replayed, _prediction, _tags, _exercises, _links)
    return [finding for rule in rules for finding in rule(lesson)]


def _numbered(lesson: Lesson) -> list[tuple[str, NotebookNode]]:
    return [(cell_name(number, cell), cell) for number, cell in enumerate(lesson.notebook.cells, 1)]


def _is_lesson(lesson: Lesson) -> bool:
    """00 has a lighter form of its own."""
    return not lesson.name.startswith("00")


def _valid(lesson: Lesson) -> Iterator[Finding]:
    try:
        nbformat.validate(lesson.notebook)
    except nbformat.ValidationError as error:
        text = str(error).splitlines()[0]
        yield Finding(lesson.path, "", f"is not a valid notebook: {text}", "open and save it in JupyterLab")
    if not NAME.match(lesson.name):
        yield Finding(lesson.path, "", "its name is not like 02_async_timing", "rename it: NN_slug.ipynb")
    seen: set[str] = set()
    # From the file itself: reading it as a notebook would repair the ids.
    for number, cell in enumerate(json.loads(lesson.path.read_text(encoding="utf-8"))["cells"], 1):
        if not cell.get("id") or cell["id"] in seen:
            step = "give it an id of its own: plots and runs are named after it"
            yield Finding(lesson.path, cell_name(number, cell), "has no id, or another cell's", step)
        seen.add(cell.get("id", ""))
    spec = lesson.notebook.metadata.get("kernelspec", {})
    if spec.get("name") != KERNEL or spec.get("language") != "rust":
        step = f'set metadata.kernelspec to {{"name": "{KERNEL}", "display_name": "Rust (gpulab)", "language": "rust"}}'
        yield Finding(lesson.path, "", f"its kernel is `{spec.get('name')}`", step)


def _clean(lesson: Lesson) -> Iterator[Finding]:
    step = f"python3 -m env.lint --strip {relative(lesson.path)}"
    for where, cell in _numbered(lesson):
        if cell.cell_type == "code" and (cell.get("outputs") or cell.get("execution_count") is not None):
            yield Finding(lesson.path, where, "stores an output or an execution count", step)
        if {"execution", "gpulab"} & set(cell.metadata):
            yield Finding(lesson.path, where, "stores times of an execution", step)


def _head(lesson: Lesson) -> Iterator[Finding]:
    all_headings = [
        (where, one)
        for where, cell in _numbered(lesson)
        if cell.cell_type == "markdown"
        for one in page_rules.headings(cell.source)
    ]
    titles = [where for where, one in all_headings if one.level == 1]
    first = lesson.notebook.cells[0] if lesson.notebook.cells else None
    if len(titles) != 1 or not all_headings or all_headings[0][1].level != 1:
        step = "start with one `# title`; sections begin with `##`"
        yield Finding(lesson.path, "", f"has {len(titles)} titles (`# …`), or does not start with it", step)
    head = first.source if first is not None and first.cell_type == "markdown" else ""
    if not MINUTES.search(head):
        yield Finding(lesson.path, "cell 1", "does not state its minutes", "write as `about 30 minutes` there")
    if "builds on" not in head.lower():
        yield Finding(lesson.path, "cell 1", "does not say what it builds on", "write `Builds on: …` there")


def _sections(lesson: Lesson) -> Iterator[Finding]:
    cells = (cell for cell in lesson.notebook.cells if cell.cell_type == "markdown")
    found = [one.text for cell in cells for one in page_rules.headings(cell.source) if one.level == 2]
    if not _is_lesson(lesson):
        if len(found) < 2 or not _begins(found[-1], SECTIONS[-1]):
            step = "use `## …` for its parts, the last one `## Where next`"
            yield Finding(lesson.path, "", "has fewer than two sections, or does not end with `Where next`", step)
        return
    wanted = [*SECTIONS[:-1], DEEPER, SECTIONS[-1]] if DEEPER in found else SECTIONS
    if len(found) != len(wanted) or not all(map(_begins, found, wanted)):
        step = f"have exactly the sections {', '.join(SECTIONS)}, with or without `{DEEPER}` before the last one; use `###` below them"
        yield Finding(lesson.path, "", f"its sections are: {', '.join(found) or 'none'}", step)


def _begins(heading: str, section: str) -> bool:
    """`Question`, and `Question: who is faster?` too."""
    return heading == section or heading.startswith(f"{section}:")


def _first_code(lesson: Lesson) -> Iterator[Finding]:
    lines = lesson.code[0].source.strip().splitlines() if lesson.code else []
    loads = [line for line in lines if line.startswith(":dep ")]
    uses = lines[len(loads) :]
    if loads != lines[: len(loads)] or loads[:1] != [LOAD] or not USES.fullmatch("\n".join(uses) + "\n"):
        step = f"begin with `{LOAD}`, then other `:dep` lines, then `use` lines alone"
        yield Finding(lesson.path, "first code cell", "does not load the support crate as every lesson does", step)
    if "use gpulab::prelude::*;" not in uses:
        yield Finding(
            lesson.path, "first code cell", "does not use the prelude", "write `use gpulab::prelude::*;` there"
        )
    if len(loads) > 1 + MOST_CRATES:
        step = f"load at most {MOST_CRATES} beside `gpulab`"
        yield Finding(lesson.path, "first code cell", f"loads {len(loads)} crates", step)
    for line in loads[1:]:
        named = CRATE.fullmatch(line)
        folder = named and (named[2] or named[1])
        if not named or named[3] != folder or not (ROOT / "crates" / folder / "Cargo.toml").is_file():
            step = 'write `:dep gpulab-NAME = { path = "../crates/NAME" }`'
            yield Finding(lesson.path, "first code cell", f"`{line}` loads no crate of the course", step)


def _code(lesson: Lesson) -> Iterator[Finding]:
    for where, cell in _numbered(lesson):
        if cell.cell_type != "code":
            continue
        length = len(cell.source.strip().splitlines())
        if length == 0:
            yield Finding(lesson.path, where, "is an empty code cell", "remove it")
        most = MOST_LINES_IN_FULL if "in-full" in tags(cell) else MOST_LINES
        if length > most:
            step = "split it, or move what two notebooks need to the support crate"
            yield Finding(lesson.path, where, f"has {length} lines, more than {most}", step)


def _replayed(lesson: Lesson) -> Iterator[Finding]:
    """Without a GPU `on_gpu` shows all that its cell printed in the recorded run: what else the cell prints would come twice."""
    for where, cell in _numbered(lesson):
        if cell.cell_type == "code" and "print" in _outside(cell.source, ".on_gpu("):
            what = "prints beside `on_gpu`, which shows what the whole cell printed in the recorded run"
            yield Finding(lesson.path, where, what, "print it in a cell of its own")


def _outside(code: str, call: str) -> str:
    """What stands before a call and after its closing parenthesis; nothing where there is no such call."""
    before, found, rest = re.sub(r'r#".*?"#|"(?:\\.|[^"\\])*"', '""', code, flags=re.DOTALL).partition(call)
    depth = 1 if found else 0
    for at, letter in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if depth == 0:
            return before + rest[at:]
    return ""


def _prediction(lesson: Lesson) -> Iterator[Finding]:
    if _is_lesson(lesson) and not any("let " in cell.source for cell in _in_section(lesson, "Prediction")):
        step = "let the reader commit to a guess in code there, as `let guess = 10.0;`"
        yield Finding(lesson.path, "section Prediction", "has no prediction in code", step)
    for cell in _in_section(lesson, "Prediction"):
        for name, guess in GUESS.findall(cell.source):
            if "None" not in guess or re.sub(r"None|[\[\]();,\s\d]", "", guess):
                what = f"`{name}` is filled in: whoever runs all cells would have predicted {guess}"
                yield Finding(
                    lesson.path, "section Prediction", what, f"let it be `None`: `let {name}: Option<f64> = None;`"
                )


def _in_section(lesson: Lesson, section: str) -> Iterator[NotebookNode]:
    """The code cells of one section."""
    inside = False
    for cell in lesson.notebook.cells:
        if cell.cell_type == "markdown":
            for one in page_rules.headings(cell.source):
                if one.level == 2:
                    inside = _begins(one.text, section)
        elif inside:
            yield cell


def _tags(lesson: Lesson) -> Iterator[Finding]:
    for where, cell in _numbered(lesson):
        for tag in tags(cell):
            if tag not in TAGS:
                yield Finding(lesson.path, where, f"has the tag `{tag}`, which means nothing", f"use {', '.join(TAGS)}")
        for tag, key in TAGS.items():
            named = str(cell.metadata.get(key) or "").strip()
            if (tag in tags(cell)) != bool(named):
                step = f"have both the tag `{tag}` and metadata.{key}, or neither"
                yield Finding(lesson.path, where, f"has only one of tag `{tag}` and metadata.{key}", step)


def _exercises(lesson: Lesson) -> Iterator[Finding]:
    exercises = [cell.metadata.get("exercise") for cell in lesson.code if "exercise" in tags(cell)]
    checks = [cell.metadata.get("check") for cell in lesson.code if "check" in tags(cell)]
    order = [cell.metadata.get("exercise") or cell.metadata.get("check") for cell in lesson.code]
    if _is_lesson(lesson) and len(set(exercises)) < 2:
        yield Finding(lesson.path, "", f"has {len(exercises)} exercises", "have at least two, each with a check")
    for name in sorted({str(one) for one in exercises + checks + list(lesson.solutions)}):
        counts = (exercises.count(name), checks.count(name), int(name in lesson.solutions))
        if counts != (1, 1, 1):
            what = f"`{name}` has {counts[0]} exercise cells, {counts[1]} check cells, {counts[2]} solutions"
            step = f"have one of each (solutions: solutions/{lesson.name}.rs, section `// exercise: {name}`)"
            yield Finding(lesson.path, "", what, step)
        elif order.index(name) != next(
            at for at, cell in enumerate(lesson.code) if cell.metadata.get("exercise") == name
        ):
            yield Finding(lesson.path, "", f"`{name}` is checked before its exercise", "put the check below")


def _links(lesson: Lesson) -> Iterator[Finding]:
    cells = [(where, cell) for where, cell in _numbered(lesson) if cell.cell_type == "markdown"]
    own = [one for _, cell in cells for one in page_rules.headings(cell.source)]
    for where, cell in cells:
        for target in page_rules.links(cell.source):
            wrong = None if target.startswith("attachment:") else page_rules.broken(target, lesson.path, own)
            if wrong:
                yield Finding(lesson.path, where, f"links to `{target}`: {wrong}", "fix the link")
