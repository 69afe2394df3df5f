"""ONNX Runtime's library: for which lessons it comes, from which wheel, and what is taken out of that."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
from env import console, paths
from env.setup import cupti, nvrtc, onnxruntime

PLAIN = ':dep gpulab = { path = "../support-crate" }'
LINE = f"{PLAIN}\n{onnxruntime.LINE}"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """An empty project; what pip is asked for is written down, and a download makes a small wheel."""
    asked: list[list[str]] = []
    monkeypatch.setattr(paths, "VENV", tmp_path / "venv")
    monkeypatch.setattr(paths, "GENERATED", tmp_path)
    monkeypatch.setattr(onnxruntime, "FOLDER", tmp_path / "lib/onnxruntime")
    monkeypatch.setattr(onnxruntime, "is_there", lambda _: False)
    monkeypatch.setattr(onnxruntime.sys, "platform", "linux")

    def pip(*arguments: str | Path, failed: str) -> None:
        assert failed
        asked.append([str(argument) for argument in arguments])
        if arguments[0] == "download":
            folder = Path(arguments[arguments.index("--dest") + 1])
            folder.mkdir()
            wheel(folder / "onnxruntime_gpu-1-cp312.whl")

    monkeypatch.setattr(onnxruntime, "pip", pip)
    return asked


def wheel(file: Path, library: str = "libonnxruntime.so.1.31.1") -> Path:
    """A wheel with libraries among other files."""
    with zipfile.ZipFile(file, "w") as archive:
        for name in (library, "libonnxruntime_providers_cuda.so", "onnxruntime_pybind11_state.so", "__init__.py"):
            archive.writestr(f"onnxruntime/capi/{name}", name)
        archive.writestr("onnxruntime/tools/libtool.so", "")
    return file


@pytest.mark.parametrize(
    ("driver", "python", "package"),
    [
        (None, True, None),
        (None, False, onnxruntime.CPU),
        ((13, 0), True, onnxruntime.CUDA_13),
        ((12, 8), True, onnxruntime.CUDA_12),
    ],
)
def test_the_wheel_follows_from_the_driver(driver: tuple | None, python: bool, package: str | None) -> None:
    assert onnxruntime.package(driver, python) == package
    if package in onnxruntime.NEEDS:
        assert onnxruntime.TENSORRT[package].startswith("tensorrt-cu")


def test_a_lesson_without_it_pays_nothing(machine: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "driver_cuda", lambda: pytest.fail("nothing is to be looked for"))
    onnxruntime.onnxruntime([PLAIN, f'{PLAIN}\n:dep gpulab-nn = {{ path = "../crates/nn" }}', "short"])
    assert machine == []
    assert onnxruntime.needed([PLAIN, LINE]) and not onnxruntime.needed([PLAIN])


def test_without_a_driver_the_python_package_is_enough(machine: list, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvrtc, "driver_cuda", lambda: None)
    there = paths.VENV / "lib/python3.12/site-packages/onnxruntime/capi"
    there.mkdir(parents=True)
    (there / "libonnxruntime.so.1.31.1").write_text("")
    onnxruntime.onnxruntime([LINE])
    assert machine == []
    with pytest.raises(console.ToolError, match="no NVIDIA driver"):
        onnxruntime.onnxruntime([LINE], "1")


def test_with_a_driver_library_and_cuda_come_once_and_tensorrt_on_wish(
    machine: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvrtc, "driver_cuda", lambda: (13, 0))
    onnxruntime.onnxruntime([LINE])
    assert [call[0] for call in machine] == ["download", "install"]
    assert machine[0][-1] == onnxruntime.CUDA_13 and "nvidia-cudnn-cu13==9.14.0.64" in machine[1]
    assert not any("tensorrt" in word for call in machine for word in call)
    names = sorted(file.name for file in onnxruntime.FOLDER.iterdir())
    assert names == ["libonnxruntime.so.1.31.1", "libonnxruntime_providers_cuda.so", "onnxruntime.json"]
    # Asked for once, it is kept up to date with every set-up.
    onnxruntime.onnxruntime([])
    assert len(machine) == 2
    onnxruntime.onnxruntime([LINE], "1")
    assert len(machine) == 4 and machine[3][-1] == onnxruntime.TENSORRT[onnxruntime.CUDA_13]
    # Each name from one index: NVIDIA's for TensorRT alone.
    assert ["--index-url" in call for call in machine] == [False, False, False, True]
    onnxruntime.onnxruntime([LINE])
    assert len(machine) == 4


def test_a_wheel_without_the_library_is_said(tmp_path: Path) -> None:
    file = wheel(tmp_path / "x.whl", library="libother.so")
    with pytest.raises(console.ToolError, match="no libonnxruntime"):
        onnxruntime.unpack(file, tmp_path / "lib")


def test_a_toolkits_library_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cupti, "toolkits", lambda: [tmp_path])
    assert not onnxruntime.is_there("libcublas-of-nobody.so.13")
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64/libcublas-of-nobody.so.13").write_text("")
    assert onnxruntime.is_there("libcublas-of-nobody.so.13")


def test_a_wish_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, wish in (("", ""), ("0", ""), ("1", "1")):
        monkeypatch.setenv("TENSORRT", value)
        assert onnxruntime.wish() == wish
    monkeypatch.setenv("TENSORRT", "yes")
    with pytest.raises(console.ToolError, match="TENSORRT=yes"):
        onnxruntime.wish()
