"""Watches the GPUs (`make monitor`): builds the program `gpulab` if need be, and becomes it."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys

from env import paths
from env.console import tool
from env.setup import gpulab_program, rust


def main() -> None:
    """Hands what stands in ARGS to `gpulab monitor`."""
    with contextlib.redirect_stdout(sys.stderr):
        gpulab_program.program(rust.toolchain(quiet=True), quiet=True)
    chosen = [*sys.argv[1:], *shlex.split(os.environ.get("ARGS", ""))]
    command = [str(paths.PROGRAMS / "gpulab"), "monitor", *chosen]
    sys.stdout.flush()
    os.execve(command[0], command, {**os.environ, "LD_LIBRARY_PATH": paths.library_path()})


if __name__ == "__main__":
    tool(main)
