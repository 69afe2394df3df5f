"""Watches the GPUs (`make monitor`): builds the program `gpulab` if need be, and becomes it with what stands in ARGS."""

from __future__ import annotations

from env import program
from env.console import tool
from env.setup import gpulab_program

if __name__ == "__main__":
    tool(lambda: gpulab_program.become("monitor", *program.arguments()))
