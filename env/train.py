"""Training from the command line (`make train-cpu`, `train-cuda`, `train-mps`, `train-gpt`): builds the program with candle, becomes it,
and draws its plots as pictures. What stands in ARGS goes to the program: `make train-cpu ARGS="--epochs 3 --resume"`.
"""

from __future__ import annotations

import time
from pathlib import Path

from env import in_venv, program
from env.console import tool


def run(feature: str, chosen: list[str], plots: str) -> int:
    """Builds, runs, draws the plots that the program has just written."""
    started = time.time()
    status = program.call([program.with_candle(feature), *chosen])
    if status == 0:
        files = sorted(Path(program.folder(chosen)).glob(plots))
        program.draw(plot for plot in files if plot.stat().st_mtime >= started)
    return status


if __name__ == "__main__":
    in_venv.enter()
    tool(lambda: run("nn", program.arguments(), "train-*.svg"))
