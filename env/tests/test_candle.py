"""Where candle is built with CUDA, and that cargo then hears of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from env import paths
from env.kernel_cache import candle, recipe


@pytest.fixture
def toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like a CUDA toolkit, and no other one."""
    nvcc = tmp_path / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text("#!/bin/sh\n")
    nvcc.chmod(0o755)
    monkeypatch.setattr(candle, "USUAL", ())
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(paths, "STATE", tmp_path / "setup.json")
    return tmp_path / "cuda"


def test_it_takes_a_driver_and_a_toolkit(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert candle.find((13, 0)) == ""
    monkeypatch.setenv("PATH", str(toolkit / "bin"))
    assert candle.toolkit() == toolkit and candle.find((13, 0)) == candle.CUDA
    assert candle.find(None) == ""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CUDA_HOME", str(toolkit))
    assert candle.find((12, 4)) == candle.CUDA
    (toolkit / "bin" / "nvcc").chmod(0o644)
    assert candle.find((12, 4)) == ""


def test_cargo_hears_of_it_as_the_setup_decided(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_PATH", str(toolkit))
    kernel = Path("/kernel"), Path("/rust"), Path("/evcxr")
    own = {"CARGO_ENCODED_RUSTFLAGS": "-Copt-level=0"}
    # Undecided, or decided against it: evcxr's own flags stay, and the reader's never reach a kernel.
    assert candle.flags() == {} and "CARGO_ENCODED_RUSTFLAGS" not in recipe.environment(own, *kernel)
    before = recipe.dependencies_key("rustc 1")
    paths.write_json(paths.STATE, {"candle": candle.CUDA})
    env = recipe.environment(own, *kernel)
    assert env["CARGO_ENCODED_RUSTFLAGS"].split("\x1f") == ["-Cprefer-dynamic", "--cfg", "gpulab_cuda"]
    assert env["CUDA_HOME"] == str(toolkit)
    assert recipe.dependencies_key("rustc 1") != before
    assert env["NVCC"] == str(toolkit / "bin" / "nvcc")


def test_what_candle_links_to_is_found_by_kernels(toolkit: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_PATH", str(toolkit))
    (toolkit / "lib64").mkdir()
    assert candle.libraries() == []
    paths.write_json(paths.STATE, {"candle": candle.CUDA})
    env = recipe.environment({"LD_LIBRARY_PATH": "/own"}, Path("/kernel"), Path("/rust"), Path("/evcxr"))
    assert env["LD_LIBRARY_PATH"].split(":") == [str(paths.LIBRARIES), str(toolkit / "lib64"), "/own"]
    monkeypatch.setenv("LD_LIBRARY_PATH", "/own")
    assert paths.library_path("/more") == f"{paths.LIBRARIES}:/more:/own"
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert paths.library_path() == str(paths.LIBRARIES)
