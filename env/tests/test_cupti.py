"""CUPTI's package: which one, and when none is needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from env import console, paths
from env.setup import cupti, nvrtc


@pytest.mark.parametrize(
    ("driver", "package"),
    [
        ((13, 2), "nvidia-cuda-cupti==13.0.85"),
        ((12, 4), "nvidia-cuda-cupti-cu12==12.4.127"),
        ((12, 7), "nvidia-cuda-cupti-cu12==12.6.80"),
        ((12, 9), "nvidia-cuda-cupti-cu12==12.9.79"),
    ],
)
def test_cupti_is_never_newer_than_the_driver(driver: tuple[int, int], package: str) -> None:
    assert cupti.package(driver) == package


def test_a_toolkit_that_has_it_is_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cupti.library([tmp_path]) is None
    folder = tmp_path / "extras/CUPTI/lib64"
    folder.mkdir(parents=True)
    (folder / "libcupti.so.13").write_text("")
    assert cupti.library([tmp_path / "none", tmp_path]) == folder / "libcupti.so.13"
    monkeypatch.setattr(cupti, "run", lambda *_, **__: pytest.fail("nothing is to be installed"))
    monkeypatch.setattr(cupti, "toolkits", lambda: [tmp_path])
    for driver in (None, (13, 0)):
        monkeypatch.setattr(nvrtc, "driver_cuda", lambda driver=driver: driver)
        cupti.cupti()


def test_without_one_the_package_is_installed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(nvrtc, "driver_cuda", lambda: (13, 0))
    monkeypatch.setattr(cupti, "toolkits", list)
    monkeypatch.setattr(cupti, "run", lambda command, *_, **__: asked.append(command[-1]))
    monkeypatch.setattr(paths, "LIBRARIES", tmp_path / "lib")
    monkeypatch.setattr(paths, "VENV", tmp_path / "venv")
    cupti.cupti()
    site = tmp_path / "venv/lib/python3.12/site-packages/nvidia/cu13/lib"
    site.mkdir(parents=True)
    (site / "libcupti.so.13").write_text("")
    cupti.cupti()
    assert asked == ["nvidia-cuda-cupti==13.0.85"]

    def fails(*_: object, **given: str) -> None:
        raise console.ToolError("no", "next", given["loses"])

    monkeypatch.setattr(cupti, "run", fails)
    (tmp_path / "lib/cupti.json").unlink()
    with pytest.raises(console.ToolError) as error:
        cupti.cupti()
    assert "lesson 16" in error.value.loses
