#!/usr/bin/env python3
"""Checks notebooks, pages and files against the course's rules; `--strip` removes stored outputs."""

from __future__ import annotations

import argparse
from pathlib import Path

from env import in_venv
from env.console import ToolError, tool


def strip(paths: list[Path]) -> int:
    """Removes outputs and execution counts from notebooks, in place."""
    import nbformat

    from env import notebooks

    for path in paths or notebooks.find():
        lesson = notebooks.load(path.resolve())
        if notebooks.strip(lesson.notebook):
            notebooks.write(path, nbformat.writes(lesson.notebook) + "\n")
            print(f"stripped {notebooks.relative(path)}")
    return 0


def lint(paths: list[Path]) -> int:
    """Prints each finding, and a last line with their number."""
    from env import notebooks
    from env.colab import written
    from env.lint import figures, file_rules, glossary, names, notebook_rules, words
    from env.run import current_text
    from env.slides import notes

    found: list[str] = []
    lessons = []
    for path in paths or notebooks.find():
        try:
            lessons.append(notebooks.load(path.resolve()))
        except ToolError as problem:
            found.append(str(problem))
    findings = [finding for lesson in lessons for finding in notebook_rules.check(lesson)]
    if paths:
        findings += [one for lesson in lessons for one in (*figures.check(lesson), *words.check(lesson.path))]
    else:
        findings += [
            *figures.everything(lessons),
            *glossary.check(lessons),
            *names.check(lessons),
            *notes.check(lessons),
        ]
        findings += words.listed(words.findings(file_rules.files()), words.still_open())
        findings += file_rules.check(lessons, file_rules.files())
    found += map(str, findings)
    if not paths:
        # Raises what keeps the edition from being made at all.
        found += [
            f"{notebooks.relative(path)}: is not as `make colab` writes it\nnext: make colab"
            for path in written.stale()
        ]
        found += [
            f"{notebooks.relative(path)}: has other text than its lesson\nnext: python3 -m env.run.current_text"
            for path in current_text.stale(current_text.wanted())
        ]
    for finding in found:
        print(finding)
    print(f"lint: {len(lessons)} notebooks, {len(found)} findings")
    return 1 if found else 0


def main() -> int:
    """0 when nothing was found, 2 when nothing could be checked."""
    made = argparse.ArgumentParser(prog="python3 -m env.lint", description=__doc__)
    made.add_argument("notebooks", nargs="*", type=Path, help="only these notebooks (default: everything)")
    made.add_argument("--strip", action="store_true", help="remove outputs instead of checking")
    chosen = made.parse_args()
    return strip(chosen.notebooks) if chosen.strip else lint(chosen.notebooks)


if __name__ == "__main__":
    in_venv.enter(set_up=False)
    tool(main, failed=2)
