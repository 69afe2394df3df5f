"""Planted faults, executed by the real kernel: the runner has to find each and say where it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOOD = 'println!("fine");'
PLOT = r"""
print!("EVCXR_BEGIN_CONTENT image/svg+xml\n{}\nEVCXR_END_CONTENT\n", "<svg xmlns='http://www.w3.org/2000/svg' \
width='20' height='20'><rect width='9' height='9'/></svg>");
"""
APPEND = r"""
let path = std::path::Path::new(&std::env::var("GPULAB_RESULTS").unwrap()).join("metrics.csv");
std::fs::write(&path, "time,lesson\nx,good\nx,good\nx,other\n").unwrap();
"""
CHECK = r"""
let (verdict, what) = if doubled(2) == 4 { ("PASS", "") } else { ("NOT YET", "doubled(2) is not 4") };
print!("EVCXR_BEGIN_CONTENT application/vnd.gpulab.verdict+json\n{}\nEVCXR_END_CONTENT\n", format!(
    r#"{{"exercise": "double", "verdict": "{verdict}", "what": "{what}", "hint": "add x to itself"}}"#));
"""
UNSAVED = r'println!("before\nNOT SAVED: planted\nthe disk is full\nnext: make room\nafter");'
RED = "fn doubled(x: i32) -> i32 { x }"
SOLVED = "fn doubled(x: i32) -> i32 { 2 * x }"
# The endless cell ends so; what is slow on a busy machine must not.
LIMIT_S = 60
KILL = r"""
let parent = std::os::unix::process::parent_id();
std::process::Command::new("kill").arg("-9").arg(parent.to_string()).status().unwrap();
"""
EXERCISE, CHECKED = {"exercise": "double"}, (CHECK, ["check"], {"check": "double"})


def exercise(source: str) -> tuple:
    return (source, ["exercise"], EXERCISE)


def expected(source: str, text: str) -> tuple:
    return (source, ["expected-error"], {"expected_error": text})


NOTEBOOKS: dict[str, tuple[list, str]] = {
    "good": (
        [
            GOOD,
            PLOT,
            APPEND,
            exercise(RED),
            CHECKED,
            expected("let a: i32 = 1.0;", "mismatched types"),
        ],
        f"// exercise: double\n{SOLVED}\n",
    ),
    "panics": ([GOOD, 'panic!("planted panic");', 'println!("never reached");'], ""),
    "loopvalue": ([GOOD, 'for i in 0..2 { println!("{i}"); }'], ""),
    "returns": ([GOOD, 'let x: i32 = "planted".parse()?;'], ""),
    "mistyped": ([GOOD, "let x: i32 = planted_name;"], ""),
    "noisy": ([GOOD, 'eprintln!("planted noise");'], ""),
    "succeeds": ([GOOD, expected("let x = 1;", "planted error")], ""),
    "othererror": ([GOOD, expected('panic!("another");', "planted error")], ""),
    "aborts": ([GOOD, "std::process::abort();"], ""),
    "kills": ([GOOD, KILL], ""),
    "endless": ([GOOD, "loop { std::thread::sleep(std::time::Duration::from_millis(50)); }"], ""),
    "unsaved": ([UNSAVED, GOOD], ""),
    "unsolved": ([exercise(SOLVED), CHECKED], f"// exercise: double\n{SOLVED}\n"),
    "staysred": ([exercise(RED), CHECKED], f"// exercise: double\n{RED}\n"),
    "nosolution": ([exercise(RED), CHECKED], f"// exercise: another\n{SOLVED}\n"),
}
# What the runner must say, beside the notebook's name, and where.
TOLD = {
    "panics": ("code cell 2 (id cell-2)", "panicked", "planted panic"),
    "loopvalue": ("code cell 2 (id cell-2)", "shows the value of a loop", "semicolon"),
    "returns": ("code cell 2 (id cell-2)", "stderr", "invalid digit"),
    "mistyped": ("code cell 2 (id cell-2)", "does not compile", "planted_name"),
    "noisy": ("code cell 2 (id cell-2)", "stderr", "planted noise"),
    "succeeds": ("code cell 2 (id cell-2)", "succeeded", "planted error"),
    "othererror": ("code cell 2 (id cell-2)", "without the expected text", "another"),
    "aborts": ("code cell 2 (id cell-2)", "ended the process", "signal: 6"),
    "kills": ("code cell 2 (id cell-2)", "kernel died", ""),
    "endless": ("code cell 2 (id cell-2)", f"did not finish within {LIMIT_S} s", ""),
    "unsaved": ("NOT SAVED: planted", "the disk is full", "next: make room"),
    "unsolved": ("code cell 2 (id cell-2)", "passes unsolved", "`double`"),
    "staysred": ("code cell 2 (id cell-2)", "stays red", "doubled(2) is not 4"),
    "nosolution": ("solutions/nosolution.rs has no section", "`another`, which is no exercise", ""),
}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "GPULAB_SET_UP": "1", **environment}
    environment.pop("NB", None)
    command = [sys.executable, "-m", "env.run", *arguments]
    return subprocess.run(command, check=False, env=environment, capture_output=True, text=True, timeout=3600)


@pytest.fixture(scope="module")
def ran(make, tmp_path_factory):
    """One run over all fixture notebooks, side by side: also proof that one failure does not stop the others."""
    folder, out = tmp_path_factory.mktemp("notebooks"), tmp_path_factory.mktemp("out")
    for name, (cells, solutions) in NOTEBOOKS.items():
        make(folder, name, *cells, solutions=solutions)
    arguments = ["--folder", str(folder), "--solutions", "--cell-limit", str(LIMIT_S), "--jobs", "4"]
    # A folder of its own makes it a recorded run, whose README needs the gpulab tool: not under test here.
    arguments += ["--out", str(out), "--no-provenance", "--html"]
    done = run(*arguments)
    summary = {one["notebook"]: one for one in json.loads((out / "summary.json").read_text())}
    return done, summary, out


@pytest.mark.parametrize("name", TOLD)
def test_planted_fault(ran, name):
    done, summary, _ = ran
    assert done.returncode == 1, done.stderr
    said = [block for block in done.stdout.split("\nFAILED ")[1:] if block.startswith(name)]
    assert said, f"{name} was called good:\n{done.stdout}"
    for text in TOLD[name]:
        assert text in "\n".join(said), "\n".join(said)
    assert all("next: " in block for block in said)
    assert summary[name]["failures"]


def test_good_notebook_passes(ran):
    done, summary, _ = ran
    good = summary["good"]
    assert good["failures"] == [] and "FAILED good" not in done.stdout
    assert (good["cells"], good["plots"], good["rows"]) == (6, 1, 2)
    assert good["red"] == ["double"] and good["green"] == ["double"]


def test_failing_cell_ends_its_notebook(ran):
    _, summary, out = ran
    assert summary["panics"]["cells"] == 2
    assert "never reached" not in json.dumps([c["outputs"] for c in read(out / "panics.ipynb")["cells"]])


def test_unsaved_figures_do_not_end_a_notebook(ran):
    done, summary, _ = ran
    told = next(block for block in done.stdout.split("\nFAILED ")[1:] if block.startswith("unsaved"))
    assert summary["unsaved"]["cells"] == 2 and "before" not in told and "after" not in told.split("next: ")[1]
    # The runner knows the crate's words.
    crate = ROOT / "support-crate/src/lesson.rs"
    assert 'println!("NOT SAVED: ' in crate.read_text(encoding="utf-8")


def test_copy_for_readers(ran):
    _, _, out = ran
    copy = read(out / "good.ipynb")
    text = json.dumps(copy)
    assert "NOT YET" in text and '"PASS"' not in text and "2 * x" not in text, "the solution is in the copy"
    assert all(cell["metadata"]["gpulab"]["seconds"] > 0 for cell in copy["cells"])
    assert (out / "plots/good-cell-2.svg").read_text().startswith("<svg")
    assert (out / "plots/good-cell-2.png").read_bytes().startswith(b"\x89PNG")
    assert "image/svg+xml" in (out / "good.html").read_text()


def test_no_kernel_is_left(ran):
    _, _, out = ran
    for environment in Path("/proc").glob("[0-9]*/environ"):
        try:
            assert f"GPULAB_RESULTS={out}" not in environment.read_text(errors="replace")
        except (OSError, ProcessLookupError):
            continue


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


def test_kernels_side_by_side_share_the_cores(monkeypatch: pytest.MonkeyPatch):
    from env.kernel_cache.candle import share_of_cores

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    # A recorded run has the machine for itself: candle counts the cores.
    assert share_of_cores(1) == {}
    assert share_of_cores(2) == {"CANDLE_NUM_THREADS": "3"}
    assert share_of_cores(16) == {"CANDLE_NUM_THREADS": "1"}


def test_no_path_of_this_machine():
    from env.run.exports import without_machine_paths as clean

    root, home = str(ROOT), str(Path.home())
    seen = {"text": [f"{root}/notebooks/a.rs:3, '{root}', {home}/.cargo/x", f"<b>{root}</b>"], "n": 1}
    assert clean(seen) == {"text": ["./notebooks/a.rs:3, '.', ~/.cargo/x", "<b>.</b>"], "n": 1}
    assert clean(f"{root}2/x {home}er") == f"{root}2/x {home}er".replace(f"{home}/", "~/")


def test_ctrl_c_ends_the_kernels(make, tmp_path):
    make(tmp_path, "00_one", GOOD, NOTEBOOKS["endless"][0][1])
    environment = {**os.environ, "GPULAB_SET_UP": "1"}
    arguments = ["--folder", str(tmp_path), "--out", str(tmp_path / "out"), "--no-provenance"]
    # A shell starts what runs in the background deaf to Ctrl-C, and so would be the runner.
    default = "signal.signal(signal.SIGINT, signal.SIG_DFL)"
    hears = f"import os, signal, sys; {default}; os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    process = subprocess.Popen(
        [sys.executable, "-c", hears, "-m", "env.run", *arguments],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    line = process.stdout.readline()
    assert "00_one" in line, line
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130 and "stopped" in output, output
    test_no_kernel_is_left((None, None, tmp_path / "out"))
    assert "fine" in (tmp_path / "out" / "00_one.ipynb").read_text()


def test_no_notebook_is_an_error(tmp_path):
    done = run("--folder", str(tmp_path))
    assert done.returncode == 2 and "no notebook" in done.stderr and "next: " in done.stderr


def test_unknown_notebook_is_an_error(make, tmp_path):
    make(tmp_path, "00_one", GOOD)
    done = run("07", "--folder", str(tmp_path))
    assert done.returncode == 2 and "`07`" in done.stderr and "00_one" in done.stderr


def test_unwritable_results_are_told_before_anything_runs(make, tmp_path):
    make(tmp_path, "00_one", GOOD)
    (tmp_path / "file").write_text("")
    done = run("--folder", str(tmp_path), "--out", str(tmp_path / "file" / "run"))
    assert done.returncode == 2 and "cannot write" in done.stderr and "next: " in done.stderr
    assert "00_one" not in done.stdout


def test_missing_kernel_is_told(make, tmp_path):
    make(tmp_path, "00_one", GOOD)
    program = (
        "import sys; from env.run import main, session; session.KERNEL = 'not-there'; sys.exit(main.main(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, "--folder", str(tmp_path), "--out", str(tmp_path), "--no-provenance"]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "`not-there` is not installed" in done.stdout and "make setup" in done.stdout
