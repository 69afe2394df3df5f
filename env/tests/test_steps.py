"""How `make test` reads the tools' output, and that nothing hangs or is left behind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from env.ci import checks, disk, processes, steps

ROOT = Path(__file__).resolve().parents[2]
# As nextest writes it.
NEXTEST = """\
<testsuites name="nextest-run" tests="3" failures="1"><testsuite name="gpulab::gpu" tests="3">
<testcase name="the_limit" classname="gpulab::gpu" time="0.1"><system-out>ok</system-out></testcase>
<testcase name="wrong" classname="gpulab::gpu" time="0.1">
<failure message="thread panicked" type="test failure">panicked at src/lib.rs:3:4: left is not right</failure>
<system-out>skipped: a failure is a failure</system-out></testcase>
<testcase name="four_steps" classname="gpulab::gpu" time="0.1"><system-out>
test four_steps ...</system-out><system-err>skipped: needs an NVIDIA GPU (no GPU was found:)
</system-err></testcase>
</testsuite></testsuites>
"""


def test_rust_tests_are_counted_one_by_one(tmp_path):
    report = tmp_path / "junit.xml"
    report.write_text(NEXTEST)
    found = checks.of_junit(report)
    assert checks.count(found) == "1 passed, 1 failed, 1 skipped"
    by_name = {check.name: check for check in found}
    assert by_name["gpulab::gpu: four_steps"].note == "needs an NVIDIA GPU (no GPU was found:)"
    assert "left is not right" in by_name["gpulab::gpu: wrong"].note


@pytest.mark.parametrize("found", ["cargo-nextest", None])
def test_without_nextest_cargo_runs_the_tests(found, monkeypatch, tmp_path):
    """Each build is then one check; what is ignored has its reason either way."""
    monkeypatch.setattr(steps, "RUN", tmp_path)
    monkeypatch.setattr(steps, "TARGET", tmp_path)
    monkeypatch.setattr(steps.shutil, "which", lambda name: name if name != "cargo-nextest" else found)
    asked: list[list[str]] = []
    monkeypatch.setattr(Answers, "run", lambda self, name, command, *_, **__: asked.append(command) or (0, ""))
    checked, _ = steps.rust_tests(Answers(0, ""))
    # nextest that leaves no report has shown nothing.
    assert [check.state for check in checked].count("failed") == (len(steps.BUILDS) if found else 0)
    assert sum("nextest" in command for command in asked) == (len(steps.BUILDS) if found else 0)
    assert {check.note for check in checked if check.state == "skipped"} == {"needs an NVIDIA GPU"}
    assert all("--doc" in command for command in asked[1::2]) and len(asked) == 2 * len(steps.BUILDS)


def test_each_crate_of_ours_keeps_its_checks():
    """Else it would be compiled as a dependency: without, and at length."""
    settings = steps.SETTINGS.read_text()
    crates = re.findall(r'\[package\]\nname = "(.+)"', "".join(file.read_text() for file in manifests()))
    for name in crates:
        assert re.search(rf"^{name} = .*debug-assertions = true, overflow-checks = true", settings, re.MULTILINE), name
    assert len(crates) > 10


def manifests() -> list[Path]:
    # The device library is no member: it is compiled for GPUs alone.
    members = [file for file in ROOT.glob("crates/*/Cargo.toml") if "[workspace]" not in file.read_text()]
    return [ROOT / "support-crate" / "Cargo.toml", *members]


def test_pytest_report(tmp_path):
    (tmp_path / "test_x.py").write_text(
        "import pytest\ndef test_a(): pass\ndef test_b(): assert 0, 'planted'\n"
        "def test_c(): pytest.skip('no GPU')\n@pytest.fixture\ndef f(): 1 / 0\ndef test_d(f): pass\n"
    )
    report = tmp_path / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", "test_x.py"]
    subprocess.run(command, cwd=tmp_path, capture_output=True, check=False)
    found = checks.of_junit(report)
    assert checks.count(found) == "1 passed, 2 failed, 1 skipped"
    assert any("planted" in check.note for check in found) and any(check.note == "no GPU" for check in found)
    assert checks.of_junit(tmp_path / "none.xml") == []


def test_each_notebook_and_each_colour_of_an_exercise_counts(tmp_path):
    one = {
        "notebook": "02_a",
        "failures": [],
        "stopped": False,
        "exercises": ["x", "y"],
        "red": ["x"],
        "green": ["x", "y"],
    }
    failure = {"cell_id": "sum", "text": "the sums differ\nnext: look"}
    bad = {"notebook": "03_b", "failures": [failure], "stopped": False, "exercises": ["z"], "red": [], "green": []}
    summary = tmp_path / "summary.json"
    summary.write_text(json.dumps([one, bad]))
    found = checks.of_notebooks(summary)
    assert checks.count(found) == "4 passed, 4 failed, 0 skipped"
    failed = {check.name: check.note for check in found if check.state == "failed"}
    # What went wrong is told with the name: the runner's output is long, and shown by its end.
    assert failed.pop("03_b") == "cell sum: the sums differ\nnext: look"
    assert failed == {
        "02_a: y red as shipped": "",
        "03_b: z red as shipped": "the lesson failed",
        "03_b: z green with its solution": "the lesson failed",
    }


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


@pytest.mark.parametrize("step", [steps.python_tests, steps.notebooks, steps.colab, steps.without_nvrtc, steps.pages])
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


FRONT = """
import sys
from env.ci import __main__ as test, steps
from env.ci.checks import Check
def good(c): return [Check('a')], ''
def other(c): return [Check('o')], ''
def bad(c): return [Check('b', 'failed')], 'planted output'
def broken(c): raise OSError(28, 'No space left on device')
def last(c): return [Check('last')], ''
"""


def ended(program: str) -> tuple[int, str]:
    command = [sys.executable, "-c", FRONT + program]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    return done.returncode, done.stdout + done.stderr


def test_the_last_line_counts_and_failures_are_shown():
    status, said = ended("sys.exit(test.Test().run([bad, good], [broken, other]))")
    assert status == 1 and said.splitlines()[-1] == "2 passed, 2 failed, 0 skipped", said
    assert "planted output" in said and "No space left" in said


@pytest.mark.parametrize(("lost", "count"), [("bad", "2 passed, 2 failed"), ("good", "4 passed, 0 failed")])
def test_without_what_it_needs_a_step_fails(lost, count):
    """And what a failed step is needed by waits for it, in the other row too; what comes after any end runs."""
    first = f"steps.NEEDS = {{last: [{lost}]}}; steps.AFTER = {{other: [{lost}]}}\n"
    rows = "[last, other], [bad, good]" if lost == "bad" else "[last, other], [good, broken_no]"
    program = f"def broken_no(c): return [Check('n')], ''\n{first}sys.exit(test.Test().run({rows}))"
    _, said = ended(program)
    assert said.splitlines()[-1] == f"{count}, 0 skipped", said
    assert ("not run: the step bad failed" in said) == (lost == "bad")


def test_no_step_waits_for_one_that_waits_for_it():
    """In all rows as they are, with and without cargo."""
    for after in (steps.AFTER, {**steps.AFTER, steps.formatted: [steps.kernel]}):
        rows = [[*steps.CARGO, *steps.MORE], list(steps.SET_UP), list(steps.BESIDE)]
        done: set = set()
        while any(rows):
            ready = [row for row in rows if row and {*steps.NEEDS.get(row[0], []), *after.get(row[0], [])} <= done]
            assert ready, [row[0].__name__ for row in rows if row]
            done.add(ready[0].pop(0))
        assert len(done) > 15


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
