"""The README of a recorded run: which machine, which driver, which commit, when, by which command."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from notebooks import ROOT, Problem, relative, write
from paths import PROGRAMS, library_path
from runner import exports, metrics
from runner.execute import Outcome

TOOL = "gpulab"


def verify() -> dict[str, Any]:
    """What `gpulab verify --json` says about this machine."""
    places = os.pathsep.join([str(PROGRAMS), os.environ.get("PATH", "")])
    tool = shutil.which(TOOL, path=places)
    if tool is None:
        raise Problem(f"the command `{TOOL}` is not built, so the machine cannot be named\nnext: make setup")
    environment = {**os.environ, "LD_LIBRARY_PATH": library_path()}
    done = subprocess.run([tool, "verify", "--json"], capture_output=True, text=True, env=environment, check=False)
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError as error:
        said = (done.stderr or done.stdout).strip() or "it printed nothing"
        raise Problem(f"`{TOOL} verify --json` did not answer in JSON: {said}\nnext: make verify") from error


def commit(out: Path, since: str) -> str:
    """The commit that ran: as the rows of this run say, else as git says."""
    rows = [row for row in metrics.read(out / "metrics.csv") if (row.get("time") or "") >= since]
    named = {row.get("commit") or "unknown" for row in rows} - {"unknown"}
    if named:
        return ", ".join(sorted(named))
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def machine_lines(machine: dict[str, Any]) -> list[tuple[str, str]]:
    """The machine as lines of a table; what the driver does not tell is left out."""
    cpu, nvidia = machine.get("cpu", {}), machine.get("nvidia", {})
    lines = [("machine", machine.get("short_name")), ("system", machine.get("system"))]
    lines.append(("CPU", f"{cpu.get('model')}, {cpu.get('usable_cores')} cores usable, {cpu.get('vectors')}"))
    lines += [("NVIDIA driver", nvidia.get("driver")), ("CUDA version of the driver", nvidia.get("cuda"))]
    for number, gpu in enumerate([*nvidia.get("gpus", []), *machine.get("apple", [])]):
        facts = [
            f"{key.replace('_', ' ')} {value}" for key, value in gpu.items() if key != "name" and value is not None
        ]
        # What changes from one second to the next says nothing about the run.
        facts = [fact for fact in facts if "free" not in fact and "now" not in fact]
        lines.append((f"GPU {number}", f"{gpu.get('name')}: {', '.join(facts)}"))
    lines += [(tool["name"], tool.get("version") or "found") for tool in machine.get("tools", []) if tool.get("found")]
    lines += [("warning", text) for text in machine.get("warnings", [])]
    seen: dict[str, str] = {}
    for name, text in lines:
        if text and name not in seen:
            seen[name] = str(text).replace("\n", " ").replace("|", "\\|")
    return list(seen.items())


def check_replaces(out: Path, whole: bool) -> None:
    """A recorded run is only replaced as a whole, and by one of the same kind of machine: its README speaks of one run."""
    name = str(verify().get("short_name"))
    page = out / "README.md"
    if not page.exists():
        return
    before = re.search(r"^\| machine \| (.*) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    if before and before[1] != name:
        text = f"{relative(out)} holds a run on {before[1]}, and this machine is {name}"
        raise Problem(f"{text}\nnext: choose another folder with --out")
    if not whole:
        text = f"{relative(out)} holds a run of all notebooks, and some would be from another run than its README says"
        raise Problem(f"{text}\nnext: run without NB or names, or choose another folder with --out")


def save(out: Path, began: str, outcomes: list[Outcome]) -> None:
    """Writes README.md beside the executed copies."""
    machine = exports.without_machine_paths(verify())
    command = exports.without_machine_paths(shlex.join(["python3", "env/run.py", *sys.argv[1:]]))
    lines = ["# A recorded run", ""]
    lines += ["Written by the notebook runner; nothing here is typed by hand.", ""]
    lines += ["| what | |", "| --- | --- |", f"| began (UTC) | {began} |", f"| commit | {commit(out, began)} |"]
    lines += [f"| command | `{command}` |", ""]
    lines += ["| notebook | seconds | code cells | plots | rows in metrics.csv | state |", "| --- " * 6 + "|"]
    for one in outcomes:
        state = "failed" if one.failures else "stopped" if one.stopped else "good"
        name = f"[{one.notebook}]({one.notebook}.ipynb)"
        lines.append(f"| {name} | {one.seconds:.1f} | {one.cells} | {one.plots} | {one.rows} | {state} |")
    lines += ["", "## The machine", "", "As `gpulab verify --json` answered before this page was written:", ""]
    lines += ["| what | |", "| --- | --- |", *(f"| {name} | {text} |" for name, text in machine_lines(machine)), ""]
    write(out / "README.md", "\n".join(lines))
    print(f"provenance: {relative(out / 'README.md')}")
