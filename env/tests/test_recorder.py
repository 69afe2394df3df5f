"""The two processes of a recorder understand each other, and its page says what its table does."""

from __future__ import annotations

import csv
import json
import sys
import types
from pathlib import Path

import pytest
from env import paths
from env.baselines import cutile_peer, pages, record_training, recorder
from env.baselines.asked import Asked, usable_cores
from env.console import ToolError

# Stands for the built example: asks for two topics, and takes samples of what there is.
PROGRAM = """
import json, sys
def ask(line):
    print(line, flush=True)
    return sys.stdin.readline().strip()
assert json.loads(ask("ready")) == {"names": ["torch"]}
assert [float(ask(line)) for line in ("go", "its own words\\ngo", "go")] == [1.0, 2.0, 3.0]
open(sys.argv[sys.argv.index("--out") + 1], "w").write(" ".join(sys.argv[1:]))
"""


class Partner:
    """Stands for a peer."""

    def __init__(self, _folder: Path) -> None:
        self.samples = 0

    def answer(self, line: str) -> str | None:
        if line == "ready":
            return json.dumps({"names": ["torch"]})
        self.samples += line == "go"
        return str(self.samples) if line == "go" else None


def record(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str, package: str = "json") -> Path:
    """Records with a program that is Python's, and a peer that needs `package`."""
    script = folder / "program"
    script.write_text(f"#!{sys.executable}\n{program}")
    script.chmod(0o755)
    monkeypatch.setattr(json, "__version__", "1", raising=False)
    monkeypatch.setitem(sys.modules, "env.baselines.a_peer", types.SimpleNamespace(Partner=Partner))
    made = recorder.Recorder("a", "gpulab-a", "a_peer", package, lambda table, facts: facts["command"])
    chosen = made.parser("").parse_args(["--program", str(script), "--out", str(folder / "a.csv")])
    made.record(chosen, lambda _folder: ["--quick"], ["topic"])
    return folder


def test_each_line_has_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record(tmp_path, monkeypatch, PROGRAM)
    said = (tmp_path / "a.csv").read_text().split()
    assert said[:4] == ["--out", str(tmp_path / "a.csv"), "--quick", "--talk"] and said[5:] == ["topic"]
    page = (tmp_path / "a.md").read_text()
    assert page == f"`python3 -m env.baselines.record_a topic --out {tmp_path.name}/a.csv`"


def test_a_peer_that_is_not_there_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    record(tmp_path, monkeypatch, "import sys\nassert '--talk' not in sys.argv", "no_such_package")
    assert "no_such_package: left out" in capsys.readouterr().err


# Stands for cuTile's program: it has something for one topic alone, and ends at a word that it does not know.
CUTILE = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[sys.argv.index("--talk") + 1])
for line in sys.stdin:
    if line.strip() == "go":
        answer = (folder / "ms").read_text()
    else:
        topic = json.loads(line)["topic"]
        assert topic != "unknown"
        answer = json.dumps({"name": "cuTile", "error": 0.001} if topic == "softmax" else {})
    print(answer, flush=True)
