"""What a test step found: single checks, read from the reports of the tools that made them. Standard library only."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
# A Rust test that cannot run on this machine says so and passes.
REASON = re.compile(r"^skipped: (.*)$", re.MULTILINE)


@dataclass
class Check:
    """One thing that was checked. `note` is the reason of a skip or the text of a failure."""

    name: str
    state: str = PASSED
    note: str = ""


def of_junit(report: Path) -> list[Check]:
    """The tests in a JUnit report, as pytest and nextest write it; none where there is no report."""
    if not report.exists():
        return []
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        check = Check(f"{case.get('classname')}: {case.get('name')}")
        if reason := REASON.search("\n".join(case.findtext(stream) or "" for stream in ("system-out", "system-err"))):
            check.state, check.note = SKIPPED, reason[1]
        for kind, state in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
            part = case.find(kind)
            if part is not None:
                # pytest's text of a skip is the file and the line.
                text = part.text if state == FAILED else ""
                check.state, check.note = state, (text or part.get("message") or "").strip()
        found.append(check)
    return found


def of_pages(output: str) -> list[Check]:
    """The blocks of pages that `env/ci/page_blocks.py` ran, with those that it did not run, and why."""
    found = []
    for line in output.splitlines():
        if match := re.match(r"^(ran|FAILED|not run)\s+(\S+:\d+)\s+(.*)$", line):
            state = {"ran": PASSED, "FAILED": FAILED, "not run": SKIPPED}[match[1]]
            found.append(Check(f"block of {match[2]}", state, match[3] if state == SKIPPED else ""))
        elif match := re.match(r"^web addresses, not fetched: (\d+)$", line):
            found.append(Check(f"{match[1]} web addresses of pages", SKIPPED, "tests fetch nothing"))
    return found


def of_notebooks(summary: Path) -> list[Check]:
    """Each notebook is one check; so is each exercise red as shipped, and each one green with its solution."""
    if not summary.exists():
        return []
    found = []
    for one in json.loads(summary.read_text(encoding="utf-8")):
        name = one["notebook"]
        state = FAILED if one["failures"] or one["stopped"] else PASSED
        found.append(Check(name, state, "\n".join(f"cell {bad['cell_id']}: {bad['text']}" for bad in one["failures"])))
        # A lesson that failed did not come to its exercises, or failed by one.
        why = "the lesson failed" if one["failures"] else ""
        for exercise in one["exercises"]:
            for done, what in ((one["red"], "red as shipped"), (one["green"], "green with its solution")):
                state = PASSED if exercise in done else FAILED
                found.append(Check(f"{name}: {exercise} {what}", state, why if state == FAILED else ""))
    return found


def count(checks: list[Check]) -> str:
    """`3 passed, 0 failed, 1 skipped`."""
    states = [check.state for check in checks]
    return ", ".join(f"{states.count(state)} {state}" for state in (PASSED, FAILED, SKIPPED))
