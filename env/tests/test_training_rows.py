"""The table of training as rows of measurements."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from env import paths

TABLE = """precision,what,metric,value,unit,ratio,samples,p10,p90
f32,"ours, graph","step",238.5,µs,1.000,21,238.0,239.7
f32,"ours, launches, loss read each step","step",285.1,µs,1.196,21,283.8,291.0
f32,"candle","kernel fill",98.4,µs,1.000,1,98.4,98.4
f32,"candle","step",4583.3,µs,19.226,21,4548.6,4697.0
tf32,"ours, graph","epoch",0.054,s,1.000,1,0.054,0.054
"""


def test_steps_are_in_ms_and_epochs_in_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from env.baselines import training_rows

    table, file = tmp_path / "training.csv", tmp_path / "recorders.csv"
    table.write_text(TABLE, encoding="utf-8")
    rows = training_rows.rows(table, "2026-01-02T03:04:05Z", "abc", "a GPU")
    found = [(row["experiment"], row["dtype"], float(row["value"]), row["unit"], row["metric"]) for row in rows]
    assert found == [
        ("step on a GPU: own kernels, CUDA graph", "f32", 0.2385, "ms", "time"),
        ("step on a GPU: candle", "f32", 4.5833, "ms", "time"),
        ("epoch on a GPU: own kernels, CUDA graph", "tf32", 0.054, "s", "epoch time"),
    ]
    training_rows.append(file, rows[:1])
    training_rows.append(file, rows[1:])
    with file.open(encoding="utf-8", newline="") as text:
        assert list(csv.DictReader(text)) == rows
    with (paths.ROOT / "results/h200/recorders.csv").open(encoding="utf-8", newline="") as text:
        assert csv.DictReader(text).fieldnames == training_rows.FIELDS
