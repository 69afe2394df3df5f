"""Times the CNN's training step on this GPU beside PyTorch, interleaved, and writes a table and its page.

`python3 -m env.baselines.record_training` runs `examples/record_training`, and answers for PyTorch: eager, as a CUDA
graph, channels last, and compiled (`cnn_peer.WAYS`), from the same parameters on the same images, with the same TF32
setting.
"""

from __future__ import annotations

import argparse
import csv
import math
from pathlib import Path

from env.baselines import pages
from env.baselines.recorder import Recorder
from env.console import tool

RECORDER = Recorder("training", "gpulab-nn", "cnn_peer", "torch", pages.training)
FIELDS = [
    "time",
    "commit",
    "lesson",
    "experiment",
    "backend",
    "machine",
    "dtype",
    "size",
    "metric",
    "value",
    "unit",
    "samples",
    "p10",
    "p90",
]
BATCH = 128
# What the table calls each way, and what the lesson calls it; the table's other ways are no rows.
WAYS = {
    "ours, graph": "own kernels, CUDA graph",
    "ours, launches": "own kernels",
    "candle": "candle",
    "torch": "PyTorch",
    "torch, graph": "PyTorch, CUDA graph",
    "torch, channels_last, graph": "PyTorch, channels_last, CUDA graph",
    "torch, channels_last, reduce-overhead": "PyTorch, channels_last, compiled, reduce-overhead",
    "torch, channels_last, max-autotune, graph": "PyTorch, channels_last, compiled, max-autotune, CUDA graph",
    "torch, max-autotune, graph": "PyTorch, compiled, max-autotune, CUDA graph",
}


def rows(table: Path, facts: pages.Facts) -> list[dict[str, str]]:
    """The table's steps (in ms), epochs (in s) and peaks as rows of `metrics.csv`, as lessons 20a and 21 show them."""

    def row(of: dict[str, str]) -> dict[str, str]:
        step = of["metric"] == "step"
        value, p10, p90 = (f"{float(of[name]) / (1e3 if step else 1):.6f}" for name in ("value", "p10", "p90"))
        what = f"{of['metric']} on a GPU: {WAYS[of['what']]}"
        where = [facts["ended (UTC)"], facts["commit"], "20a_training_step", what, "cuda", facts["GPU"]]
        figure = ["time", value, "ms"] if step else ["epoch time", value, "s"]
        cells = [*where, of["precision"], str(BATCH), *figure, of["samples"], p10, p90]
        return dict(zip(FIELDS, cells, strict=True))

    def memory(of: dict[str, str]) -> dict[str, str]:
        where = [facts["ended (UTC)"], facts["commit"], "21_training_memory", "a step's peak elsewhere: PyTorch, eager"]
        figure = ["memory", of["value"], "MiB", of["samples"], of["p10"], of["p90"]]
        return dict(zip(FIELDS, [*where, "cuda", facts["GPU"], of["precision"], str(BATCH), *figure], strict=True))

    every = pages.rows(table)
    # A way that ended while it was timed has infinite samples.
    there = [of for of in every if of["metric"] in ("step", "epoch") and math.isfinite(float(of["p90"]))]
    timed = [row(of) for of in there if of["what"] in WAYS]
    return timed + [memory(of) for of in every if of["metric"].startswith("memory")]


def append(file: Path, new: list[dict[str, str]]) -> None:
    """Appends to a file of measurements; begins one where there is none."""
    begins = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
        if begins:
            writer.writeheader()
        writer.writerows(new)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = RECORDER.parser(__doc__)
    made.add_argument("--metrics", type=Path, help="also append rows of lessons 20a and 21 to this recorders.csv")
    made.add_argument("--quick", action="store_true", help="few samples: does it work?")
    return made


def main() -> None:
    """Ends badly when something could not be timed."""
    chosen = parser().parse_args()
    facts = RECORDER.record(chosen, lambda _folder: ["--quick"] if chosen.quick else [], [])
    if chosen.metrics:
        append(chosen.metrics, rows(chosen.out, facts))


if __name__ == "__main__":
    tool(main)
