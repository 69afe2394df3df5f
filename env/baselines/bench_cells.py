"""How long a notebook takes to start and its cells to run, on the real kernel: `make bench-cells`, or `--json`."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from env import lab, paths
from env.console import ToolError, tool
from env.notebooks import FOLDER, load
from env.run import provenance
from env.run.judge import checked
from env.run.session import RunningKernel

REPEATS = 5
CELL_LIMIT_S = 600
WELCOME = FOLDER / "00_welcome.ipynb"
SVG = "image/svg+xml"
ROWS = """let bench_rows: Vec<Measurement> = (10..20).map(|power| {
    let summary = Summary::of(&[f64::from(power), f64::from(power) * 1.5]);
    Measurement::time_ms("sum", Backend::Cpu, 1 << power, summary)
}).collect();"""
PRINT = 'println!("{} rows", bench_rows.len());'
PLOT = 'plot::time_over_size(&bench_rows).title("time of a sum")'


@dataclass
class Times:
    """Seconds of one notebook that was opened, and how many crates its kernel had to build."""

    first_plot: float
    print_line: float
    plot_helper: float
    crates_built: int


@dataclass
class Row:
    """One line of the table."""

    what: str
    seconds: list[float]
    limit_s: float

    @property
    def median(self) -> float:
        """The figure that counts."""
        return statistics.median(self.seconds)

    @property
    def verdict(self) -> str:
        """Whether the median keeps the limit."""
        return "kept" if self.median <= self.limit_s else "exceeded"


def open_notebook(results: Path) -> Times:
    """Opens the first lesson, runs it as far as its first plot, then the two cells that are timed."""
    started = time.monotonic()
    # As JupyterLab does, so that the kernel knows what it is started for.
    environment = {**os.environ, "JPY_SESSION_NAME": str(WELCOME), "GPULAB_RESULTS": str(results)}
    with RunningKernel(FOLDER, environment) as kernel:
        run = partial(checked, kernel, limit_s=CELL_LIMIT_S, next_step="make run NB=00_welcome")
        first_plot = None
        for cell in load(WELCOME).code:
            done = run(cell.source)
            if any(SVG in out.get("data", {}) for out in done.outputs):
                first_plot = time.monotonic() - started
                break
        if first_plot is None:
            raise ToolError(f"{WELCOME.name} shows no plot", "make run NB=00_welcome")
        run(ROWS)
        line, plot = run(PRINT), run(PLOT)
        if not any(SVG in out.get("data", {}) for out in plot.outputs):
            raise ToolError("the plot helper gave no SVG", "cargo test -p gpulab plot")
        return Times(first_plot, line.seconds, plot.seconds, kernel.said().count("Compiling "))


def files_of_a_start() -> list[Path]:
    """Where the files lie that a kernel's start reads: Python and its packages, Rust, evcxr, warmed builds, crates."""
    state = paths.read_json(paths.STATE)
    cargo = Path(os.environ.get("CARGO_HOME") or Path.home() / ".cargo")
    made = [paths.GENERATED, paths.VENV, Path(state["toolchain"]), Path(state["evcxr"])]
    return [*made, Path(sysconfig.get_path("stdlib")), cargo / "registry", paths.CRATE, paths.CRATES]


def forget(files: list[Path]) -> None:
    """Takes files, and all in folders, out of the page cache, as after a boot; what a running program maps stays there."""
    os.sync()
    for root in files:
        for file in root.rglob("*") if root.is_dir() else [root]:
            with contextlib.suppress(OSError):
                if file.is_file():
                    descriptor = os.open(file, os.O_RDONLY)
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(descriptor)


