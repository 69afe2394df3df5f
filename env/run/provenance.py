"""The README of a recorded run: which machine, which driver; for each notebook which commit, when, by which command."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

from env.command import answer, output
from env.console import ToolError
from env.notebooks import relative, write
from env.paths import PROGRAMS, library_path
from env.run import exports, metrics
from env.run.execute import Outcome

TOOL = "gpulab"

INTRO = (
    "Written by the notebook runner; nothing here is typed by hand. In the executed copies code and outputs are the\n"
    "run's; text is the lesson's of today, often written after the run, beside what it printed. A code cell without a\n"
    "number is newer than the run."
)


def verify() -> dict[str, Any]:
    """What `gpulab verify --json` says about this machine."""
    places = os.pathsep.join([str(PROGRAMS), os.environ.get("PATH", "")])
    tool = shutil.which(TOOL, path=places)
    if tool is None:
        raise ToolError(f"the command `{TOOL}` is not built, so the machine cannot be named", "make setup")
    said = answer([tool, "verify", "--json"], "make verify", LD_LIBRARY_PATH=library_path())
    try:
        return json.loads(said)
    except json.JSONDecodeError as error:
        raise ToolError(f"`{TOOL} verify --json` did not answer in JSON: {said}", "make verify") from error


def commit(out: Path, since: str) -> str:
    """The commit that ran: as the rows of this run say, else an unpacked bundle's own, else as git says."""
    rows = [row for row in metrics.read(out / "metrics.csv") if (row.get("time") or "") >= since]
    named = {row.get("commit") or "unknown" for row in rows} - {"unknown"}
    if named:
        return ", ".join(sorted(named))
    return os.environ.get("GPULAB_COMMIT") or output(["git", "rev-parse", "--short", "HEAD"]) or "unknown"


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


def machine_of(page: Path) -> str | None:
    """The kind of machine that a recorded run's page names."""
    found = re.search(r"^\| machine \| (.*) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else None


def check_replaces(out: Path) -> None:
    """A recorded run is only replaced, whole or in part, by one on the same kind of machine."""
    name = str(verify().get("short_name"))
    before = machine_of(out / "README.md") if (out / "README.md").exists() else None
    if before and before != name:
        text = f"{relative(out)} holds a run on {before}, and this machine is {name}"
        raise ToolError(text, "choose another folder with --out")


def entries(out: Path) -> list[dict[str, Any]]:
    """What a recorded run says of each of its notebooks, `run` among it: began, commit, command."""
    try:
        found = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError):
        return []
    return [entry for entry in found if "run" in entry]


def join(before: list[dict[str, Any]], now: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The newer entry of each notebook, in the course's order."""
    newest = {entry["notebook"]: entry for entry in [*before, *now]}
    return [newest[name] for name in sorted(newest)]


def recorded(out: Path, began: str, outcomes: list[Outcome]) -> list[dict[str, Any]]:
    """The entries of this run."""
    command = shlex.join(["python3", "-m", "env.run", *sys.argv[1:]])
    run = {"began": began, "commit": commit(out, began), "command": command}
    return [{**one.summary(), "run": run} for one in outcomes]


def save_summary(out: Path, found: list[dict[str, Any]]) -> None:
    """What came of each notebook, for other tools."""
    text = json.dumps(found, indent=1, ensure_ascii=False)
    write(out / "summary.json", exports.without_machine_paths(text) + "\n")


def machine_section() -> str:
    """The page's part about this machine."""
    lines = ["## The machine", "", "As `gpulab verify --json` answered before this page was written:", ""]
    lines += ["| what | |", "| --- | --- |"]
    lines += [f"| {name} | {text} |" for name, text in machine_lines(verify())]
    return exports.without_machine_paths("\n".join(lines)) + "\n"


def save(out: Path, found: list[dict[str, Any]], machine: str) -> None:
    """Writes README.md beside the executed copies; `machine` is its last part."""
    runs: dict[str, dict[str, str]] = {entry["run"]["began"]: entry["run"] for entry in found}
    lines = ["# A recorded run", "", INTRO, ""]
    lines += ["| began (UTC) | commit | command |", "| --- " * 3 + "|"]
    lines += [f"| {began} | {runs[began]['commit']} | `{runs[began]['command']}` |" for began in sorted(runs)]
    lines += ["", "| notebook | seconds | code cells | plots | rows in metrics.csv | state | run |", "| --- " * 7 + "|"]
    for one in found:
        state = "failed" if one["failures"] else "stopped" if one["stopped"] else "good"
        figures = f"{one['seconds']:.1f} | {one['cells']} | {one['plots']} | {one['rows']}"
        name = f"[{one['notebook']}]({one['notebook']}.ipynb)"
        lines.append(f"| {name} | {figures} | {state} | {one['run']['began']} |")
    write(out / "README.md", exports.without_machine_paths("\n".join([*lines, ""])) + "\n" + machine)
    print(f"provenance: {relative(out / 'README.md')}")
