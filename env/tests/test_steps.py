"""How `make test` reads the tools' output, and that nothing hangs or is left behind."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from env.ci import checks, disk, processes, steps

ROOT = Path(__file__).resolve().parents[2]
CARGO = """\
     Running unittests src/lib.rs (target/debug/deps/gpulab-cfc71ba98c68b524)

running 3 tests
test launch::the_limit_is_named ... ok
test launch::slow ... ignored, takes minutes
test launch::writer ... ignored, the other process of wrong
test launch::writer ... ok
test launch::wrong ... FAILED

successes:

---- launch::the_limit_is_named stdout ----
some line

successes:
    launch::the_limit_is_named

failures:

---- launch::wrong stdout ----
thread 'launch::wrong' panicked at src/lib.rs:3:4:
left is not right

test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s

     Running tests/gpu.rs (target/debug/deps/gpu-cfc71ba98c68b524)

running 1 test
test the_four_steps ... ok

successes:

---- the_four_steps stdout ----
skipped: needs an NVIDIA GPU (no GPU was found:)

   Doc-tests gpulab

running 2 tests
test support-crate/src/bench.rs - bench::Bench (line 12) ... ok
test support-crate/src/gpu.rs - gpu::Gpu (line 7) - compile ... ok
"""


def test_cargo_tests_are_counted_one_by_one():
    found = checks.of_cargo(CARGO)
    assert checks.count(found) == "3 passed, 1 failed, 2 skipped"
    by_name = {check.name: check for check in found}
    assert by_name["tests/gpu.rs: the_four_steps"].note == "needs an NVIDIA GPU (no GPU was found:)"
    assert "left is not right" in by_name["unittests src/lib.rs: launch::wrong"].note
    assert by_name["unittests src/lib.rs: launch::slow"].note == "takes minutes"
    assert checks.of_cargo("error: could not compile `gpulab`") == []


def test_pytest_report(tmp_path):
    (tmp_path / "test_x.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0, 'planted'\n"
        "def test_c(): pytest.skip('no GPU')\n@pytest.fixture\ndef f(): 1 / 0\ndef test_d(f): pass\n"
    )
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "test_x.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    found = checks.of_pytest(report)
    assert checks.count(found) == "1 passed, 2 failed, 1 skipped"
    assert any("planted" in check.note for check in found) and any(check.note == "no GPU" for check in found)
    assert checks.of_pytest(tmp_path / "none.xml") == []


def test_each_notebook_and_each_colour_of_an_exercise_counts(tmp_path):
    one = {
        "notebook": "02_a",
        "failures": [],
        "stopped": False,
        "exercises": ["x", "y"],
        "red": ["x"],
        "green": ["x", "y"],
    }
    bad = {"notebook": "03_b", "failures": [{}], "stopped": False, "exercises": [], "red": [], "green": []}
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps([one, bad]))
    found = checks.of_notebooks(summary)
    assert checks.count(found) == "4 passed, 2 failed, 0 skipped"
    assert {check.name for check in found if check.state == "failed"} == {"02_a: y red as shipped", "03_b"}


def test_a_command_that_hangs_is_ended_with_its_children(tmp_path):
    flag = tmp_path / "child"
    child = f"sleep 2; touch {flag}"
    status, output = processes.Commands(tmp_path / "logs").run(
        "hang", ["sh", "-c", f"echo begun; ({child}) & wait"], 0.5
    )
    assert status == -1 and "begun" in output and "ended after" in output
    time.sleep(2)
    assert not flag.exists()


def test_nothing_starts_after_a_stop(tmp_path):
    runner = processes.Commands(tmp_path)
    assert runner.run("fine", ["echo", "x"], 5) == (0, "x\n")
    runner.stop()
    assert runner.run("late", ["echo", "x"], 5) == (-1, "stopped")


def test_in_ci_a_skip_is_a_failure(monkeypatch):
    monkeypatch.setattr(steps, "IN_CI", False)
    assert steps._skip("x", "why")[0][0].state == "skipped"
    monkeypatch.setattr(steps, "IN_CI", True)
    assert steps._skip("x", "why")[0][0].state == "failed"


class Answers:
    """Commands that are not run: each gives the same answer."""

    def __init__(self, status: int, output: str) -> None:
        self.answer = (status, output)

    def run(self, *_: object, **__: object) -> tuple[int, str]:
        return self.answer


@pytest.mark.parametrize("step", [steps.rust_tests, steps.python_tests, steps.notebooks])
@pytest.mark.parametrize("status", [0, 1])
def test_a_step_that_finds_nothing_fails(step, status, monkeypatch, tmp_path):
    monkeypatch.setattr(steps, "RUN", tmp_path)
    found, _ = step(Answers(status, "nothing here"))
    assert [check.state for check in found] == ["failed"]


def test_without_a_browser_the_reason_is_told(monkeypatch):
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    monkeypatch.setattr(steps, "PYTHON", sys.executable)
    monkeypatch.setattr(steps, "IN_CI", False)
    monkeypatch.setenv("GPULAB_SET_UP", "1")
    found, _ = steps.browser(processes.Commands(Path(steps.RUN / "test")))
    assert found[0].state == "skipped" and "no Chromium" in found[0].note and "next: " in found[0].note


FRONT = "import sys, time; from env.ci import __main__ as test, steps; from env.ci.checks import Check\n"


def test_the_last_line_counts_and_failures_are_shown():
    program = FRONT + (
        "def good(c): return [Check('a')], ''\n"
        "def bad(c): return [Check('b', 'failed')], 'planted output'\n"
        "def broken(c): raise OSError(28, 'No space left on device')\n"
        "steps.packages = steps.set_up = good; steps.RUST = [bad]; steps.RUST_AFTER_PACKAGES = [good]\n"
        "steps.RUST_AFTER_SET_UP = [broken]; steps.PYTHON_AFTER_SET_UP = [good]\n"
        "sys.exit(test.Test().run())"
    )
    folder = ROOT
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    assert done.returncode == 1 and lines[-1] == "4 passed, 2 failed, 0 skipped", done.stdout + done.stderr
    assert "planted output" in done.stdout and "No space left" in done.stdout


@pytest.mark.parametrize(("lost", "count"), [("packages", "4 passed, 2 failed"), ("set_up", "3 passed, 3 failed")])
def test_without_the_set_up_what_needs_it_fails(lost, count):
    program = FRONT + (
        "def bad(c): return [Check('lost', 'failed')], 'planted'\n"
        "def good(c): return [Check('a')], ''\n"
        f"steps.packages = steps.set_up = good; steps.{lost} = bad\n"
        "steps.RUST = steps.RUST_AFTER_PACKAGES = steps.RUST_AFTER_SET_UP = steps.PYTHON_AFTER_SET_UP = [good]\n"
        "sys.exit(test.Test().run())"
    )
    folder = ROOT
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines()[-1] == f"{count}, 0 skipped", done.stdout + done.stderr
    assert f"not run: the step {lost.replace('_', '-')} failed" in done.stdout


def test_a_full_disk_ends_it_at_once():
    program = (
        "from env.ci import __main__ as test, disk; disk.NEEDED = disk.LEAST = 1 << 60; raise SystemExit(test.main())"
    )
    folder = ROOT
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "0 passed, 1 failed, 0 skipped\n")
    said, step = done.stderr.splitlines()
    assert said.startswith("error: ") and "GB are free" in said and step.startswith("next: make room")


def test_what_is_built_already_needs_no_room(tmp_path, monkeypatch):
    build = tmp_path / "target" / "debug"
    build.mkdir(parents=True)
    (build / "one").write_bytes(b"x" * 1_000_000)
    (build / "two").hardlink_to(build / "one")
    (build / "gone").symlink_to("nothing")
    assert 1_000_000 <= disk.held(tmp_path / "target") < 1_100_000
    assert disk.held(tmp_path / ".venv") == 0
    free = disk.shutil.disk_usage(tmp_path)._replace(free=2_500_000)
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda place: free)
    monkeypatch.setattr(disk, "LEAST", 1_000_000)
    monkeypatch.setattr(disk, "NEEDED", 3_400_000)
    assert disk.missing(tmp_path) is None
    monkeypatch.setattr(disk, "NEEDED", 3_700_000)
    assert "next: make room" in str(disk.missing(tmp_path))
    # However much is there, a little more is written.
    monkeypatch.setattr(disk, "NEEDED", 0)
    monkeypatch.setattr(disk, "LEAST", 2_600_000)
    assert "next: " in str(disk.missing(tmp_path))
