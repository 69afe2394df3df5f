"""Figures in prose, and where each comes from: no number with a unit is typed.

`env.lint.quantities` says what such a number is, and what is none. In a notebook the sources are in the metadata of the
Markdown cell, `"figures": {"4.8 TB/s": "cited: https://…"}`; the key is the text as it stands in the cell (for a table's
column, whose head names the unit, number and unit). On a page they are in a comment, `<!-- figures: {…} -->`. A source is

- `cited: URL`, where it can be read (more words may follow);
- `derived: EXPRESSION`, which gives the number in that unit: `+ - * / // % **`, `sqrt`, `log2`, `ceil`, `floor`, `min`,
  `max`, and `{FILE column=value,…}`, the value of a recorded row in the row's own unit;
- `row: FILE column=value,…`, a row of a CSV file below results/, its `value` in its `unit`. Where a table has no such
  columns, name one and its unit behind: `row: results/h200/decode.csv plan=whole -> us_a_token µs`. Several rows
  are good where they all have that value (a measurement that stands beside two others);
- `given: CODE`, a piece of a code cell in the same notebook that sets it (`given: let launch_us = 5.0`); in the sections
  Exercise and Check, `given: by the exercise`; and `given: an example` where a sentence only supposes it.

- on a page alone, `measured: DATE, MACHINE`, what a tool took once and no table records; in a text that tools write
  (`<!-- written by … -->` to `<!-- end -->`) nothing is asked.

Text with several numbers (`8–15 GB/s`) has one source for all, or a list with one for each. What is computed or looked
up is compared with the digits shown. Reading times are not looked at: the first cell, and lesson 00, state them, and
`env.lint.minutes` computes them.
"""

from __future__ import annotations

import argparse
import ast
import csv
import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from env import in_venv

if __name__ == "__main__":
    # Before nbformat is asked for.
    in_venv.enter(set_up=False)

from env.console import tool
from env.lint import page_rules, quantities
from env.lint.notebook_rules import Finding, cell_name
from env.lint.quantities import UNITS, Quantity
from env.notebooks import ROOT, Lesson, find, load, relative

PAGES = ("README.md", "docs/*.md", "crates/*/README.md")
# Generated, and the design's own figures, which are of no lesson.
NOT_FOR_READERS = {"where.md", "DESIGN.md"}
# In the text of a page.
SOURCES = re.compile(r"<!--\s*figures:\s*(\{.*?\})\s*-->", re.DOTALL)
WRITTEN = re.compile(r"<!-- written by .*?<!-- end -->", re.DOTALL)
MEASURED = re.compile(r"20\d\d-\d\d-\d\d, \S.*")
ROW = re.compile(r"\{([^{}]*)\}")
EXERCISES = ("Exercise", "Check")
GIVEN = ("by the exercise", "the question's own number")
EXAMPLE = "an example"
FORMS = "`cited: https://…`, `derived: 2 * 3 / 4`, `row: results/….csv column=value,…` or `given: CODE`"
NEXT = f"let a cell print it or say what to look at, or add its source to the cell's metadata, `figures`: {FORMS}"
LARGEST_POWER = 1024

_OPERATORS: dict[type, Callable] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_FUNCTIONS = {
    "sqrt": math.sqrt, "log2": math.log2, "ceil": math.ceil, "floor": math.floor, "min": min, "max": max,
}  # fmt: skip


class Unsourced(Exception):
    """What is wrong with a source, and what to do."""

    def __init__(self, what: str, step: str) -> None:
        super().__init__(what)
        self.what, self.step = what, step


@dataclass(frozen=True)
class Where:
    """Where a text stands: the code of its notebook, or a page, and what may be said there without a source."""

    code: Sequence[str] = ()
    exercise: bool = False
    reading_times: bool = False
    page: bool = False

    def sets(self, piece: str) -> bool:
        """Whether a code cell of the notebook holds this piece."""
        return bool(piece) and any(" ".join(piece.split()) in one for one in self.code)


