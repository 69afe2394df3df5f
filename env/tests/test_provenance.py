"""The README of a recorded run, and the rows that it keeps."""

from __future__ import annotations

import pytest

from notebooks import Problem
from runner import metrics, provenance
from runner.execute import Failure, Outcome

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


def test_what_the_page_says(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "verify", lambda: MACHINE)
    (tmp_path / "metrics.csv").write_text("time,commit,lesson\n2026-01-02T00:00:00Z,abc123,02_a\n")
    outcomes = [Outcome("02_a", 5, 12.34, 2, 7), Outcome("03_b", failures=[Failure("03_b", 0, "", "", "x")])]
    provenance.save(tmp_path, "2026-01-01T00:00:00Z", outcomes)
    page = (tmp_path / "README.md").read_text()
    for line in (
        "| began (UTC) | 2026-01-01T00:00:00Z |",
        "| commit | abc123 |",
        "| [02_a](02_a.ipynb) | 12.3 | 5 | 2 | 7 | good |",
        "| [03_b](03_b.ipynb) | 0.0 | 0 | 0 | 0 | failed |",
        "| NVIDIA driver | 580.1 |",
        "| GPU 0 | NVIDIA H200: compute capability 9.0 |",
        "| NVRTC | 13.0 |",
        "| warning | a\\|b |",
    ):
        assert line in page, f"{line}\n{page}"
    assert "nvcc" not in page
    provenance.check_replaces(tmp_path, whole=True)
    with pytest.raises(Problem, match="holds a run of all notebooks"):
        provenance.check_replaces(tmp_path, whole=False)
    monkeypatch.setattr(provenance, "verify", lambda: {**MACHINE, "short_name": "laptop"})
    with pytest.raises(Problem, match="holds a run on NVIDIA H200, and this machine is laptop"):
        provenance.check_replaces(tmp_path, whole=True)


def test_a_new_recording_replaces_its_lessons_only(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("time,lesson,value\n2026-01-01,a,1\n2026-01-01,b,2\n2026-01-03,a,3\n")
    metrics.keep_latest(path, ["a"], "2026-01-02")
    assert path.read_text() == "time,lesson,value\n2026-01-01,b,2\n2026-01-03,a,3\n"
    assert metrics.rows_by_lesson(path) == {"a": 1, "b": 1}
    assert metrics.rows_by_lesson(tmp_path / "none.csv") == {}


def test_a_file_that_is_no_text_is_named(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(b"time,lesson\n\xff\xfe\x00")
    with pytest.raises(Problem, match=r"metrics.csv(.|\n)*next: move the file away"):
        metrics.rows_by_lesson(path)
