"""What a waiting cell is told about the set-up."""

from __future__ import annotations

from pathlib import Path

import pytest
from env import paths
from env.kernel_cache import progress
from env.kernel_cache.progress import Progress


@pytest.fixture(autouse=True)
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(paths, "GENERATED", tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (Progress("building the crates", 12, 80, 130), "building the crates: 12 of 80 crates, about 2 minutes"),
        (Progress("building the crates", 79, 80, 4), "building the crates: 79 of 80 crates, less than a minute"),
        (Progress("installing Rust", 0, None, 61), "installing Rust: about 1 minute"),
        (Progress("installing Rust", 40, 90, None, unit="MB"), "installing Rust: 40 of 90 MB"),
        (Progress("checking"), "checking"),
    ],
)
def test_a_line_for_people(told: Progress, text: str) -> None:
    assert told.text() == text


def test_only_a_set_up_that_runs_is_waited_for(generated: Path) -> None:
    assert progress.read() is None
    with progress.working():
        told = Progress("building the crates", 1, 2)
        progress.write(told)
        assert progress.read() == told
    assert progress.read() is None and not progress.file().exists()
    # Killed: nothing of it was tidied up.
    progress.write(told)
    assert progress.read() is None
    progress.file().write_text('{"phase": ')
    assert progress.read() is None


def test_a_failed_set_up_is_told_until_the_next_one() -> None:
    with pytest.raises(RuntimeError), progress.working():
        progress.write(Progress("building the crates", error="no network\nnext: connect it"))
        raise RuntimeError
    found = progress.read()
    assert found and found.error == "no network\nnext: connect it"
    with progress.working():
        assert progress.read().error is None
