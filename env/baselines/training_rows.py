"""The steps and epochs of a table of training as rows of `metrics.csv`, as lesson 20 shows them."""

from __future__ import annotations

import csv
from pathlib import Path

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
}


def rows(table: Path, time: str, commit: str, machine: str) -> list[dict[str, str]]:
    """Steps in ms, epochs in s."""
    with table.open(encoding="utf-8") as file:
        found = [row for row in csv.DictReader(file) if row["metric"] in ("step", "epoch") and row["what"] in WAYS]

    def row(of: dict[str, str]) -> dict[str, str]:
        step = of["metric"] == "step"
        numbers = [f"{float(of[name]) / (1e3 if step else 1):.6f}" for name in ("value", "p10", "p90")]
        return {
            "time": time,
            "commit": commit,
            "lesson": "20_train_cnn",
            "experiment": f"{of['metric']} on a GPU: {WAYS[of['what']]}",
            "backend": "cuda",
            "machine": machine,
            "dtype": of["precision"],
            "size": str(BATCH),
            "metric": "time" if step else "epoch time",
            "value": numbers[0],
            "unit": "ms" if step else "s",
            "samples": of["samples"],
            "p10": numbers[1],
            "p90": numbers[2],
        }

    return [row(of) for of in found]


def append(file: Path, new: list[dict[str, str]]) -> None:
    """Appends to a file of measurements; begins one where there is none."""
    begins = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as out:
        writer = csv.DictWriter(out, FIELDS, lineterminator="\n")
        if begins:
            writer.writeheader()
        writer.writerows(new)
