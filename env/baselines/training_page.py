"""The page beside a table of training steps: what ran where, each precision's step beside its peers, and its kernels."""

from __future__ import annotations

import csv
from pathlib import Path

from env.baselines.ladder_page import machine

TEXT = """# A training step of the CNN on {gpu}

Written by `env/baselines/record_training.py`; nothing here is typed by hand.

| what | |
| --- | --- |
{facts}

One step at batch 128: images gathered on the GPU, forward, backward, AdamW. PyTorch (with its fused AdamW) runs in a second
process, from the same parameters on the same images, and takes its samples in turn with ours; `f32` is without TF32 on
both sides, bf16 and fp16 are autocast there. The losses of the first 20 steps are compared before a time counts.
[{table}]({table}) has all rows. candle's step
is what its users write (its operators, its AdamW, images on the GPU), in this process; it has rows where it was built
with CUDA. TF32 is allowed to its matrix products where it is to all.

| precision | what | µs a step | p10 to p90 | times ours | losses apart by |
| --- | --- | ---: | ---: | ---: | ---: |
{steps}

An epoch of 60,000 images, by the host's clock, with its history read at the end, and what the network then reads right of
10,000 others, after one epoch from random parameters. The images are generated digits (`Images::generated`), not MNIST.

| precision | seconds | test accuracy |
| --- | ---: | ---: |
{epochs}

One step in TF32 by kernel, in µs of a step (CUPTI): ours, candle's and PyTorch's longest:

| whose | kernel | µs |
| --- | --- | ---: |
{kernels}
"""


def page(table: Path, commit: str | None) -> str:
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    facts = machine(commit) | {
        "command": f"`python3 -m env.baselines.record_training --out {table.parent.name}/{table.name}`"
    }
    apart = {(row["precision"], row["what"]): row["value"] for row in rows if row["metric"].startswith("largest")}

    def step(row: dict[str, str]) -> str:
        spread = f"{float(row['p10']):.1f} to {float(row['p90']):.1f}"
        gap = apart.get((row["precision"], row["what"]), "")
        return f"| {row['precision']} | {row['what']} | {float(row['value']):.1f} | {spread} | {row['ratio']} | {gap} |"

    right = {row["precision"]: row["value"] for row in rows if row["metric"].startswith("test accuracy")}

    def epoch(row: dict[str, str]) -> str:
        return f"| {row['precision']} | {float(row['value']):.4f} | {float(right[row['precision']]):.4f} |"

    def kernel(row: dict[str, str]) -> str:
        return f"| {row['what']} | {row['metric'].removeprefix('kernel ')} | {float(row['value']):.1f} |"

    parts = [row for row in rows if row["precision"] == "tf32" and row["unit"] == "µs" and row["metric"] != "step"]
    ours = [row for row in parts if row["what"] == "ours"]

    def theirs(whose: str) -> list[dict[str, str]]:
        return [row for row in parts if row["what"] == whose and row["metric"].startswith("kernel")][:12]

    alone = [row for row in parts if row["metric"].startswith("AdamW")]
    return TEXT.format(
        gpu=f"an {facts['GPU']}",
        facts="\n".join(f"| {name} | {value} |" for name, value in facts.items()),
        table=table.name,
        steps="\n".join(step(row) for row in rows if row["metric"] == "step"),
        epochs="\n".join(epoch(row) for row in rows if row["metric"] == "epoch"),
        kernels="\n".join(kernel(row) for row in [*ours, *theirs("candle"), *theirs("torch"), *alone]),
    )
