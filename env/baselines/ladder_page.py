"""The page beside a table of ladders: what ran where, and each ladder's fastest rung against its peers."""

from __future__ import annotations

import csv
import datetime
import subprocess
from pathlib import Path

from env.paths import ROOT

TEXT = """# The ladders on {gpu}

Written by `env/baselines/record_ladders.py`; nothing here is typed by hand.

| what | |
| --- | --- |
{facts}

[{table}]({table}) has every rung at several sizes beside its peers, one row a rung, size and peer;
[{errors}]({errors}) says how far each result is from f64 (‖given − exact‖ ÷ ‖exact‖), beside the peers'. A sum
is one number, and its error in part luck. Off by more than twice what a library is, and by more than a unit in the last
place of f32: {beyond}.

All took turns: in every round one sample (1 ms, or one call that is longer) of each rung, of the device copy, of
cuBLAS (f32 without TF32, bf16 with sums in f32), of CUB, of one core of the host's CPU for the sum, and of PyTorch's
eager operations in a second process, on the same random arrays. A ratio is ours ÷ peer in speed: the median of the
rounds' own ratios. For RoPE and for residual + RMS norm, PyTorch runs the chain of operations of Hugging Face's Llama;
`torch F.rms_norm` is the shorter chain of an addition and that function. For flash attention it runs FlashAttention-2
and cuDNN. Calls are queued one by one, as programs do it: at a million elements the host's own part counts, PyTorch's
most.

| topic | size | fastest rung | speed | times the speed of |
| --- | --- | --- | ---: | --- |
{rows}
"""


def answer(*command: str) -> str:
    """A program's first line; empty where it is not there."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.partition("\n")[0].strip()


def machine(commit: str | None) -> dict[str, str]:
    """Where and when this is."""
    facts = {
        "commit": commit or answer("git", "rev-parse", "--short", "HEAD") or "unknown",
        "ended (UTC)": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    name, _, driver = answer("nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader").partition(", ")
    facts |= {"GPU": name or "unknown", "driver": driver or "unknown"}
    try:
        import torch

        facts |= {"PyTorch": torch.__version__, "CUDA": torch.version.cuda}
    except ImportError:
        facts["PyTorch"] = "not there"
    return facts


def beyond(errors: Path) -> str:
    """The rungs whose error is beyond twice a library's, and beyond a unit in the last place; the CPU is no library."""
    with errors.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.DictReader(file) if not row["topic"].startswith("#")]
    found = [
        f"{row['topic']} {row['rung']}"
        for row in rows
        if not row["peer"].startswith("cpu") and float(row["error"]) > max(2 * float(row["peer_error"]), 2.0**-23)
    ]
    return ", ".join(dict.fromkeys(found)) or "none"


def page(table: Path, errors: Path, facts: dict[str, str]) -> str:
    """The page's text."""
    with table.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    best: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        of_size = best.setdefault((row["topic"], row["size"]), [])
        if of_size and float(row["value"]) > float(of_size[0]["value"]):
            of_size.clear()
        if not of_size or row["rung"] == of_size[0]["rung"]:
            of_size.append(row)
    lines = []
    for (topic, size), of_size in best.items():
        first = of_size[0]
        peers = "; ".join(f"{row['peer']}: {float(row['ratio']):.3f}" for row in of_size)
        speed = f"{float(first['value']):.1f} {first['unit']}"
        lines.append(f"| {topic} | {size} | {first['rung']} | {speed} | {peers} |")
    listed = "\n".join(f"| {what} | {text} |" for what, text in facts.items())
    names = {"table": table.name, "errors": errors.name}
    return TEXT.format(gpu=f"an {facts['GPU']}", facts=listed, rows="\n".join(lines), beyond=beyond(errors), **names)