def read_from_disk() -> float:
    """MiB that this machine, with all that runs on it, has read from its disks since it was started."""
    found = re.search(r"^pgpgin (\d+)$", Path("/proc/vmstat").read_text(encoding="ascii"), flags=re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def cold_starts(results: Path) -> tuple[list[float], list[float]]:
    """Seconds to the first plot, and MiB read from disk, with none of a start's files in memory."""
    seconds, read = [], []
    for _ in range(REPEATS):
        forget(files_of_a_start())
        before = read_from_disk()
        seconds.append(open_notebook(results).first_plot)
        read.append(read_from_disk() - before)
    return seconds, read


def second_lab() -> float:
    """Seconds from `make lab` to its address on the screen; it prints that when /lab has answered."""
    started = time.monotonic()
    command = ["make", "--no-print-directory", "lab", "NO_BROWSER=1", "PORT="]
    process = subprocess.Popen(
        command, cwd=paths.ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )
    said = []
    try:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if "http://" in line:
                return time.monotonic() - started
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)
        # `make` ends first; a next one must not find this server still running.
        ended = time.monotonic() + 30
        while lab.RUNNING.exists() and time.monotonic() < ended:
            time.sleep(0.05)
    raise ToolError("`make lab` gave no address:\n" + "".join(said[-10:]), "make lab")


def measure(results: Path) -> tuple[list[Row], int, list[float]]:
    """All rows, the number of crates that any of the kernels had to build, and the MiB that cold starts have read."""
    alone = [open_notebook(results) for _ in range(REPEATS)]
    pairs: list[Times] = []
    for _ in range(REPEATS):
        with ThreadPoolExecutor(2) as two:
            pairs += two.map(open_notebook, [results, results])
    rows = []
    for count, times in ((1, alone), (2, pairs)):
        at_once = "" if count == 1 else ", two notebooks at once"
        rows += [
            Row(f"kernel start to the first plot of 00_welcome{at_once}", [t.first_plot for t in times], 12.0 * count),
            Row(f"a `println!` cell{at_once}", [t.print_line for t in times], 0.5 * count),
            Row(f"a cell that calls a plot helper{at_once}", [t.plot_helper for t in times], 1.0 * count),
        ]
    read: list[float] = []
    if hasattr(os, "posix_fadvise"):
        seconds, read = cold_starts(results)
        rows.insert(1, Row("the same with no file of it in memory, as after a boot", seconds, 12.0))
    else:
        print("skipped: starts with a cold page cache (this system has no posix_fadvise)", file=sys.stderr)
    running = paths.read_json(lab.RUNNING)
    if running and lab.answers(running["port"], running["token"]):
        print("skipped: `make lab` a second time (JupyterLab runs already; end it first)", file=sys.stderr)
    else:
        rows.append(Row("`make lab` a second time, until it answers", [second_lab() for _ in range(REPEATS)], 5.0))
    return rows, sum(times.crates_built for times in alone + pairs), read


def table(machine: str, rows: list[Row], crates: int, read_mib: list[float]) -> str:
    """The table for README.md."""
    lines = [f"On {machine}; medians of {REPEATS} (of {2 * REPEATS} where two run at once).", ""]
    lines += ["| what | median | from | to | limit | verdict |", "| --- | ---: | ---: | ---: | ---: | --- |"]
    for row in rows:
        figures = (row.median, min(row.seconds), max(row.seconds))
        lines.append(
            f"| {row.what} | {' | '.join(f'{f:.2f} s' for f in figures)} | {row.limit_s:g} s | {row.verdict} |"
        )
    if read_mib:
        figures = (statistics.median(read_mib), min(read_mib), max(read_mib))
        lines.append(f"| read from disk by such a cold start | {' | '.join(f'{f:.0f} MiB' for f in figures)} | | |")
    lines.append(
        f"| crates that these kernels had to build | {crates} | | | 0 | {'kept' if not crates else 'exceeded'} |"
    )
    return "\n".join(lines)


def main() -> None:
    """Prints the table, or JSON. Speed is recorded, so a limit that was exceeded is no failure."""
    machine = provenance.verify()["short_name"]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    with tempfile.TemporaryDirectory() as folder:
        # The recorded runs are there to read; the rows of these runs go nowhere.
        for recorded in (paths.ROOT / "results").glob("*/metrics.csv"):
            (Path(folder) / recorded.parent.name).symlink_to(recorded.parent)
        rows, crates, read_mib = measure(Path(folder))
    if "--json" in sys.argv[1:]:
        listed = [{**asdict(row), "median": row.median, "verdict": row.verdict} for row in rows]
        told = {"machine": machine, "cores": cores, "rows": listed, "crates_built": crates, "cold_read_mib": read_mib}
        print(json.dumps(told, indent=1))
    else:
        print(table(f"{machine} ({cores} in use)", rows, crates, read_mib))


if __name__ == "__main__":
    tool(main)
