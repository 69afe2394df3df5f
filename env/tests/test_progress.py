"""What a waiting cell is told about the set-up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from env import paths
from env.console import Step, ToolError
from env.kernel_cache import set_up_progress
from env.kernel_cache.set_up_progress import Counter, Progress


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
    assert set_up_progress.read() is None
    with set_up_progress.working():
        told = Progress("building the crates", 1, 2)
        set_up_progress.write(told)
        assert set_up_progress.read() == told
    assert set_up_progress.read() is None and not set_up_progress.file().exists()
    # Killed: nothing of it was tidied up.
    set_up_progress.write(told)
    assert set_up_progress.read() is None
    set_up_progress.file().write_text('{"phase": ')
    assert set_up_progress.read() is None


def test_a_failed_set_up_is_told_until_the_next_one() -> None:
    with pytest.raises(ToolError), set_up_progress.working():
        raise ToolError("no network", "connect it")
    found = set_up_progress.read()
    assert found and found.error == "no network\nnext: connect it"
    with set_up_progress.working():
        assert set_up_progress.read().error is None
    with pytest.raises(KeyboardInterrupt), set_up_progress.working():
        raise KeyboardInterrupt
    assert set_up_progress.read() is None


def test_two_set_ups_wait_for_each_other(generated: Path) -> None:
    code = "import sys; from pathlib import Path; from env import paths; paths.GENERATED = Path(sys.argv[1])\n"
    code += (
        "from env.kernel_cache import set_up_progress\nwith set_up_progress.working(): print('in', flush=True); input()"
    )
    command = [sys.executable, "-c", code, str(generated)]
    with subprocess.Popen(command, cwd=paths.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdin and first.stdout and first.stdout.readline() == "in\n"
        assert set_up_progress.read() is not None
        command[2] = code.replace("; input()", "")
        with subprocess.Popen(command, cwd=paths.ROOT, stdout=subprocess.PIPE, text=True) as second:
            assert second.stdout and "another one is at work" in second.stdout.readline()
            assert second.poll() is None
            first.stdin.write("\n")
            first.stdin.flush()
            assert second.stdout.read().endswith("in\n") and second.wait(10) == 0
        first.wait(10)
    assert not set_up_progress.file().exists()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [0.0]
    monkeypatch.setattr(set_up_progress.time, "monotonic", lambda: now[0])
    return now


def test_the_estimate_follows_the_measured_curve(clock: list[float]) -> None:
    # Nine crates are done in half of the time; the last one takes the other half.
    counter = Counter("building", 10, expected_s=100, later_s=20, curve=(0, 0, 9, 9, 10))
    assert counter.seconds_left() == pytest.approx(120)
    for number in range(1, 10):
        clock[0] = number * 10.0
        counter.add(f"crate{number}")
    clock[0] += 5
    counter.add("crate9")
    # Half of it took 90 s here, so that the whole takes 180, and what comes later 1.8 times as long, too.
    assert counter.seconds_left() == pytest.approx(90 - 5 + 36)
    assert counter.progress().text() == "building: 9 of 10 crates, about 2 minutes"
    clock[0] += 600
    assert counter.seconds_left() == pytest.approx(36)
    assert "the last one crate9" in counter.text()
    counter.add("crate10", "crate11")
    assert (counter.progress().done, counter.progress().total) == (10, 10)


def test_an_interrupted_build_goes_on_counting(tmp_path: Path, clock: list[float]) -> None:
    deps = tmp_path / "release/deps"
    deps.mkdir(parents=True)
    for number, name in enumerate(["liba-1.rmeta", "libb_c-2.so", "libb_c-3.rlib", "main-4"]):
        (deps / name).touch()
        os.utime(deps / name, (number, number))
    assert set_up_progress.built(tmp_path) == ["a", "b_c"] and set_up_progress.built(tmp_path, since=1) == ["b_c"]
    counter = Counter("building", 4, look=lambda: set_up_progress.built(tmp_path))
    assert counter.progress().done == 2 and counter.seconds_left() is None
    other = tmp_path / "x86_64-unknown-linux-gnu/debug/deps"
    other.mkdir(parents=True)
    (other / "libd-1.rmeta").touch()
    clock[0] = 10.0
    counter.tell()
    # A quarter took ten seconds, and another quarter is left.
    assert counter.seconds_left() == pytest.approx(10) and counter.progress().done == 3


def test_a_build_that_no_one_measured_is_counted_only(capsys: pytest.CaptureFixture[str]) -> None:
    counter = Counter("building", None)
    counter.add("a")
    assert counter.seconds_left() is None and counter.progress().text() == "building: 1 crates"
    with set_up_progress.working(), counter.told(Step("x")):
        assert set_up_progress.read().text() == "building: 1 crates"