"""


def test_cutile_answers_the_recorders_own_lines(tmp_path: Path, capsys) -> None:
    script = tmp_path / "cutile"
    script.write_text(f"#!{sys.executable}\n{CUTILE}")
    script.chmod(0o755)
    (tmp_path / "ms").write_text("0.25")
    program = cutile_peer.Program(script, tmp_path)
    [job] = program.jobs({"topic": "softmax"})
    assert (job.name, job.error, job.sample()) == ("cuTile", 0.001, 0.25)
    assert program.jobs({"topic": "matmul_bf16"}) == []
    assert program.jobs({"topic": "unknown"}) == [] and "cuTile: left out at unknown" in capsys.readouterr().err


def test_a_program_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ToolError, match="not everything was timed\nnext: "):
        record(tmp_path, monkeypatch, "raise SystemExit(3)")


def test_the_page_names_the_fastest_rung_and_all_its_peers(tmp_path: Path) -> None:
    table = tmp_path / "ladders.csv"
    table.write_text(
        "topic,rung,dtype,size,metric,value,unit,peer,peer_value,ratio,samples,p10,p90\n"
        "sum,01_a,f32,7,bandwidth,10.00,GB/s,CUB,20.00,0.5000,31,9,11\n"
        "sum,02_b,f32,7,bandwidth,30.00,GB/s,CUB,20.00,1.5000,31,29,31\n"
        'sum,02_b,f32,7,bandwidth,30.00,GB/s,"cpu, 1 core",2.00,15.0000,31,29,31\n'
        "sum,03_c,f32,7,bandwidth,29.00,GB/s,CUB,20.00,1.4500,31,28,30\n"
    )
    (tmp_path / "ladders_errors.csv").write_text(
        "topic,rung,dtype,size,error,peer,peer_error,ratio\n"
        "sum,02_b,f32,7,1e-5,CUB,1e-7,100\n"
        'sum,03_c,f32,7,1e-5,"cpu, 1 core",1e-7,100\n'
        "sum,04_d,f32,7,1e-8,CUB,1e-9,10\n"
        "# sum at 8: failed\n"
    )
    page = pages.ladders(table, {"GPU": "H200", "commit": "abc"})
    assert "| sum | 7 | 02_b | 30.0 GB/s | CUB: 1.500; cpu, 1 core: 15.000 |" in page
    assert "| commit | abc |" in page
    assert "place of f32: sum 02_b." in page
    assert "01_a" not in page


def test_a_step_by_kernel_stands_beside_its_launches(tmp_path: Path) -> None:
    table = tmp_path / "candle_step.csv"
    table.write_text(
        "batch,what,metric,value,unit,ratio,samples,p10,p90\n"
        '8,"ours","memory at the peak",9.5,GiB,,1,9.5,9.5\n'
        '8,"PyTorch eager","last loss",9.87654,nats a token,,1,9.87654,9.87654\n'
        '8,"ours","launches: badd_bf16",280.00000,1,,1,280,280\n'
        '8,"ours","kernel: badd_bf16",7.25000,ms,,1,7.25,7.25\n'
        '8,"ours","a step",31.26000,ms,1.000,21,31.1,31.9\n'
        '8,"ours","tokens a second",262059.5,1/s,,1,262059.5,262059.5\n'
        '8,"PyTorch eager","a step",27.51000,ms,0.880,21,27.1,28\n'
        '8,"PyTorch eager","tokens a second",297782.6,1/s,,1,297782.6,297782.6\n'
    )
    page = pages.candle_step(table, {"GPU": "H200", "commit": "abc"})
    assert "| 8 | ours | 31.26 | 31.10 to 31.90 | 262,060 | 1.000 | 9.50 |" in page
    assert "| 8 | PyTorch eager | 27.51 | 27.10 to 28.00 | 297,783 | 0.880 |  |" in page
    assert "| 8 | PyTorch eager | last loss | 9.87654 |" in page
    assert "| badd_bf16 | 280 | 7.250 |" in page


@pytest.mark.parametrize("name", ["ladders", "decode", "training", "export"])
def test_the_recorded_page_is_that_of_its_table(name: str) -> None:
    """All but the facts, which say where and when that was."""
    folder = paths.ROOT / "results" / "h200"
    recorded = (folder / f"{name}.md").read_text(encoding="utf-8")
    made = getattr(pages, name)(folder / f"{name}.csv", {"GPU": "NVIDIA H200"})
    tables = [line for line in made.splitlines() if line.startswith("|")]
    assert len(tables) > 8 and [line for line in tables if line not in recorded] == []


TABLE = """precision,what,metric,value,unit,ratio,samples,p10,p90
f32,"ours, graph","step",238.5,µs,1.000,21,238.0,239.7
f32,"ours, launches, loss read each step","step",285.1,µs,1.196,21,283.8,291.0
f32,"candle","kernel fill",98.4,µs,1.000,1,98.4,98.4
f32,"candle","step",4583.3,µs,19.226,21,4548.6,4697.0
f32,"torch","memory at the peak",150.5,MiB,1.000,1,150.5,150.5
tf32,"ours, graph","epoch",0.054,s,1.000,1,0.054,0.054
"""


def test_steps_are_in_ms_epochs_in_s_and_peaks_in_mib(tmp_path: Path) -> None:
    table, file = tmp_path / "training.csv", tmp_path / "recorders.csv"
    table.write_text(TABLE, encoding="utf-8")
    facts = {"ended (UTC)": "2026-01-02T03:04:05Z", "commit": "abc", "GPU": "a GPU"}
    rows = record_training.rows(table, facts)
    found = [(row["experiment"], row["dtype"], float(row["value"]), row["unit"], row["metric"]) for row in rows]
    assert found == [
        ("step on a GPU: own kernels, CUDA graph", "f32", 0.2385, "ms", "time"),
        ("step on a GPU: candle", "f32", 4.5833, "ms", "time"),
        ("epoch on a GPU: own kernels, CUDA graph", "tf32", 0.054, "s", "epoch time"),
        ("a step's peak elsewhere: PyTorch, eager", "f32", 150.5, "MiB", "memory"),
    ]
    assert {row["lesson"] for row in rows} == {"20a_training_step", "21_training_memory"}
    record_training.append(file, rows[:1])
    record_training.append(file, rows[1:])
    with file.open(encoding="utf-8", newline="") as text:
        assert list(csv.DictReader(text)) == rows
    with (paths.ROOT / "results/h200/recorders.csv").open(encoding="utf-8", newline="") as text:
        assert csv.DictReader(text).fieldnames == record_training.FIELDS


def test_a_side_answers_with_numbers_or_is_named() -> None:
    cores = usable_cores()[:1]
    double = "import os, sys\nfor line in sys.stdin: print(float(line) * 2, os.environ['OMP_NUM_THREADS'], flush=True)"
    side = Asked([sys.executable, "-c", double], cores)
    assert side.ask("21") == [42.0, 1.0]
    side.close()
    with pytest.raises(ToolError, match="answered '1' with 'oh"):
        Asked([sys.executable, "-c", "print('oh')"], cores).ask("1")
