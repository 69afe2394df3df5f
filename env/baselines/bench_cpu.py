"""Compare the crate's CPU baselines with OpenBLAS and with the CPU's read bandwidth, and print a table.

    python3 -m env.baselines.bench_cpu             all cores and one core
    python3 -m env.baselines.bench_cpu --cores 2   on two cores

The Rust functions are built as the notebooks build them (evcxr: opt-level 2, 16 codegen units). The peers are NumPy's
OpenBLAS for the matrix product, and for the sum the best of several plain C loops, compiled for this very CPU. Both
sides run on the same cores, in turns; the ratio is the median over the turns (above 1: the crate is faster).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
import venv
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
FOLDER = PROJECT / ".gpulab" / "bench_cpu"
PEER = Path(__file__).resolve().parent / "bench_cpu_peer.py"
# What evcxr writes into its own workspace, and the launcher's two settings.
EVCXR_PROFILE = {
    "CARGO_PROFILE_DEV_OPT_LEVEL": "2",
    "CARGO_PROFILE_DEV_DEBUG": "false",
    "CARGO_PROFILE_DEV_CODEGEN_UNITS": "16",
    "CARGO_PROFILE_DEV_OVERFLOW_CHECKS": "false",
    "CARGO_PROFILE_DEV_DEBUG_ASSERTIONS": "false",
}
CASES = [("matmul", 512), ("matmul", 1024), ("matmul", 2048), ("sum", 1 << 27)]


def figure(what: str, size: int, milliseconds: float) -> tuple[float, str]:
    """Return the rate that a time means, with its unit."""
    if what == "matmul":
        return 2 * size**3 / milliseconds / 1e6, "GFLOP/s"
    return 4 * size / milliseconds / 1e6, "GB/s"


class Side:
    """A child process that answers `what size` with milliseconds."""

    def __init__(self, command: list[str], cores: list[int]) -> None:
        """Start it on these cores with that many threads."""
        threads = str(len(cores))
        names = ("RAYON_NUM_THREADS", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
        self.child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {name: threads for name in names},
        )
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self.child.pid, cores)

    def ask(self, what: str, size: int) -> float:
        """Return the median milliseconds of one call."""
        self.child.stdin.write(f"{what} {size}\n")
        self.child.stdin.flush()
        answer = self.child.stdout.readline()
        if not answer:
            sys.exit(f"{self.child.args[0]} ended without an answer; its own words are above")
        time.sleep(0.1)  # OpenBLAS's threads spin for a while after their work, on the other side's cores
        return float(answer)

    def close(self) -> None:
        """End it by closing what it reads."""
        self.child.stdin.close()
        self.child.wait()


def prepare() -> tuple[list[str], list[str]]:
    """Build the Rust side and NumPy's environment; return both commands."""
    target = FOLDER / "target"
    build = ["cargo", "build", "--quiet", "-p", "gpulab-cpu", "--example", "cpu_baselines", "--target-dir", str(target)]
    subprocess.run(build, cwd=PROJECT, env=os.environ | EVCXR_PROFILE, check=True)
    python = FOLDER / "venv" / "bin" / "python"
    if not python.exists():
        venv.create(FOLDER / "venv", with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "numpy"], check=True)
    return [str(target / "debug" / "examples" / "cpu_baselines")], [str(python), str(PEER)]


def usable_cores() -> list[int]:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--cores", type=int, help="how many cores 'all' means; without it, all that are usable")
    made.add_argument("--turns", type=int, default=9, help="how many times the two sides alternate")
    return made


def main() -> None:
    """Measure every case on all the cores and on one, and print the table."""
    options = parser().parse_args()
    cores = usable_cores()[: options.cores]
    commands = prepare()
    print(
        "| work | cores | gpulab | peer | unit | ratio | lowest to highest |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for chosen in [cores, cores[:1]] if len(cores) > 1 else [cores]:
        sides = [Side(command, chosen) for command in commands]
        for what, size in CASES:
            turns = [[side.ask(what, size) for side in sides] for _ in range(options.turns)]
            ours, peer = (figure(what, size, statistics.median(times)) for times in zip(*turns))
            ratios = sorted(theirs / mine for mine, theirs in turns)
            spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            row = [f"{what} {size}", len(chosen), f"{ours[0]:.1f}", f"{peer[0]:.1f}", ours[1]]
            print("|", " | ".join(map(str, [*row, f"{statistics.median(ratios):.2f}", spread])), "|", flush=True)
        for side in sides:
            side.close()


if __name__ == "__main__":
    main()
