"""What a test step found: single checks, read from the output of the tools that made them. Standard library only."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

PASSED, FAILED, SKIPPED = "passed", "failed", "skipped"
TEST = re.compile(r"^test (.+?)(?: - (?:should panic|compile fail|compile))? \.\.\. (ok|FAILED|ignored)(?:, (.*))?$")
SHOWN = re.compile(r"^---- (.+) stdout ----$")
BINARY = re.compile(r"^\s*(?:Running|Doc-tests) (.+?)(?: \(.*\))?$")


@dataclass
class Check:
    """One thing that was checked. `note` is the reason of a skip or the text of a failure."""

    name: str
    state: str = PASSED
    note: str = ""


def of_cargo(output: str) -> list[Check]:
    """The tests in the output of `cargo test -- --show-output`. A test that prints `skipped: why` was skipped."""
    found: dict[tuple[str, str], Check] = {}
    helpers: set[tuple[str, str]] = set()
    binary, shown = "", None
    for line in output.splitlines():
        if match := BINARY.match(line):
            binary, shown = match[1], None
        elif match := TEST.match(line):
            # Not a test: what another test starts as a process of its own.
            if (match[3] or "").startswith("the other process of"):
                helpers.add((binary, match[1]))
            state = {"ok": PASSED, "FAILED": FAILED, "ignored": SKIPPED}[match[2]]
            found[binary, match[1]] = Check(f"{binary}: {match[1]}", state, match[3] or "")
        elif match := SHOWN.match(line):
            shown = found.get((binary, match[1]))
        elif shown is not None and line.startswith("skipped: ") and shown.state == PASSED:
            shown.state, shown.note = SKIPPED, line.removeprefix("skipped: ")
        elif shown is not None and shown.state == FAILED:
            shown.note += line + "\n"
    return [check for key, check in found.items() if key not in helpers]


def of_pytest(report: Path) -> list[Check]:
    """The tests in a report that pytest wrote with --junitxml."""
    if not report.exists():
        return []
    found = []
    for case in ElementTree.parse(report).iter("testcase"):
        check = Check(f"{case.get('classname')}: {case.get('name')}")
        for kind, state in (("failure", FAILED), ("error", FAILED), ("skipped", SKIPPED)):
            part = case.find(kind)
            if part is not None:
                check.state, check.note = state, part.get("message") or ""
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
        # The texts stand in the runner's own output, which is shown after a failure.
        found.append(Check(name, state))
        for exercise in one["exercises"]:
            for done, what in ((one["red"], "red as shipped"), (one["green"], "green with its solution")):
                found.append(Check(f"{name}: {exercise} {what}", PASSED if exercise in done else FAILED))
    return found


def count(checks: list[Check]) -> str:
    """`3 passed, 0 failed, 1 skipped`."""
    states = [check.state for check in checks]
    return ", ".join(f"{states.count(state)} {state}" for state in (PASSED, FAILED, SKIPPED))
