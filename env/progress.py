#!/usr/bin/env python3
"""A learner's progress (`make progress`): lessons executed, exercises passed, predictions beside what was measured.

All of it is read from the notebooks as they were saved, at each save in JupyterLab and at each call, and kept in
my-lessons/progress.csv: on this machine, and nowhere else. Standard library only.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import time
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

from env import paths
from env.console import ToolError, tool

VERDICT = "application/vnd.gpulab.verdict+json"
NAME = "progress.csv"
LESSON = re.compile(r"\d\d[a-z]?_\w+")
# Not `f16`, nor the number of a rung: `06`.
NUMBER = r"(?<![\w.,^])-?(?!0\d)\d[\d,]*(?:\.\d+)?(?:e-?\d+)?(?!\w)"
SAID = re.compile(rf"(?:you predicted|your prediction(?:[^:;()]*:)?) *({NUMBER})?")
# What is measured is mostly a factor or a share.
TIMES_OR_SHARE = re.compile(rf"({NUMBER}) (?:times|%)")
# Lines that say several numbers, of which another one was predicted.
OTHERS = [re.compile(rf"({NUMBER}) sectors, \S+ bytes$"), re.compile(rf"rows ({NUMBER})$")]
# Fewer say nothing about whether they get better.
FEW = 6


@dataclass(frozen=True)
class Row:
    """One thing that a notebook shows. `kind` is `cells`, `exercise` or `prediction`; `predicted` belongs to the last one."""

    time: str
    lesson: str
    kind: str
    name: str
    value: str
    predicted: str = ""


def file() -> Path:
    """Where it is kept: beside the copies that JupyterLab saves."""
    return Path(os.environ.get("GPULAB_WORK") or paths.ROOT / "my-lessons") / NAME


def number(text: str) -> float:
    """A number as the lessons print it."""
    return float(text.replace(",", ""))


def said(line: str) -> Iterator[tuple[str, str | None, str | None]]:
    """What each prediction of a printed line is about, what was measured, and what was predicted."""
    end = 0
    for match in SAID.finditer(line):
        before, end = line[end : match.start()].rstrip(" ,;("), match.end()
        yield re.sub(rf"{NUMBER}", "…", before).strip(" ,;:)") or "…", _measured(before), match[1]


def _measured(before: str) -> str | None:
    for other in OTHERS:
        if found := other.search(before):
            return found[1]
    clause = re.split(r"[:;=] ", before)[-1] if not before.endswith(":") else ""
    found = TIMES_OR_SHARE.search(clause) or re.search(rf"({NUMBER})", clause)
    return found[1] if found else None


def read(notebook: dict, lesson: str, now: str) -> list[Row]:
    """What a saved notebook shows."""
    code = [cell for cell in notebook.get("cells", []) if cell.get("cell_type") == "code" and "".join(cell["source"])]
    ran = sum(cell.get("execution_count") is not None for cell in code)
    rows = [Row(now, lesson, "cells", "", f"{ran}/{len(code)}")] if ran else []
    for output in (output for cell in code for output in cell.get("outputs", [])):
        verdict = output.get("data", {}).get(VERDICT)
        if isinstance(verdict, dict):
            rows.append(Row(now, lesson, "exercise", str(verdict.get("exercise")), str(verdict.get("verdict"))))
        printed = "".join(output.get("text", "")) if output.get("output_type") == "stream" else ""
        for line in printed.splitlines():
            rows += [Row(now, lesson, "prediction", *found) for found in said(line) if all(found)]
    return rows


def kept(place: Path) -> list[Row]:
    """The rows that are kept; a line that was damaged is left out."""
    if not place.is_file():
        return []
    with place.open(encoding="utf-8", newline="") as text:
        lines = list(csv.reader(text))[1:]
    return [Row(*line) for line in lines if len(line) == len(fields(Row))]


def note(notebook: Path, place: Path | None = None) -> int:
    """Appends what is new in a saved notebook; how many rows that were."""
    place = place or file()
    try:
        content, saved = json.loads(notebook.read_text(encoding="utf-8")), notebook.stat().st_mtime
    except (OSError, ValueError):
        return 0
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(saved))
    before = {(row.lesson, row.kind, row.name): row for row in kept(place)}
    rows = read(content, notebook.stem, now) if isinstance(content, dict) else []
    new = [row for row in rows if (old := before.get((row.lesson, row.kind, row.name))) is None
           or (old.value, old.predicted) != (row.value, row.predicted)]  # fmt: skip
    if new:
        place.parent.mkdir(parents=True, exist_ok=True)
        first = not place.is_file()
        with place.open("a", encoding="utf-8", newline="") as text:
            writer = csv.writer(text)
            writer.writerows([[field.name for field in fields(Row)]] * first + [astuple(row) for row in new])
    return len(new)


def off(row: Row) -> float | None:
    """By which factor a prediction is off, whichever of the two is the larger; None where one of them is not above 0."""
    said, seen = number(row.predicted), number(row.value)
    return max(said / seen, seen / said) if said > 0 and seen > 0 else None


def first_predictions(rows: list[Row]) -> list[Row]:
    """The first prediction of each thing: who predicts again knows the answer."""
    first: dict[tuple[str, str], Row] = {}
    for row in sorted((row for row in rows if row.kind == "prediction"), key=lambda row: row.time):
        first.setdefault((row.lesson, row.name), row)
    return list(first.values())


def shipped() -> dict[str, int]:
    """The lessons, and how many exercises each has."""
    found = {}
    for place in sorted(paths.NOTEBOOKS.glob("*.ipynb")):
        cells = paths.read_json(place).get("cells", [])
        found[place.stem] = sum("exercise" in cell.get("metadata", {}).get("tags", []) for cell in cells)
    return found


def table(rows: list[Row], exercises: dict[str, int]) -> list[str]:
    """The lines of the report."""
    last = {(row.lesson, row.kind, row.name): row for row in rows}
    passed = {key[:1] + key[2:] for key, row in last.items() if key[1] == "exercise" and row.value == "PASS"}
    first = first_predictions(rows)
    lines = [f"{'lesson':<26}{'cells run':>10}{'passed':>10}{'predicted':>11}{'off by, mostly':>16}"]
    for lesson, count in exercises.items():
        cells = last.get((lesson, "cells", ""))
        mine = [row for row in first if row.lesson == lesson]
        done = sum(one[0] == lesson for one in passed)
        if cells or mine or done:
            ran = cells.value if cells else ""
            lines.append(f"{lesson:<26}{ran:>10}{f'{done} of {count}':>10}{len(mine):>11}{_mostly(mine):>16}")
    begun = len(lines) - 1
    whole = sum(row.kind == "cells" and len(set(row.value.split("/"))) == 1 for row in last.values())
    lines.append(
        f"{begun} of {len(exercises)} lessons begun, {whole} run whole; {len(passed)} of {sum(exercises.values())} exercises passed"
    )
    known = [row for row in first if off(row) is not None]
    if len(known) >= FEW:
        half = len(known) // 2
        lines.append(
            f"predictions, the first time: the earlier {half} were off by {_mostly(known[:half])}, the later {len(known) - half} by {_mostly(known[half:])} (medians)"
        )
    else:
        lines.append(
            f"{len(known)} predictions with a measurement so far; from {FEW} on you see whether they get better"
        )
    return lines


def _mostly(rows: list[Row]) -> str:
    factors = [factor for row in rows if (factor := off(row)) is not None]
    return f"{median(factors):.1f} times" if factors else ""


def export(rows: list[Row], place: Path) -> None:
    """The rows as a file of the kind that its name says."""
    if place.suffix not in (".csv", ".json"):
        raise ToolError(f"{place} is neither .csv nor .json", 'make progress ARGS="--export progress.csv"')
    names = [field.name for field in fields(Row)]
    with place.open("w", encoding="utf-8", newline="") as text:
        if place.suffix == ".json":
            json.dump([dict(zip(names, astuple(row), strict=True)) for row in rows], text, indent=1, ensure_ascii=False)
        else:
            csv.writer(text).writerows([names, *map(astuple, rows)])


def main() -> int:
    """Reads what was saved, and reports."""
    made = argparse.ArgumentParser(prog="python3 -m env.progress", description=__doc__)
    made.add_argument("--export", type=Path, metavar="FILE", help="write all rows as .csv or .json")
    made.add_argument("--predictions", action="store_true", help="list each prediction beside its measurement")
    chosen = made.parse_args()
    # Editors that know nothing of my-lessons/ save a lesson where it is.
    for folder in (paths.NOTEBOOKS, file().parent):
        for place in sorted(folder.glob("*.ipynb")):
            if LESSON.fullmatch(place.stem):
                note(place)
    rows = kept(file())
    if not rows:
        print("no lesson has been run and saved yet\nnext: make lab")
        return 0
    if chosen.predictions:
        for row in first_predictions(rows):
            print(
                f"{row.time[:10]} {row.lesson:<22} {row.name[:60]:<60} predicted {row.predicted:>8}, measured {row.value:>8}"
            )
    print("\n".join(table(rows, shipped())))
    if chosen.export:
        export(rows, chosen.export)
        print(f"written: {chosen.export}")
    return 0


if __name__ == "__main__":
    tool(main)
