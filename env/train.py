"""Training from the command line (`make train-cpu`, `train-cuda`, `train-mps`): builds the program with candle, becomes it,
and draws its plots as pictures. What stands in ARGS goes to the program: `make train-cpu ARGS="--epochs 3 --resume"`.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

from env import in_venv, paths

# Of its own: with CUDA all crates are built with other flags than those of `make verify`.
TARGET = paths.TARGET / "candle"


def build(features: str = "nn") -> None:
    """The program with candle and what else is named, built as the set-up decided."""
    from env.command import run
    from env.console import Step
    from env.kernel_cache import candle
    from env.setup import rust

    rust.toolchain(quiet=True)
    flags = candle.flags()
    step = Step("gpulab and candle")
    step.begin("building it; the first time takes minutes" + (", with CUDA" if flags else ""))
    count: list[str] = []
    with step.heartbeat(lambda: f"{len(count)} crates built"):
        run(
            ["cargo", "build", "--release", "-p", "gpulab-cli", "--features", features, "--bin", "gpulab"],
            "the program `gpulab` could not be built with candle",
            "look at the compiler's message above; with CUDA it needs nvcc, which `make verify` looks for",
            env={"CARGO_TARGET_DIR": str(TARGET), **flags},
            on_line=lambda line: count.append(line) if line.strip().startswith("Compiling ") else None,
        )
    step.done("target/candle/release/gpulab")


def call(arguments: list[str]) -> int:
    """Runs the program; Ctrl-C is for it alone, which keeps its run and ends."""
    from env.kernel_cache import candle

    environment = {**os.environ, "LD_LIBRARY_PATH": paths.library_path(*candle.libraries())}
    with subprocess.Popen([str(TARGET / "release" / "gpulab"), *arguments], env=environment) as process:
        # Only now: a program that is started while the signal is ignored would ignore it, too.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)


def answer(arguments: list[str]) -> tuple[int, str]:
    """Runs the program to its end; its status and what it printed. Errors go to the terminal as they come."""
    command = [str(TARGET / "release" / "gpulab"), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout


def folder(arguments: list[str]) -> str:
    """Where the program puts rows and plots."""
    chosen = os.environ.get("GPULAB_RESULTS") or str(paths.ROOT / "results")
    for at, argument in enumerate(arguments):
        if argument.startswith("--out"):
            chosen = argument.partition("=")[2] or "".join(arguments[at + 1 : at + 2])
    return chosen


def draw(since: float, folder: str, names: str = "train-*.svg") -> None:
    """PNGs beside the plots that the program has just written."""
    from env.notebooks import write
    from env.run import redraw

    plots = [plot for plot in sorted(paths.Path(folder).glob(names)) if plot.stat().st_mtime >= since]
    if plots and redraw.fonts_missing():
        print("no PNGs beside the plots: no font is installed here")
        return
    for plot in plots:
        write(plot.with_suffix(".png"), redraw.png(plot.read_text(encoding="utf-8"), plot.stem))


def main() -> int:
    """Builds, trains, draws."""
    from env.console import SetupError, problem

    arguments = [*sys.argv[1:], *shlex.split(os.environ.get("ARGS", ""))]
    started = time.time()
    try:
        build()
        status = call(arguments)
    except SetupError as error:
        problem(error)
        return 1
    if status == 0:
        draw(started, folder(arguments))
    return status


if __name__ == "__main__":
    in_venv.enter()
    sys.exit(main())
