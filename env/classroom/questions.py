"""What a lesson's cells ask, and what a run of them says: predictions before, and measurements beside them.

Read from a cell's source and from what it printed, so that no notebook needs a line for it. Standard library only: the relay
imports it, in each notebook that has joined a class.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from env import paths, progress

# Predictions are variables of one kind, in every lesson: `let my_factor: Option<f64> = Some(8.0);`.
LET = re.compile(r"let (?:mut )?(my_\w+)\s*(?::\s*(.+?))?\s*=\s*(.+?);\s*(?://\s*(.*))?$")
NAMED = re.compile(r"\bmy_\w+(?:\[\d+\])?")
NUMERIC = re.compile(r"\b(?:f32|f64|usize|isize|[iu](?:8|16|32|64|128))\b")
SUFFIX = re.compile(r"(?<=[\d.])_?(?:f32|f64|usize|isize|[iu](?:8|16|32|64|128))\b")
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
             ast.USub: operator.neg}  # fmt: skip
# No number needs more letters, and Python's parser is not for what nests deeply.
LONGEST = 60
# Printed predictions are rounded to three figures.
SAME = 0.01


class NoNumberError(ValueError):
    """A prediction that no axis can show; its text is what stands in the cell."""


def number(text: str) -> float:
    """What a Rust literal, or a short calculation with literals, comes to."""
    if len(text) > LONGEST:
        raise NoNumberError(f"{text[:LONGEST]} …")
    plain = SUFFIX.sub("", text.strip()).replace("_", "")
    try:
        value = float(_value(ast.parse(plain, mode="eval").body))
    except (SyntaxError, ValueError, KeyError, ArithmeticError, TypeError, RecursionError):
        raise NoNumberError(text.strip()) from None
    if not math.isfinite(value):
        raise NoNumberError(text.strip())
    return value


def _value(node: ast.expr) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.UnaryOp):
        return OPERATORS[type(node.op)](_value(node.operand))
    if isinstance(node, ast.BinOp):
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    raise ValueError(node)


def guesses(code: str) -> Iterator[tuple[str, str | None]]:
    """The predictions that a cell states: their names, and the number as it stands there; None where there is none yet."""
    for line in code.splitlines():
        match = LET.match(line.strip())
        if not match or not NUMERIC.search(match[2] or "f64") or "(" in (match[2] or ""):
            continue
        name, value = match[1], match[3]
        if not value.startswith("["):
            yield name, _inside(value)
            continue
        parts = [part.strip() for part in re.split(r",(?![^(]*\))", value.strip("[]")) if part.strip()]
        filled = re.fullmatch(r"\[(.+);\s*(\d+)\]", value)
        parts = [filled[1]] * min(int(filled[2]), 64) if filled else parts
        yield from ((f"{name}[{at}]", _inside(part)) for at, part in enumerate(parts))


def _inside(value: str) -> str | None:
    some = re.fullmatch(r"Some\((.*)\)", value.strip())
    return some[1] if some else None if value.strip() == "None" else value.strip()


def questions(lesson: str, folder: Path | None = None) -> dict[str, str] | None:
    """What a lesson asks its readers to predict: the variable's name, and the words above it. None for a notebook that the course
    does not have. What stands in an exercise is an answer, and no prediction."""
    cells = _code_cells(lesson, folder or paths.NOTEBOOKS)
    asked: dict[str, str] = {}
    for cell in cells or []:
        if "exercise" not in cell["metadata"].get("tags", []):
            for name, words in _asked("".join(cell["source"])):
                asked.setdefault(name, words)
    return None if cells is None else asked


def _code_cells(lesson: str, folder: Path) -> list[dict[str, Any]] | None:
    """Those of a lesson of the course; None for another notebook."""
    notebook = paths.read_json(folder / f"{lesson}.ipynb") if progress.LESSON.fullmatch(lesson) else {}
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"] if notebook else None


def _asked(code: str) -> Iterator[tuple[str, str]]:
    words: list[str] = []
    told = False
    for line in code.splitlines():
        stripped = line.strip()
        if stripped.startswith("//"):
            words = [*([] if told else words), stripped.lstrip("/ ")]
            told = False
            continue
        match = LET.match(stripped)
        if not match:
            words = []
            continue
        said = re.sub(r";?\s*(?:your guess, )?for instance .*|your guess.*", "", match[4] or "")
        for name, _ in guesses(stripped):
            yield name, " · ".join(filter(None, [" ".join(words), said]))
        told = True


def exercises(lesson: str) -> tuple[int, set[str]]:
    """How many exercises a lesson has, and the ids of its code cells."""
    cells = _code_cells(lesson, paths.NOTEBOOKS) or []
    return sum("exercise" in cell["metadata"].get("tags", []) for cell in cells), {cell.get("id", "") for cell in cells}


def measured(code: str, lines: list[str], known: dict[str, float | None]) -> Iterator[tuple[str, float]]:
    """What a cell measured of what was predicted. `known` has the lesson's predictions, with their numbers where there are some.

    A lesson prints each prediction behind what it belongs to, in the order in which its cell names them. Where a cell names
    more or fewer than it printed, a number that only one of them has decides.
    """
    code = "\n".join(line.split(" //")[0] for line in code.splitlines() if not LET.match(line.strip()))
    names = [name for name in dict.fromkeys(NAMED.findall(code)) if name in known]
    said = [found for line in lines for found in progress.said(line)]
    for at, (_, value, guess) in enumerate(said):
        told = progress.number(guess) if guess else None
        here = names[at : at + 1] if len(names) == len(said) else names
        same = [name for name in here if told is not None and _close(known[name], told)]
        found = same if told is not None else here
        if value is not None and len(found) == 1 and (told is not None or len(names) == len(said)):
            yield found[0], progress.number(value)


def _close(ours: float | None, told: float) -> bool:
    return ours is not None and abs(ours - told) <= SAME * max(abs(ours), abs(told))
