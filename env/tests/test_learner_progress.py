"""`make progress`: what saved notebooks show of runs, verdicts and predictions, kept once, oldest prediction first."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
from env import paths, progress
from env.console import ToolError


def notebook(*printed: str, verdict: str = "", ran: bool = True) -> str:
    """A saved notebook of one cell for each text, and a check."""
    cells = [
        {"cell_type": "code", "source": "x", "execution_count": 1 if ran else None, "metadata": {},
         "outputs": [{"output_type": "stream", "name": "stdout", "text": text}]} for text in printed
    ]  # fmt: skip
    if verdict:
        data = {progress.VERDICT: {"exercise": "scale", "verdict": verdict}, "text/plain": verdict}
        cells.append({"cell_type": "code", "source": "check::scale(SCALE)", "execution_count": 2, "metadata": {},
                      "outputs": [{"output_type": "display_data", "data": data}]})  # fmt: skip
    return json.dumps({"cells": cells, "nbformat": 4})


# Lines as the lessons print them; the rest of them are below, as they were recorded.
LINES = {
    "neighbours ÷ pieces, largest size: 17.3; you predicted 2": ["17.3"],
    "stride 1: 4 sectors, you predicted 2": ["4"],
    "the best rung is 336 times as fast as one core of that machine's CPU; you predicted 2": ["336"],
    "  06_warp_tile:  71 % of cuBLAS; your prediction: 2": ["71"],
    "2^28 floats: the chain takes 3.00 times as long; you predicted 2": ["3.00"],
    "around 1000: you predicted 2": [],
    "held out: 4.117 nats a token (1.880 a byte); you predicted 2": ["4.117"],
    "of 136959 parameters that this update moves in f32, 54.2 % stay as they are in bf16; you predicted 2": ["54.2"],
    "85.4 % of generated digits, seed 7 are read right after one epoch; you predicted 2": ["85.4"],
    "4,096 tokens: 7.38 GB (your prediction: 2); 8,192: 3.9 times as much (your prediction: 2)": ["7.38", "3.9"],
    "the maximum moved 7 times, at keys [1, 4, 63]; your prediction: 2": ["7"],
    "rung 06 is 1.79 times as fast as rung 05; your prediction for 16,384 tokens: 2": ["1.79"],
    "int4, absmax, groups of 64           1.62 times as high; your prediction: 2": ["1.62"],
    "Q4_1 against f32: with 1 row 20.88 times as fast, your prediction 2; with 256 rows 1.29, your prediction 2": ["20.88", "1.29"],
    "a load of x: 32 lanes, 29 sectors, 928 bytes; your prediction: 2": ["29"],
    "one machine alone: 18.12 ms per step; sent at the end, the efficiency is 75.3 % (your prediction: 2)": ["75.3"],
    "your prediction, for the kernel alone: 2": [],
    "141 GB of scores: 66380 tokens; your prediction: none yet": [],
    "a line that predicts nothing: 3": [],
}  # fmt: skip


def predictions(line: str) -> list[tuple[str, str, str]]:
    """Those with a number on both sides, which are kept."""
    return [found for found in progress.said(line) if all(found)]


@pytest.mark.parametrize("line", LINES)
def test_a_printed_prediction_meets_its_measurement(line: str) -> None:
    assert [found[1] for found in predictions(line)] == LINES[line]
    assert all(found[2] == "2" for found in predictions(line))


def test_the_recorded_lessons_have_many_such_lines() -> None:
    """As recorded, with a prediction put in: each pair has a number, and few lines say none."""
    pairs, silent = 0, []
    for place in sorted((paths.ROOT / "results" / "h200").glob("[0-9]*.ipynb")):
        for cell in json.loads(place.read_text(encoding="utf-8"))["cells"]:
            for output in cell.get("outputs", []):
                text = "".join(output.get("text", "")) if output["output_type"] == "stream" else ""
                for line in (line for line in text.splitlines() if "none yet" in line):
                    found = predictions(line.replace("none yet", "2"))
                    assert all(progress.number(one[1]) >= 0 for one in found), line
                    pairs += len(found)
                    silent += [] if found else [line]
    assert pairs > 50 and len(silent) < pairs / 2, silent


def test_rows_are_kept_once_and_the_first_prediction_counts(tmp_path: Path) -> None:
    saved, place = tmp_path / "10_vector_add.ipynb", tmp_path / "progress.csv"
    saved.write_text(notebook("factor: 8; you predicted 2", verdict="NOT YET"))
    assert progress.note(saved, place) == 3
    assert progress.note(saved, place) == 0
    saved.write_text(notebook("factor: 8; you predicted 8", verdict="PASS"))
    assert progress.note(saved, place) == 2
    rows = progress.kept(place)
    assert [row.value for row in rows if row.kind == "exercise"] == ["NOT YET", "PASS"]
    [first] = progress.first_predictions(rows)
    assert (first.predicted, progress.off(first)) == ("2", 4.0)
    said = progress.table(rows, {"10_vector_add": 4, "11_reduction": 6})
    assert "1 of 4" in said[1] and "4.0 times" in said[1]
    assert said[2].startswith("1 of 2 lessons begun, 1 run whole; 1 of 10 exercises passed")


def test_later_predictions_are_compared_with_earlier_ones() -> None:
    guesses = ["100", "90", "80", "12", "11", "10"]
    rows = [
        progress.Row(f"2026-01-0{at + 1}", "10_a", "prediction", f"p{at}", "10", said)
        for at, said in enumerate(guesses)
    ]
    assert "were off by 9.0 times, the later 3 by 1.1 times" in progress.table(rows, {"10_a": 1})[-1]
    assert progress.off(progress.Row("", "", "prediction", "", "-0.02", "1")) is None


@pytest.mark.parametrize(
    "bad", ["no json", "[]", '{"cells": []}', '{"cells": [{"cell_type": "code", "source": "", "outputs": []}]}']
)
def test_a_notebook_that_shows_nothing_adds_nothing(bad: str, tmp_path: Path) -> None:
    saved = tmp_path / "10_vector_add.ipynb"
    saved.write_text(bad)
    assert progress.note(saved, tmp_path / "progress.csv") == 0
    assert not (tmp_path / "progress.csv").exists()
    assert progress.note(tmp_path / "gone.ipynb", tmp_path / "progress.csv") == 0


def test_the_command_reads_reports_and_exports(tmp_path: Path, monkeypatch, capsys) -> None:
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "mine").mkdir()
    monkeypatch.setattr(paths, "NOTEBOOKS", tmp_path / "notebooks")
    monkeypatch.setenv("GPULAB_WORK", str(tmp_path / "mine"))
    monkeypatch.setattr("sys.argv", ["progress"])
    assert progress.main() == 0 and "next: " in capsys.readouterr().out
    (tmp_path / "mine" / "10_vector_add.ipynb").write_text(notebook("factor: 8; you predicted 2"))
    (tmp_path / "notebooks" / "10_vector_add.ipynb").write_text(notebook())
    for name in ("out.csv", "out.json"):
        monkeypatch.setattr("sys.argv", ["progress", "--predictions", "--export", str(tmp_path / name)])
        assert progress.main() == 0
    assert "predicted        2, measured        8" in capsys.readouterr().out
    with (tmp_path / "out.csv").open() as text:
        assert [row["predicted"] for row in csv.DictReader(text)] == ["", "2"]
    assert json.loads((tmp_path / "out.json").read_text())[1]["value"] == "8"
    with pytest.raises(ToolError):
        progress.export([], tmp_path / "out.txt")
