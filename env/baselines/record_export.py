"""Times the exported CNN by ONNX Runtime through this crate and through its Python package, in turns; writes a table.

`python3 -m env.baselines.record_export` runs `examples/record_export`, and answers for the Python package: the same file, the same
options, inputs and outputs bound on the same side. `--program FILE` runs one that was built elsewhere.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from env.baselines import export_page
from env.paths import ROOT

PROGRAM = ["-p", "gpulab-onnx", "--example", "record_export", "--"]
CARGO = ["cargo", "run", "--quiet", "--release", *PROGRAM]


def answer(asked: dict, sessions: list) -> object:
    """What one line asks for."""
    from env.baselines import onnx_peer

    if "model" in asked:
        sessions += onnx_peer.sessions(asked["model"])
        return [session.provider for session in sessions]
    session = sessions[asked["session"]]
    if "set" in asked:
        session.set(asked["set"])
    elif "output" in asked:
        session.output(asked["output"])
    else:
        return session.calls(asked["calls"])
    return "ok"


def answers(program: subprocess.Popen) -> None:
    """Answers the program's lines until it says that it is done, or ends."""
    sessions: list = []
    for line in program.stdout:
        if line.startswith("{"):
            program.stdin.write(json.dumps(answer(json.loads(line), sessions)) + "\n")
            program.stdin.flush()


def main() -> int:
    """The program's exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m env.baselines.record_export", description=__doc__)
    parser.add_argument("--program", help="the built example, in place of cargo")
    parser.add_argument("--out", type=Path, default=ROOT / "results/export.csv", help="the table to write")
    parser.add_argument("--metrics", type=Path, help="also append rows for lesson 42 to this file")
    parser.add_argument("--batches", help="these batch sizes alone, such as 1,8,256")
    parser.add_argument("--commit", help="what the program was built from, where there is no git")
    chosen = parser.parse_args()
    room = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=room if room.is_dir() else None) as name:
        command = [*([chosen.program] if chosen.program else CARGO), "--out", str(chosen.out.resolve())]
        command += ["--metrics", str(chosen.metrics.resolve())] if chosen.metrics else []
        command += ["--batches", chosen.batches] if chosen.batches else []
        try:
            import onnxruntime

            print(f"onnxruntime {onnxruntime.__version__} for Python", file=sys.stderr)
            command += ["--talk", name]
        except ImportError as error:
            print(f"Python's onnxruntime: left out ({error})", file=sys.stderr)
        environment = {**os.environ, **({"GPULAB_COMMIT": chosen.commit} if chosen.commit else {})}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with subprocess.Popen(command, cwd=ROOT, text=True, env=environment, **pipes) as program:
            answers(program)
    if program.returncode == 0:
        chosen.out.with_suffix(".md").write_text(export_page.page(chosen.out, chosen.commit), encoding="utf-8")
    return program.returncode


if __name__ == "__main__":
    sys.exit(main())
