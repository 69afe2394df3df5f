"""The program that looks at the machine: built as the set-up decides, and again when that changes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from env import paths
from env.console import ToolError
from env.kernel_cache import recipe
from env.setup import gpulab_program

RUST = SimpleNamespace(version="rustc 1", crates=lambda *names: {"gpulab"})


@pytest.fixture
def built(tmp_path, monkeypatch) -> list[dict[str, str]]:
    """The settings of each build; nothing is built."""
    calls: list[dict[str, str]] = []

    def run(*_: object, env: dict[str, str], **__: object) -> None:
        calls.append(env)
        paths.PROGRAMS.mkdir(parents=True, exist_ok=True)
        (paths.PROGRAMS / "gpulab").touch()

    monkeypatch.setattr(paths, "GENERATED", tmp_path / "made")
    monkeypatch.setattr(paths, "PROGRAMS", tmp_path / "release")
    monkeypatch.setattr(gpulab_program, "run", run)
    monkeypatch.setattr(gpulab_program, "check_linker", lambda: None)
    monkeypatch.setattr(recipe, "sources_key", lambda: "sources")
    monkeypatch.delenv("GPULAB_QUICK_BUILD", raising=False)
    return calls


def test_it_is_built_once(built):
    for _ in range(2):
        gpulab_program.program(RUST)
    assert [one["CARGO_PROFILE_RELEASE_OPT_LEVEL"] for one in built] == ["0"]


def test_in_the_background_it_waits_until_nothing_else_runs(built, monkeypatch, capsys):
    loads, waited = [2.0, 0.7, 0.3], []
    monkeypatch.setattr(gpulab_program.os, "getloadavg", lambda: (loads[len(waited)], 0.0, 0.0))
    monkeypatch.setattr(gpulab_program.os, "nice", lambda by: waited.clear())
    monkeypatch.setattr(gpulab_program.time, "sleep", waited.append)
    gpulab_program.when_idle(RUST)
    assert len(waited) == 2 and len(built) == 1

    def fail(*_: object, **__: object) -> None:
        raise ToolError("no room", "make room")

    waited.clear()
    monkeypatch.setattr(recipe, "sources_key", lambda: "changed")
    monkeypatch.setattr(gpulab_program, "run", fail)
    gpulab_program.when_idle(RUST)
    assert "next: make room" in capsys.readouterr().out