def derived(expression: str) -> float:
    """The value of an arithmetic expression; nothing else is evaluated."""
    if not re.search(r"[-+*/%{(]", expression):
        step = "write the arithmetic that leads to it, or name its row or its page"
        raise Unsourced(f"`{expression}` derives nothing: it is the number itself", step)
    with_rows = ROW.sub(lambda match: repr(recorded(match[1])[0]), expression)
    try:
        result = _evaluated(ast.parse(with_rows.strip(), mode="eval").body)
        if isinstance(result, complex) or not math.isfinite(result):
            raise ValueError("it has no finite value")
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, TypeError, RecursionError) as problem:
        step = "use numbers, + - * / // % **, sqrt, log2, ceil, floor, min, max and {FILE column=value}"
        raise Unsourced(f"`{expression}` cannot be computed: {str(problem).splitlines()[0]}", step) from problem
    return float(result)


def _evaluated(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _evaluated(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluated(node.left), _evaluated(node.right)
        if isinstance(node.op, ast.Pow) and (abs(right) > LARGEST_POWER or abs(left) > 1e9):
            raise ValueError("that power is too large")
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        if node.func.id in _FUNCTIONS:
            return _FUNCTIONS[node.func.id](*map(_evaluated, node.args))
        raise ValueError(f"there is no function `{node.func.id}`")
    raise ValueError("it is more than arithmetic")


@cache
def _table(path: Path, _changed: int) -> tuple[tuple[str, ...], tuple[dict[str, str], ...]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        return tuple(reader.fieldnames or ()), tuple(reader)


def recorded(reference: str, root: Path | None = None) -> tuple[float, str]:
    """The value of a recorded row and its unit: `results/FILE.csv column=value,column=value -> column unit`."""
    root = root or ROOT
    name, _, rest = reference.strip().partition(" ")
    rest, _, chosen = rest.partition("->")
    path = (root / name).resolve()
    if not path.is_relative_to(root / "results") or path.suffix != ".csv":
        raise Unsourced(
            f"`{name}` is no CSV file below results/", "name a recorded file, as results/h200/recorders.csv"
        )
    if not path.is_file():
        raise Unsourced(f"there is no {name}", "name a recorded file, as results/h200/recorders.csv")
    columns, rows = _table(path, path.stat().st_mtime_ns)
    # A value may have a comma of its own: a column's name begins the next one.
    parts = re.split(rf",\s*(?=(?:{'|'.join(map(re.escape, columns))})=)", rest.strip())
    wanted: dict[str, str] = {}
    for part in filter(None, parts):
        column, equal, value = part.partition("=")
        if not equal or column not in columns:
            raise Unsourced(f"{name} has no column `{column.strip()}`", f"choose by {', '.join(columns)}")
        wanted[column] = value.strip().strip('"')
    column, _, unit = chosen.strip().partition(" ")
    column = column or "value"
    if column not in columns:
        raise Unsourced(
            f"{name} has no column `{column}`", f"name one behind `->`, with its unit: {', '.join(columns)}"
        )
    hits = [row for row in rows if all((row[key] or "") == value for key, value in wanted.items())]
    found = {(row[column], unit.strip() or row.get("unit") or "") for row in hits}
    if not found:
        raise Unsourced(f"no row of {name} has {rest.strip()}", f"look it up again; nearest: {_nearest(rows, wanted)}")
    if len(found) > 1:
        differing = [key for key in columns if key not in wanted and len({row[key] for row in hits}) > 1]
        raise Unsourced(f"{len(hits)} rows of {name} have {rest.strip()}", f"choose also by {', '.join(differing)}")
    value, unit = found.pop()
    try:
        return float(value), unit
    except ValueError:
        raise Unsourced(f"`{column}` of that row is `{value}`, which is no number", "name another column") from None


def _nearest(rows: Iterable[dict[str, str]], wanted: dict[str, str]) -> str:
    """The row that agrees with most of what is wanted, by the same columns."""
    best = max(rows, key=lambda row: sum(row[key] == value for key, value in wanted.items()), default={})
    return ",".join(f"{key}={best.get(key, '')}" for key in wanted) or "none"


def _wrong(quantity: Quantity, source: object, where: Where) -> None:
    """Raises what is wrong with a quantity's source."""
    sources = source if isinstance(source, list) else [source]
    if len(sources) not in (1, len(quantity.numbers)):
        count = f"{len(sources)} sources for {len(quantity.numbers)} numbers"
        raise Unsourced(f"`{quantity.text}` has {count}", "give one for all, or one for each")
    for at, number in enumerate(quantity.numbers):
        _wrong_one(quantity, number, str(sources[at if len(sources) > 1 else 0]), where)


def _wrong_one(quantity: Quantity, number: str, source: str, where: Where) -> None:
    kind, _, rest = source.partition(":")
    rest = rest.strip()
    if kind == "cited":
        if not re.match(r"https?://[\w.-]+\.\w+(?:[/?#]\S*)?(?:\s|$)", rest):
            raise Unsourced(f"`{quantity.text}` cites `{rest}`, which is no address", "cite as `cited: https://…`")
    elif kind == "given":
        if rest == EXAMPLE or (rest in GIVEN and where.exercise):
            return
        if not where.sets(rest):
            what = f"`{quantity.text}` is said to be given by `{rest}`, which no code cell of the notebook holds"
            raise Unsourced(what, f"copy the piece of code that sets it, or in an exercise write `given: {GIVEN[0]}`")
        if not (re.search(r"\d", rest) and re.search(r"[A-Za-z_]", rest)):
            raise Unsourced(f"`{rest}` holds no name and number", "copy the piece of code with its name and its number")
    elif kind == "measured" and where.page:
        if not MEASURED.match(rest):
            raise Unsourced(
                f"`{quantity.text}` was measured: `{rest}`", "write `measured: 2026-11-21, AMD EPYC, 2 cores`"
            )
    elif kind == "derived":
        _compare(quantity, number, derived(rest), quantity.unit, f"`{rest}`")
    elif kind == "row":
        value, unit = recorded(rest)
        _compare(quantity, number, value, unit, f"the row {rest}")
    else:
        raise Unsourced(f"`{quantity.text}` has the source `{source}`", f"write {FORMS}")


def _compare(quantity: Quantity, number: str, value: float, unit: str, where: str) -> None:
    """Whether a value, in its unit, is what the digits show."""
    what, factor = UNITS.get(quantities.unit_of(unit), (unit, 1.0))
    wanted, into = UNITS.get(quantity.unit, (quantity.unit, 1.0))
    if what != wanted:
        raise Unsourced(
            f"`{quantity.text}` is not in the unit of {where}, `{unit}`", "choose another row, or derive it"
        )
    exact = value * factor / into
    shown = quantities.value(number)
    if abs(exact - shown) > quantities.tolerance(number) * (1 + 1e-9):
        text = f"`{number}` of `{quantity.text}`" if len(quantity.numbers) > 1 else f"`{quantity.text}`"
        raise Unsourced(f"{text} is {exact:.6g} {quantity.unit} by {where}", "write what it is, or correct its source")


def of_text(text: str, sources: dict[str, object], where: Where) -> Iterator[tuple[str, str, int]]:
    """What is wrong in one text, each with the next step and where it begins (-1: nowhere in the text)."""
    found = quantities.find(text)
    for quantity in found:
        if where.reading_times and quantity.unit in {"min", "h"}:
            continue
        if quantity.text not in sources:
            yield f"`{quantity.text}` has no source", NEXT, quantity.start
            continue
        try:
            _wrong(quantity, sources[quantity.text], where)
        except Unsourced as problem:
            yield problem.what, problem.step, quantity.start
    for key in sorted(set(sources) - {quantity.text for quantity in found}):
        if more := quantities.named(text, key):
            try:
                _wrong(more, sources[key], where)
            except Unsourced as problem:
                yield problem.what, problem.step, -1
            continue
        near = next((one.text for one in found if one.numbers[0] in key and one.text not in sources), "")
        step = f"write the key as it stands in the text: `{near}`" if near else "remove it from `figures`"
        yield f"`figures` has a source for `{key}`, which is no figure of the text", step, -1


def check(lesson: Lesson) -> list[Finding]:
    """All figures of a notebook that lack a source, or differ from it."""
    findings, section = [], ""
    code = [" ".join(cell.source.split()) for cell in lesson.code]
    for number, cell in enumerate(lesson.notebook.cells, 1):
        where, sources = cell_name(number, cell), cell.metadata.get("figures", {})
        if cell.cell_type != "markdown":
            if sources:
                step = "move them to the Markdown cell whose text they are for"
                findings.append(Finding(lesson.path, where, "has `figures`, and is no Markdown cell", step))
            continue
        for heading in page_rules.headings(cell.source):
            section = heading.text if heading.level == 2 else section
        if not isinstance(sources, dict):
            findings.append(
                Finding(lesson.path, where, "its `figures` are no object", 'write {"4.8 TB/s": "cited: …"}')
            )
            continue
        times = number == 1 or lesson.name.startswith("00")
        for what, step, at in of_text(
            cell.source,
            sources,
            Where(code, section.startswith(EXERCISES), reading_times=times),
        ):
            findings.append(Finding(lesson.path, where, what + _around(cell.source, at), step))
    return findings


def _around(text: str, at: int) -> str:
    """The words around a place, for a finding."""
    if at < 0:
        return ""
    piece = " ".join(text[max(0, at - 40) : at + 60].split())
    return f" (… {piece} …)"


def check_page(page: Path) -> list[Finding]:
    """The same for a page, whose sources stand in a comment."""
    text = page.read_text(encoding="utf-8")
    text = WRITTEN.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    sources: dict[str, object] = {}
    for match in SOURCES.finditer(text):
        try:
            sources |= json.loads(match[1])
        except ValueError as problem:
            return [Finding(page, "", f"its comment `figures` is no JSON: {problem}", "write an object of strings")]
    return [
        Finding(page, f"line {text.count(chr(10), 0, at) + 1}" if at >= 0 else "", what + _around(text, at), step)
        for what, step, at in of_text(text, sources, Where(page=True))
    ]


def pages() -> list[Path]:
    """The pages for readers."""
    return sorted({path for pattern in PAGES for path in ROOT.glob(pattern) if path.name not in NOT_FOR_READERS})


def everything(lessons: list[Lesson]) -> list[Finding]:
    """All findings in notebooks and pages."""
    return [one for lesson in lessons for one in check(lesson)] + [one for page in pages() for one in check_page(page)]


def main() -> int:
    """Prints all findings by notebook and page, with their numbers; 1 when there are any."""
    made = argparse.ArgumentParser(prog="python3 -m env.lint.figures", description="Figures in prose without a source.")
    made.add_argument("names", nargs="*", help="notebooks, as 11 or 11_reduction, or pages; default: everything")
    chosen = made.parse_args()
    wanted = [name for name in chosen.names if not name.endswith(".md")]
    lessons = [load(path) for path in find(",".join(wanted))] if wanted or not chosen.names else []
    found = {lesson.name: check(lesson) for lesson in lessons}
    for page in pages():
        if not chosen.names or relative(page) in chosen.names:
            found[relative(page)] = check_page(page)
    for name, findings in found.items():
        print(f"{name}: {len(findings)}")
        for finding in findings:
            print(f"  {finding}".replace("\n", "\n    "))
    return 1 if any(found.values()) else 0


if __name__ == "__main__":
    tool(main, failed=2)
