"""CUDA's headers: which packages, linked into one folder, and a set-up from before them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from env import paths
from env.setup import headers, nvrtc


@pytest.mark.parametrize("version", [nvrtc.CUDA_13[1], *nvrtc.CUDA_12.values()])
def test_headers_are_of_the_compilers_version(version: str) -> None:
    runtime, library, included = headers.packages(version)
    minor = version.rsplit(".", 1)[0]
    suffix = "-cu12" if version.startswith("12") else ""
    assert runtime.startswith(f"nvidia-cuda-runtime{suffix}=={minor}.")
    assert library.startswith(f"nvidia-cuda-cccl{suffix}=={minor}.")
    assert included == headers.CRT
    assert {one.split("==")[0] for one in (runtime, library)} <= set(headers.NAMES)


def test_headers_of_all_packages_are_linked_into_one_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "HEADERS", tmp_path / "project/include")
    site = tmp_path / "project/site"
    for file in ("cuda_runtime/include/cuda_fp16.h", "cuda_cccl/include/nv/target", "cu13/include/crt/mma.h"):
        (site / "nvidia" / file).parent.mkdir(parents=True)
        (site / "nvidia" / file).write_text(file)
    headers.link(site)
    there = sorted(header.name for header in paths.HEADERS.iterdir())
    assert there == ["crt", "cuda_fp16.h", "nv"]
    assert (paths.HEADERS / "crt/mma.h").read_text() == "cu13/include/crt/mma.h"
    # The links stay right when the project moves.
    (tmp_path / "project").rename(tmp_path / "moved")
    assert (tmp_path / "moved/include/nv/target").exists()
    # What another version had is gone, and of two the runtime's own counts.
    monkeypatch.setattr(paths, "HEADERS", tmp_path / "moved/include")
    site = tmp_path / "moved/site"
    shutil.rmtree(site / "nvidia/cuda_cccl")
    (site / "nvidia/cu13/include/cuda_fp16.h").write_text("other")
    headers.link(site)
    assert sorted(header.name for header in paths.HEADERS.iterdir()) == ["crt", "cuda_fp16.h"]
    assert (paths.HEADERS / "cuda_fp16.h").read_text() == "cuda_runtime/include/cuda_fp16.h"


def test_a_set_up_without_headers_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "LIBRARIES", tmp_path / "lib")
    monkeypatch.setattr(paths, "HEADERS", tmp_path / "include")
    stamp, wanted = paths.LIBRARIES / "nvrtc.json", {"packages": ["nvidia-cuda-nvrtc==13.0.88"]}
    paths.write_text(paths.LIBRARIES / "libnvrtc.so", "")
    paths.write_json(stamp, {"package": "nvidia-cuda-nvrtc", "version": "13.0.88"})
    assert not nvrtc.is_there(stamp, wanted)
    paths.write_json(stamp, wanted)
    assert not nvrtc.is_there(stamp, wanted)
    paths.write_text(paths.HEADERS / "cuda_fp16.h", "")
    assert nvrtc.is_there(stamp, wanted)
    assert not nvrtc.is_there(stamp, {"packages": ["nvidia-cuda-nvrtc-cu12==12.9.86"]})
