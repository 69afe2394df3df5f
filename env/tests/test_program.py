"""The program that looks at the machine: built as the set-up decides, and again when that changes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from env import paths
from env.kernel_cache import recipe
from env.setup import program

RUST = SimpleNamespace(version="rustc 1")


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
    monkeypatch.setattr(program, "run", run)
    monkeypatch.setattr(program, "check_linker", lambda: None)
    monkeypatch.setattr(recipe, "sources_key", lambda: "sources")
    monkeypatch.delenv("GPULAB_QUICK_BUILD", raising=False)
    return calls


def test_it_is_built_once(built):
    for _ in range(2):
        program.program(RUST)
    assert [set(one) for one in built] == [{"CARGO_TARGET_DIR"}]


def test_a_reader_gets_no_program_of_a_quick_build(built, monkeypatch):
    monkeypatch.setenv("GPULAB_QUICK_BUILD", "1")
    for _ in range(2):
        program.program(RUST)
    assert [one.get("CARGO_PROFILE_RELEASE_OPT_LEVEL") for one in built] == ["0"]
    monkeypatch.delenv("GPULAB_QUICK_BUILD")
    program.program(RUST)
    assert len(built) == 2 and "CARGO_PROFILE_RELEASE_OPT_LEVEL" not in built[1]
