"""The README of a recorded run, the rows that it keeps, and how a part of it is run again."""

from __future__ import annotations

import pytest
from env.console import ToolError
from env.run import join_runs, metrics, provenance
from env.run.execute import Failure, Outcome

MACHINE = {
    "short_name": "NVIDIA H200",
    "system": "Linux",
    "cpu": {"model": "Xeon", "usable_cores": 16, "vectors": "AVX-512"},
    "nvidia": {"driver": "580.1", "cuda": "13.0", "gpus": [
        {"name": "NVIDIA H200", "compute_capability": "9.0", "memory_free_bytes": 3, "clock_now_mhz": 4, "nvlink_links": None},
    ]},
    "apple": [],
    "tools": [{"name": "NVRTC", "found": True, "version": "13.0", "place": "x"}, {"name": "nvcc", "found": False}],
    "warnings": ["a|b"],
}  # fmt: skip


def record(out, began, monkeypatch, *outcomes, machine=MACHINE):
    """As the runner does after its notebooks."""
    monkeypatch.setattr(provenance, "verify", lambda: machine)
    before = provenance.entries(out)
    found = provenance.join(before, provenance.recorded(out, began, list(outcomes)))
    provenance.save(out, found, provenance.machine_section())
    provenance.save_summary(out, found)
    return (out / "README.md").read_text()


def test_what_the_page_says(tmp_path, monkeypatch):
    (tmp_path / "metrics.csv").write_text("time,commit,lesson\n2026-01-02T00:00:00Z,abc123,02_a\n")
    outcomes = [Outcome("02_a", 5, 12.34, 2, 7), Outcome("03_b", failures=[Failure("03_b", 0, "", "", "x")])]
    page = record(tmp_path, "2026-01-01T00:00:00Z", monkeypatch, *outcomes)
    for line in (
        "| 2026-01-01T00:00:00Z | abc123 | `python3 -m env.run",
        "| [02_a](02_a.ipynb) | 12.3 | 5 | 2 | 7 | good | 2026-01-01T00:00:00Z |",
        "| [03_b](03_b.ipynb) | 0.0 | 0 | 0 | 0 | failed | 2026-01-01T00:00:00Z |",
        "| NVIDIA driver | 580.1 |",
        "| GPU 0 | NVIDIA H200: compute capability 9.0 |",
        "| NVRTC | 13.0 |",
        "| warning | a\\|b |",
    ):
        assert line in page, f"{line}\n{page}"
    assert "nvcc" not in page
    provenance.check_replaces(tmp_path)
    monkeypatch.setattr(provenance, "verify", lambda: {**MACHINE, "short_name": "laptop"})
    with pytest.raises(ToolError, match="holds a run on NVIDIA H200, and this machine is laptop"):
        provenance.check_replaces(tmp_path)


def test_a_notebook_that_is_run_again_has_its_own_line(tmp_path, monkeypatch):
    monkeypatch.setenv("GPULAB_COMMIT", "first")
    record(tmp_path, "2026-01-01T00:00:00Z", monkeypatch, Outcome("02_a", 5, 1.0), Outcome("03_b", 6, 2.0))
    monkeypatch.setenv("GPULAB_COMMIT", "second")
    page = record(tmp_path, "2026-01-02T00:00:00Z", monkeypatch, Outcome("02_a", 5, 9.0))
    assert "| 2026-01-01T00:00:00Z | first |" in page and "| 2026-01-02T00:00:00Z | second |" in page
    assert "| [02_a](02_a.ipynb) | 9.0 | 5 | 0 | 0 | good | 2026-01-02T00:00:00Z |" in page
    assert "| [03_b](03_b.ipynb) | 2.0 | 6 | 0 | 0 | good | 2026-01-01T00:00:00Z |" in page
    # A run that nothing is left of has no line.
    page = record(tmp_path, "2026-01-03T00:00:00Z", monkeypatch, Outcome("03_b", 6, 3.0))
    assert "| first |" not in page and page.count("02_a.ipynb") == 1


