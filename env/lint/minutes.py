#!/usr/bin/env python3
"""How long each lesson takes on both paths, section by section, and README's table; `--write` states it everywhere.

Standard path: everything read, run and solved but the sections marked optional. Quick path, for who knows CUDA C: all cells
run; question, prediction and plots read; exercises from lesson 10 on. What the rates are, and why: `env/lint/reading_times.py`.
"""

from __future__ import annotations

import argparse
import re
import sys

from env import in_venv


def state(lesson, text: str) -> bool:
    """Writes the minutes into the lesson's first cell, in the file's own form; false where it says them already."""
    from env.lint import reading_times

    cell = lesson.notebook.cells[0]
    old = reading_times.STATED.search(cell.source)
    if old is None or old[0] == text:
        return False
    before = lesson.path.read_text(encoding="utf-8")
    lesson.path.write_text(before.replace(old[0], text, 1), encoding="utf-8")
    return True


def with_sums(readme: str, lessons: list, rows: list[str]) -> str:
    """README with each lesson's minutes in its row, and the table of the two paths."""
    from env.lint import reading_times

    for lesson in lessons:
        row = re.compile(rf"(\(notebooks/{lesson.name}\.ipynb\) \|.*?\| )\d+( \| \[)")
        if said := reading_times.stated(lesson):
            readme = row.sub(rf"\g<1>{said.standard:.0f}\g<2>", readme)
    block = re.compile(r"(?<=\| optional sections \|\n\| --- \| --- \| ---: \| ---: \| ---: \|\n)(?:\|.*\n)*")
    return block.sub("\n".join([*rows, ""]), readme)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python3 -m env.lint.minutes", description=__doc__)
    made.add_argument("--write", action="store_true", help="write the estimates where the statements are off")
    return made


def main() -> int:
    """Prints the estimates and the table; 1 where a lesson's statement is off."""
    chosen = parser().parse_args()
    from env import notebooks
    from env.lint import reading_times

    lessons, off = [notebooks.load(path) for path in notebooks.find()], 0
    for lesson in lessons:
        likely, said, problem = (
            reading_times.estimate(lesson),
            reading_times.stated(lesson),
            reading_times.wrong(lesson),
        )
        print(f"{lesson.name}: {likely}; it says: {said or 'nothing'}")
        for name, part in reading_times.sections(lesson):
            print(f"    {part.standard:5.1f} {part.quick:5.1f} {part.optional:5.1f}  {name}")
        if problem and chosen.write:
            state(lesson, str(likely))
        elif problem:
            off += 1
            print(f"  {problem}")
    lessons = [notebooks.load(path) for path in notebooks.find()]
    rows = reading_times.table(lessons)
    print("\n".join(["", *rows]))
    if chosen.write:
        readme = notebooks.ROOT / "README.md"
        notebooks.write(readme, with_sums(readme.read_text(encoding="utf-8"), lessons, rows))
    return 1 if off else 0


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    sys.exit(main())
