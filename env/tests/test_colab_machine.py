"""What the Colab edition's set-up cell tells: how long it will take, and what it found."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from env import paths

sys.path.append(str(paths.ENV / "colab" / "runtime"))

from gpulab_colab import machine, set_up

PLAIN = [':dep gpulab = { path = "../support-crate" }']
CANDLE = [*PLAIN, ':dep gpulab-nn = { path = "../crates/nn" }']


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout on a machine that has nothing."""
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setenv("CARGO_HOME", str(tmp_path / "cargo"))
    (tmp_path / "env").mkdir()
    shutil.copy(paths.ENV / "paths.py", tmp_path / "env")
    return tmp_path


def write(path: Path, content: object) -> None:
    """A file of JSON, with its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def test_what_is_missing_is_told_with_its_time(root: Path) -> None:
    names = [part.name for part in machine.missing(root, CANDLE, "")]
    assert names == [
        "Python packages", "Rust", "the Rust kernel, built here", "the course's crates", "candle for this lesson",
    ]  # fmt: skip
    built, prebuilt = (sum(p.seconds for p in machine.missing(root, PLAIN, bundle)) for bundle in ("", "https://x/"))
    assert (prebuilt, built) == (150 - machine.READY_S * 2, 550 - machine.READY_S * 2)
    write(root / ".venv/gpulab.json", {})
    write(root / ".gpulab/warm/0a-0b/warm.json", {"lines": PLAIN})
    for place in (root / "cargo/bin/cargo", root / ".gpulab/tools/bin/evcxr_jupyter"):
        write(place, "")
    assert machine.missing(root, PLAIN, "") == []
    assert [part.name for part in machine.missing(root, CANDLE, "")] == ["candle for this lesson"]
    assert [machine.minutes(seconds) for seconds in (0.2, 80, 150, 560)] == ["1 s", "80 s", "2 min", "9 min"]


def test_the_end_names_the_gpu_and_the_versions(root: Path) -> None:
    write(root / ".gpulab/setup.json", {"rustc": "rustc 1.95.0 (x)\nhost: y", "evcxr": "/x/evcxr_jupyter"})
    assert "is not known" in machine.found(root, {})[0]
    gpu = {"name": "Tesla T4", "memory_bytes": 1}
    nvidia = {"driver": "550.54.15", "cuda": "12.4", "gpus": [gpu]}
    tools = [{"name": "NVRTC", "version": "12.4.127", "found": True}, {"name": "nvcc", "version": None, "found": False}]
    program = root / "target/release/gpulab"
    for gpus, expected in (([gpu], "Tesla T4, driver 550.54.15 (CUDA 12.4)"), ([], "no GPU")):
        report = {"nvidia": {**nvidia, "gpus": gpus}, "short_name": "Xeon, 2 cores", "tools": tools}
        write(program, "")
        program.write_text(f"#!/bin/sh\necho '{json.dumps(report)}'\n")
        program.chmod(0o755)
        lines = machine.found(root, {})
        assert lines[0].startswith(expected) and "CPU: Xeon, 2 cores" in lines
        assert lines[-1].startswith(f"rustc 1.95.0, evcxr_jupyter {paths.EVCXR_VERSION}, Python 3.")
        assert lines[-1].endswith("NVRTC 12.4.127")


def test_a_lesson_names_its_lines() -> None:
    assert set_up.dep_lines("00_welcome")[:1] == PLAIN
    assert CANDLE[1] in set_up.dep_lines("20_train_cnn")


def test_a_set_up_that_fails_says_so_and_shows_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "env").mkdir()
    text = (
        "import os, sys\nprint('step one', os.environ.get('GPULAB_BUNDLE'), sys.argv[1:])\nsys.exit('error: planted')\n"
    )
    (tmp_path / "env/__init__.py").touch()
    (tmp_path / "env/setup.py").write_text(text)
    monkeypatch.setattr(set_up, "ROOT", tmp_path)
    with pytest.raises(set_up.SetUpFailed, match="exit status 1") as error:
        set_up.set_up("07", "https://x/")
    assert "next: " in str(error.value)
    said = capsys.readouterr().out
    assert "step one https://x/ ['--lessons', '07']" in said and "error: planted" in said
