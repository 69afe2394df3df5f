"""Compare the crate's CPU baselines with OpenBLAS and with the CPU's read bandwidth, and print a table.

    python3 -m env.baselines.bench_cpu             all cores and one core
    python3 -m env.baselines.bench_cpu --cores 2   on two cores

The Rust functions are built as the notebooks build them (evcxr's profile, and env/kernel_cache/cargo.toml). The peers are NumPy's
OpenBLAS for the matrix product, and for the sum the best of several plain C loops, compiled for this very CPU. Both
sides run on the same cores, interleaved; the ratio is the median over the turns (above 1: the crate is faster).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time

from env import paths
from env.baselines.asked import Asked, own_python, usable_cores
from env.console import tool
from env.kernel_cache import recipe

FOLDER = paths.GENERATED / "bench_cpu"
PEER = paths.ENV / "baselines" / "bench_cpu_peer.py"
# OpenBLAS's threads spin for a while after their work, on the other side's cores.
REST_S = 0.1
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
    """The rate that a time means, with its unit."""
    if what == "matmul":
        return 2 * size**3 / milliseconds / 1e6, "GFLOP/s"
    return 4 * size / milliseconds / 1e6, "GB/s"


def rested(answer: list[float]) -> list[float]:
    """An answer, a moment after it was given."""
    time.sleep(REST_S)
    return answer


def prepare() -> list[list[str]]:
    """Builds the Rust side and NumPy's environment; both commands."""
    target = FOLDER / "target"
    build = ["cargo", "build", "--quiet", "-p", "gpulab-cpu", "--example", "cpu_baselines", "--target-dir", str(target)]
    build += ["--config", str(recipe.CARGO)]
    subprocess.run(build, cwd=paths.ROOT, env=os.environ | EVCXR_PROFILE, check=True)
    return [[str(target / "debug" / "examples" / "cpu_baselines")], [own_python(FOLDER / "venv", "numpy"), str(PEER)]]


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--cores", type=int, help="how many cores 'all' means; without it, all that are usable")
    made.add_argument("--turns", type=int, default=9, help="how many times the two sides alternate")
    return made


def main() -> None:
    """Measures every case on all the cores and on one, and prints the table."""
    options = parser().parse_args()
    cores = usable_cores()[: options.cores]
    commands = prepare()
    print(
        "| work | cores | gpulab | peer | unit | ratio | lowest to highest |\n| --- | --- | --- | --- | --- | --- | --- |"
    )
    for chosen in [cores, cores[:1]] if len(cores) > 1 else [cores]:
        sides = [Asked(command, chosen) for command in commands]
        for what, size in CASES:
            turns = [[rested(side.ask(f"{what} {size}"))[0] for side in sides] for _ in range(options.turns)]
            ours, peer = (figure(what, size, statistics.median(times)) for times in zip(*turns))
            ratios = sorted(theirs / mine for mine, theirs in turns)
            spread = f"{ratios[0]:.2f} to {ratios[-1]:.2f}"
            row = [f"{what} {size}", len(chosen), f"{ours[0]:.1f}", f"{peer[0]:.1f}", ours[1]]
            print("|", " | ".join(map(str, [*row, f"{statistics.median(ratios):.2f}", spread])), "|", flush=True)
        for side in sides:
            side.close()


if __name__ == "__main__":
    tool(main)
