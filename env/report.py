"""CPU against GPU by experiment (`make report`): builds the program `gpulab` if need be, and has it summarise
`results/metrics.csv` (with none there, the recorded run) as text, a page and a chart beside it."""

from __future__ import annotations

import sys
from pathlib import Path

from env import in_venv, program
from env.console import tool
from env.setup import gpulab_program


def main() -> int:
    """Prints the tables, and where the files lie."""
    status, text = program.answer([gpulab_program.built(), "report", *sys.argv[1:]])
    if status == 0:
        # The program names its files in the last line.
        files = [Path(name) for name in text.rstrip().rpartition("written: ")[2].split(", ")]
        program.draw(file for file in files if file.suffix == ".svg")
    return status


if __name__ == "__main__":
    in_venv.enter()
    tool(main)
