"""The two processes of `env/baselines/record_ladders.py` understand each other."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
from env import baselines
from env.baselines import record_ladders
from env.baselines.record_ladders import ladder_page

# Stands for the built example: asks for two topics, and takes samples of what there is.
PROGRAM = """
import json, sys
def ask(line):
    print(line, flush=True)
    return sys.stdin.readline().strip()
answer = json.loads(ask(json.dumps({"topic": "sum"})))
assert answer == {"name": "torch", "error": 0.5, "others": [{"name": "other", "error": 0.5}]}, answer
assert [float(ask(line)) for line in ("go", "go", "go 1", "go")] == [1.0, 2.0, 1.0, 3.0]
assert json.loads(ask(json.dumps({"topic": "unknown"}))) == {}
"""


class Job:
    error = 0.5
    samples = 0

    def __init__(self, name: str, others: list[Job]) -> None:
        self.name, self.others = name, others

    def sample(self) -> float:
        self.samples += 1
        return float(self.samples)


def test_each_line_has_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    peer = types.ModuleType("torch_peer")
    peer.release = lambda: None
    peer.prepare = lambda asked, _folder: Job("torch", [Job("other", [])]) if asked["topic"] == "sum" else None
    monkeypatch.setattr(baselines, "torch_peer", peer, raising=False)
    assert record_ladders.run([sys.executable, "-c", PROGRAM], tmp_path) == 0


def test_a_program_that_fails_is_told(tmp_path: Path) -> None:
    assert record_ladders.run([sys.executable, "-c", "raise SystemExit(3)"], tmp_path) == 3


def test_the_page_names_the_fastest_rung_and_all_its_peers(tmp_path: Path) -> None:
    table = tmp_path / "ladders.csv"
    table.write_text(
        "topic,rung,dtype,size,metric,value,unit,peer,peer_value,ratio,samples,p10,p90\n"
        "sum,01_a,f32,7,bandwidth,10.00,GB/s,CUB,20.00,0.5000,31,9,11\n"
        "sum,02_b,f32,7,bandwidth,30.00,GB/s,CUB,20.00,1.5000,31,29,31\n"
        'sum,02_b,f32,7,bandwidth,30.00,GB/s,"cpu, 1 core",2.00,15.0000,31,29,31\n'
        "sum,03_c,f32,7,bandwidth,29.00,GB/s,CUB,20.00,1.4500,31,28,30\n"
    )
    errors = tmp_path / "errors.csv"
    errors.write_text(
        "topic,rung,dtype,size,error,peer,peer_error,ratio\n"
        "sum,02_b,f32,7,1e-5,CUB,1e-7,100\n"
        'sum,03_c,f32,7,1e-5,"cpu, 1 core",1e-7,100\n'
        "sum,04_d,f32,7,1e-8,CUB,1e-9,10\n"
        "# sum at 8: failed\n"
    )
    page = ladder_page.page(table, errors, {"GPU": "H200", "commit": "abc"})
    assert "| sum | 7 | 02_b | 30.0 GB/s | CUB: 1.500; cpu, 1 core: 15.000 |" in page
    assert "| commit | abc |" in page
    assert "place of f32: sum 02_b." in page
    assert "01_a" not in page
