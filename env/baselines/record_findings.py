"""Records what compute-sanitizer says of the simulator's planted mistakes and right kernels, for the test beside them.

`python3 -m env.baselines.record_findings` launches the scenarios of crates/warpsim/tests/findings/scenarios.csv on the GPU, each under
the tools that its row names, and writes h200.csv beside them. With `--from FOLDER` it reads the logs of another machine.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from env.console import ToolError, tool
from env.paths import PROGRAMS, ROOT, SIMULATOR

FOLDER = SIMULATOR / "tests" / "findings"
BUILD = ["cargo", "build", "--quiet", "--release", "-p", "gpulab-profiling", "--example", "record_findings"]
TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
PLACES = ["/usr/local/cuda/bin/compute-sanitizer", "/usr/local/cuda/compute-sanitizer/compute-sanitizer"]
# A launch takes seconds; one that hangs is ended.
LIMIT = 30
# What a tool's message begins with, the simulator's kind, and words that must be in what follows it.
KINDS = [
    (r"Invalid __(global|shared|local)__ (read|write|atomic)", "misaligned", "misaligned"),
    (r"Invalid __(global|shared|local)__ (read|write|atomic)", "out_of_bounds", ""),
    (r"Uninitialized __global__ memory read", "uninitialised_read", ""),
    (r"Error: (Race reported|Potential)", "shared_race", ""),
    (r"Warning: (Race reported|Potential)", "shared_race_warning", ""),
    (r"Barrier error detected", "barrier_divergence", ""),
]


def wanted() -> list[tuple[str, str]]:
    """Scenario and tool of each run, in order."""
    lines = (FOLDER / "scenarios.csv").read_text(encoding="utf-8").splitlines()
    rows = [line.split(";") for line in lines if not line.startswith("#")][1:]
    runs: list[tuple[str, str]] = []
    for row in rows:
        tools = TOOLS if row[8] == "all" else [] if row[8] == "none" else [row[8]]
        runs += [(row[0], tool) for tool in tools]
    return runs


def log_of(logs: Path, scenario: str, tool: str) -> Path:
    """Where the log of a run lies."""
    return logs / f"{scenario.replace(' ', '_')}.{tool}.log"


def found(log: str) -> list[tuple[str, int, str, str]]:
    """Kinds in a log: name, how often, source lines, and the tool's own words for the first."""
    texts = [line.removeprefix("=========").strip() for line in log.splitlines() if line.startswith("=========")]
    starts = [at for at, text in enumerate(texts) if any(re.match(start, text) for start, _, _ in KINDS)]
    seen: dict[str, tuple[int, set[int], str]] = {}
    for at, end in zip(starts, [*starts, len(texts)][1:], strict=True):
        part = "\n".join(texts[at:end])
        kind = next(kind for start, kind, words in KINDS if re.match(start, part) and words in part)
        count, lines, message = seen.get(kind, (0, set(), texts[at]))
        # A message that stands for several hazards says for how many.
        times = re.search(r"\[(\d+) hazards?\]", part)
        lines |= {int(line) for line in re.findall(r"\.cu:(\d+)", part)}
        seen[kind] = (count + (int(times[1]) if times else 1), lines, message)
    return [
        (kind, count, " ".join(map(str, sorted(lines))), re.sub(r"0x[0-9a-f]+", "…", message).replace(";", ","))
        for kind, (count, lines, message) in sorted(seen.items())
    ]


def launch(tools: str, program: Path, logs: Path, scenario: str, tool: str) -> None:
    """Runs one scenario under one tool, and keeps what the tool printed."""
    command = [tools, "--tool", tool, "--print-limit", "10000", str(program), str(FOLDER), scenario]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT)
        printed = done.stdout + done.stderr
    except subprocess.TimeoutExpired:
        printed = f"ended after {LIMIT} s\n"
    log_of(logs, scenario, tool).write_text(printed, encoding="utf-8")


def record(program: Path | None, logs: Path, jobs: int) -> None:
    """Launches everything."""
    tools = shutil.which("compute-sanitizer") or next((place for place in PLACES if Path(place).exists()), None)
    if tools is None:
        step = "run this where the CUDA toolkit is installed, on a machine with an NVIDIA GPU"
        raise ToolError("compute-sanitizer is not found", step)
    if program is None:
        subprocess.run(BUILD, cwd=ROOT, check=True)
        program = PROGRAMS / "examples" / "record_findings"
    logs.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda run: launch(tools, program, logs, *run), wanted()))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python3 -m env.baselines.record_findings", description=__doc__)
    made.add_argument("--from", dest="source", type=Path, help="a folder with the logs of another machine")
    made.add_argument("--program", type=Path, help="the example, built already")
    made.add_argument("--logs", type=Path, default=Path("sanitizer-logs"), help="where the logs go")
    made.add_argument("--jobs", type=int, default=4, help="launches at a time")
    made.add_argument("--machine", default="NVIDIA H200", help="for the first line of the table")
    return made


def main() -> None:
    """Writes the table, unless a run is missing or did not come to an end."""
    chosen = parser().parse_args()
    if chosen.source is None:
        record(chosen.program, chosen.logs, chosen.jobs)
    logs = chosen.source or chosen.logs
    lines = [f"# Said by compute-sanitizer on one {chosen.machine}; written by env/baselines/record_findings.py."]
    lines.append("name;tool;kind;times;lines;words")
    broken = []
    for scenario, by in wanted():
        path = log_of(logs, scenario, by)
        log = path.read_text(encoding="utf-8") if path.exists() else ""
        # Without a launch and a tool's last word, nothing said is no "all is well".
        if f"{scenario}: launched" not in log or "SUMMARY" not in log:
            broken.append(f"{scenario} under {by}")
        for kind, count, at, words in found(log) or [("none", 0, "", "")]:
            lines.append(";".join([scenario, by, kind, str(count), at, words]))
    if broken:
        raise ToolError(f"no result of {len(broken)} runs: {', '.join(broken[:5])}", f"read their logs in {logs}")
    (FOLDER / "h200.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(wanted())} runs recorded")


if __name__ == "__main__":
    tool(main)
