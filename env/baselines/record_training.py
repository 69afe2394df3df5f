"""Times the CNN's training step on this GPU beside PyTorch, in turns, and writes a table and its page.

`python3 -m env.baselines.record_training` runs `examples/record_training`, and answers for PyTorch: eager, and as a CUDA graph, from
the same parameters on the same images, with the same TF32 setting. `--program FILE` runs one that was built elsewhere.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from env.baselines import training_page, training_rows
from env.paths import ROOT

PROGRAM = ["-p", "gpulab-nn", "--example", "record_training", "--"]
CARGO = ["cargo", "run", "--quiet", "--release", *PROGRAM]


def answers(program: subprocess.Popen, folder: Path) -> None:
    """Answers the program's lines until it ends."""
    from env.baselines import cnn_peer

    data, ways = None, []
    for line in program.stdout:
        if line.startswith("go "):
            answer = f"{ways[int(line[3:])].sample():.6f}"
        else:
            data = data or cnn_peer.Data(folder)
            ways = cnn_peer.prepare(data, json.loads(line))
            answer = json.dumps([{"name": way.name, "losses": way.losses, "parts": way.parts} for way in ways])
        program.stdin.write(answer + "\n")
        program.stdin.flush()


def main() -> int:
    """The program's exit status."""
    parser = argparse.ArgumentParser(prog="python3 -m env.baselines.record_training", description=__doc__)
    parser.add_argument("--program", help="the built example, in place of cargo")
    parser.add_argument("--out", type=Path, default=ROOT / "results/training.csv", help="the table to write")
    parser.add_argument("--commit", help="what the program was built from, where there is no git")
    parser.add_argument(
        "--metrics", type=Path, help="also append steps and epochs to this file (a recorders.csv), as rows of lesson 20"
    )
    parser.add_argument("--quick", action="store_true", help="few samples: does it work?")
    chosen = parser.parse_args()
    room = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=room if room.is_dir() else None) as name:
        command = [chosen.program] if chosen.program else CARGO
        command += ["--out", str(chosen.out.resolve())] + (["--quick"] if chosen.quick else [])
        try:
            import torch

            print(f"PyTorch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}", file=sys.stderr)
            command += ["--talk", name]
        except ImportError:
            print("PyTorch: left out, it is not there", file=sys.stderr)
        with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
            answers(program, Path(name))
    if program.returncode == 0:
        chosen.out.with_suffix(".md").write_text(training_page.page(chosen.out, chosen.commit), encoding="utf-8")
        if chosen.metrics:
            facts = training_page.machine(chosen.commit)
            new = training_rows.rows(chosen.out, facts["ended (UTC)"], facts["commit"], facts["GPU"])
            training_rows.append(chosen.metrics, new)
    return program.returncode


if __name__ == "__main__":
    sys.exit(main())
