"""Times a token of a GPT-2 (124 million parameters, bf16, batch 1) on this GPU beside PyTorch, and writes a table.

`python3 -m env.baselines.record_decode` has `examples/record_decode` time every plan of `nn::gpt::decode`, and in each round PyTorch
here (eager, and as a CUDA graph), on the same random weights, keys and values: the program says `go`, waits for the sample,
and goes on. Logits are held against PyTorch's in f64 first. `--program FILE` runs a program that was built elsewhere.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from env.baselines import ladder_page
from env.paths import ROOT

TEXT = """# A token of a GPT-2 on {gpu}

Written by `env/baselines/record_decode.py`; nothing here is typed by hand.

| what | |
| --- | --- |
{facts}

124 million parameters in bf16 (random), batch 1, context 512. A token reads every weight once, and the keys and values of
the positions before it: so many bytes ÷ the time, held against the rate of a device copy in the same run, is the last
column. A sample is 64 tokens; in each round every plan and PyTorch took one. Before, each plan's logits at position 511
were held against PyTorch's in f64: error is ‖given − exact‖ ÷ ‖exact‖. [{table}]({table}) has the rows, the ratios to
PyTorch's, and plans with other constants.

| plan | queued | kernels | µs a token | tokens/s | error | share of the copy rate |
| --- | --- | ---: | ---: | ---: | ---: | ---: |
{rows}
"""

CARGO = [
    "cargo",
    "run",
    "--quiet",
    "--release",
    "-p",
    "gpulab-nn",
    "--example",
    "record_decode",
    "--",
]
SHARED = Path("/dev/shm")


def page(table: Path, commit: str | None) -> str:
    """The page beside the table: plans with their own constants, and PyTorch."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    facts = ladder_page.machine(commit)
    facts["command"] = "`python3 -m env.baselines.record_decode --out results/h200/decode.csv`"
    lines = {}
    for row in rows:
        if row["constants"] in ("", row["plan"]):
            cells = [
                row[name]
                for name in ("plan", "queue", "kernels", "us_a_token", "tokens_per_s", "error", "share_of_copy")
            ]
            lines["| " + " | ".join(cells) + " |"] = None
    facts_text = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return TEXT.format(gpu=facts["GPU"], facts=facts_text, table=table.name, rows="\n".join(lines))


class Partner:
    """PyTorch's side of the program's lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peers = None

    def answer(self, line: str) -> str:
        """What it times, to `ready`; the µs of a sample, to `go 0`."""
        from env.baselines import decode_torch

        if line == "ready":
            self.peers = decode_torch.Peers(self.folder)
            return json.dumps({"names": self.peers.names, "errors": self.peers.errors})
        return f"{self.peers.sample(int(line.removeprefix('go '))):.4f}"


def run(command: list[str], folder: Path) -> int:
    """Runs the program, and answers its lines; its exit status."""
    partner = Partner(folder)
    with subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as program:
        for line in program.stdout:
            program.stdin.write(partner.answer(line.strip()) + "\n")
            program.stdin.flush()
    return program.returncode


def main() -> int:
    """1 when something could not be timed."""
    parser = argparse.ArgumentParser(prog="python3 -m env.baselines.record_decode", description=__doc__)
    parser.add_argument("--program", help="the built example, in place of cargo")
    parser.add_argument("--out", type=Path, default=ROOT / "results/decode.csv", help="the table to write")
    parser.add_argument("--tunings", action="store_true", help="other constants of the kernels too")
    parser.add_argument("--plans", help="these plans alone, such as fused,halves")
    parser.add_argument("--commit", help="what the program was built from, where there is no git")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=SHARED if SHARED.is_dir() else None) as name:
        command = [*([chosen.program] if chosen.program else CARGO), "--out", str(chosen.out.resolve())]
        command += ["--tunings"] if chosen.tunings else []
        command += ["--plans", chosen.plans] if chosen.plans else []
        try:
            import torch

            print(f"PyTorch {torch.__version__}", file=sys.stderr)
            command += ["--talk", name]
        except ImportError:
            print("PyTorch: left out, it is not there", file=sys.stderr)
        if run(command, Path(name)) != 0:
            print("error: not everything was timed\nnext: run this on a machine with an NVIDIA GPU", file=sys.stderr)
            return 1
    chosen.out.with_suffix(".md").write_text(page(chosen.out, chosen.commit), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
