"""Kernels that a notebook compiles and the pack for machines without NVRTC lacks are found, and named."""

from __future__ import annotations

from pathlib import Path

import pytest
from env.run import without_nvrtc


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    file = tmp_path / "ptx.pack"
    file.write_bytes(b"gpulab PTX 1\naa 3 10_add,course/add/01\nbb 4 11_sum\n\n\x5d\0\0\n\n\xff")
    return file


@pytest.fixture(autouse=True)
def not_collecting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(without_nvrtc.LOG, raising=False)


def kept(tmp_path: Path, *names: str) -> Path:
    folder = tmp_path / "10_add"
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f".visible .entry kernel_{name}(\n.visible .entry other_{name}(\n")
    return folder


def test_the_index_is_read_without_what_follows(pack: Path, tmp_path: Path) -> None:
    assert without_nvrtc.keys(pack) == {"aa", "bb"}
    assert without_nvrtc.keys(tmp_path / "none") == set()


def test_a_kernel_that_is_not_packed_is_named(pack: Path, tmp_path: Path) -> None:
    said = without_nvrtc.missing(kept(tmp_path, "aa", "cc"), pack)
    assert said is not None
    assert "1 of its sources" in said and "kernel_cc, other_cc\nnext: make ptx NB=10_add" in said
    assert "kernel_aa" not in said


def test_nothing_is_missing(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All is packed; nothing was compiled; `make ptx` is just collecting."""
    assert without_nvrtc.missing(tmp_path / "never_ran", pack) is None
    folder = kept(tmp_path, "aa", "bb")
    assert without_nvrtc.missing(folder, pack) is None
    (folder / "cc").write_text("")
    assert without_nvrtc.missing(folder, pack) is not None
    monkeypatch.setenv(without_nvrtc.LOG, str(tmp_path))
    assert without_nvrtc.missing(folder, pack) is None


def test_each_run_begins_with_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(without_nvrtc.LOG, str(tmp_path))
    folder = kept(tmp_path, "aa")
    assert without_nvrtc.fresh("10_add") == folder and not folder.exists()
