"""The program `gpulab` with candle or ONNX Runtime: built when a command first needs it, and called."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from env import paths
from env.command import run
from env.console import Step

# Of its own: with CUDA all crates are built with other flags than those of `make verify`.
CANDLE = paths.TARGET / "candle"


def arguments() -> list[str]:
    """This command's, and what stands in ARGS."""
    return [*sys.argv[1:], *shlex.split(os.environ.get("ARGS", ""))]


def build(features: str, target: Path, what: str, flags: Mapping[str, str] | None = None) -> Path:
    """The program with these features: minutes for the first time, a second when nothing changed."""
    from env.setup import rust

    rust.toolchain(quiet=True)
    step = Step(f"gpulab, {what}")
    step.begin("building it; the first time takes 4 to 8 minutes on 2 cores" + (", with CUDA" if flags else ""))
    count: list[str] = []
    with step.heartbeat(lambda: f"{len(count)} crates built"):
        run(
            ["cargo", "build", "--release", "-p", "gpulab-cli", "--features", features, "--bin", "gpulab"],
            f"the program `gpulab` could not be built with {what}",
            "look at the compiler's message above" + ("; with CUDA it needs nvcc" if flags else ""),
            env={"CARGO_TARGET_DIR": str(target), **(flags or {})},
            on_line=lambda line: count.append(line) if line.strip().startswith("Compiling ") else None,
        )
    program = target / "release" / "gpulab"
    step.done(os.path.relpath(program, paths.ROOT))
    return program


def with_candle(features: str = "nn") -> Path:
    """The program with candle and what else is named, built as the set-up decided."""
    from env.kernel_cache import candle

    return build(features, CANDLE, "candle", candle.flags())


def environment() -> dict[str, str]:
    """With the libraries that candle links to."""
    from env.kernel_cache import candle

    return {**os.environ, "LD_LIBRARY_PATH": paths.library_path(*candle.libraries())}


def call(command: list[str | Path]) -> int:
    """Runs the program; Ctrl-C is for it alone, which keeps its run and ends."""
    with subprocess.Popen(command, env=environment()) as process:
        # Only now: a program that is started while the signal is ignored would ignore it, too.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: process.terminate())
        try:
            return process.wait()
        finally:
            signal.signal(signal.SIGINT, before)


def answer(command: list[str | Path]) -> tuple[int, str]:
    """Runs the program to its end; its status, and what it printed, which is shown too."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment())
    print(done.stdout, end="", flush=True)
    return done.returncode, done.stdout


def folder(chosen: list[str]) -> Path:
    """Where the program puts rows and plots."""
    place = os.environ.get("GPULAB_RESULTS") or str(paths.ROOT / "results")
    if chosen[:1] == ["train-gpt"]:
        place = os.path.join(place, "gpt")
    for at, argument in enumerate(chosen):
        if argument.startswith("--out"):
            place = argument.partition("=")[2] or "".join(chosen[at + 1 : at + 2])
    return Path(place)


def draw(plots: Iterable[Path]) -> None:
    """A PNG beside each plot."""
    from env.run import redraw

    for picture in redraw.beside(plots):
        print(f"         {picture}")