def folder(path, began, monkeypatch, name, *outcomes, machine=MACHINE):
    (path / "plots").mkdir(parents=True)
    for one in outcomes:
        (path / f"{one.notebook}.ipynb").write_text(name)
        (path / "plots" / f"{one.notebook}-{name}.svg").write_text(name)
    rows = [f"{began},{name},{one.notebook}" for one in outcomes]
    (path / "metrics.csv").write_text("\n".join(["time,commit,lesson", *rows, ""]))
    record(path, began, monkeypatch, *outcomes, machine=machine)
    return path


def test_one_run_goes_into_another(tmp_path, monkeypatch):
    into = folder(tmp_path / "into", "2026-01-01T00:00:00Z", monkeypatch, "old", Outcome("02_a"), Outcome("03_b"))
    failed = Outcome("03_b", failures=[Failure("03_b", 0, "", "", "x")])
    source = folder(tmp_path / "from", "2026-01-02T00:00:00Z", monkeypatch, "new", Outcome("02_a"), failed)
    assert join_runs.join(source, into) == ["02_a"]
    assert (into / "02_a.ipynb").read_text() == "new" and (into / "03_b.ipynb").read_text() == "old"
    assert sorted(file.name for file in (into / "plots").iterdir()) == ["02_a-new.svg", "03_b-old.svg"]
    assert {row["lesson"]: row["commit"] for row in metrics.read(into / "metrics.csv")} == {
        "02_a": "new",
        "03_b": "old",
    }
    page = (into / "README.md").read_text()
    assert "| good | 2026-01-02T00:00:00Z |" in page and page.count("## The machine") == 1 and "failed" not in page
    assert [one["run"]["commit"] for one in provenance.entries(into)] == ["new", "old"]


def test_runs_that_do_not_belong_together_stay_apart(tmp_path, monkeypatch):
    into = folder(tmp_path / "into", "2026-01-01T00:00:00Z", monkeypatch, "old", Outcome("02_a"))
    other = {**MACHINE, "short_name": "laptop"}
    source = folder(tmp_path / "from", "2026-01-02T00:00:00Z", monkeypatch, "new", Outcome("02_a"), machine=other)
    with pytest.raises(ToolError, match=r"run on laptop, .* on NVIDIA H200"):
        join_runs.join(source, into)
    with pytest.raises(ToolError, match="holds no recorded run"):
        join_runs.join(tmp_path, into)
    stopped = folder(tmp_path / "s", "2026-01-02T00:00:00Z", monkeypatch, "new", Outcome("02_a", stopped=True))
    with pytest.raises(ToolError, match="no notebook that ran to its end"):
        join_runs.join(stopped, into)
    assert (into / "02_a.ipynb").read_text() == "old"


def test_a_new_recording_replaces_its_lessons_only(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("time,lesson,value\n2026-01-01,a,1\n2026-01-01,b,2\n2026-01-03,a,3\n")
    metrics.keep_latest(path, ["a"], "2026-01-02")
    assert path.read_text() == "time,lesson,value\n2026-01-01,b,2\n2026-01-03,a,3\n"
    assert metrics.rows_by_lesson(path) == {"a": 1, "b": 1}
    assert metrics.rows_by_lesson(tmp_path / "none.csv") == {}


def test_a_table_that_loses_all_its_rows_keeps_its_head(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("time,lesson\n2026-01-01,a\n")
    metrics.keep_latest(path, ["a"], "2026-01-02")
    assert path.read_text() == "time,lesson\n"
    metrics.replace(tmp_path / "none.csv", ["a"], [])
    assert not (tmp_path / "none.csv").exists()
    path.write_text("time,lesson\n2026-01-01,a\n")
    metrics.replace(path, ["a"], [])
    assert path.read_text() == "time,lesson\n"


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"time,lesson\n\xff\xfe\x00")
    with pytest.raises(ToolError, match=r"metrics.csv(.|\n)*next: move the file away"):
        metrics.rows_by_lesson(path)
