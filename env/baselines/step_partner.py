"""What answers a program that times training steps beside those of Python's packages: their first losses, then samples in ms."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from env.baselines import cuda_clock


class StepPartner:
    """A package's class of its own has these; `make` gives a way whose `step` learns a batch and gives the loss before that."""

    # What the ways are called; a sample takes at least so many ms.
    names: dict[str, str]
    least_ms: float
    # What the first steps learn, one after the other and then from the first again.
    batches_of: Callable[[dict[str, Any]], list[tuple[torch.Tensor, ...]]]
    make: Callable[[str, dict[str, Any]], Any]

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ways: list[Any] = []
        self.batches: list[tuple[torch.Tensor, ...]] = []
        torch.set_float32_matmul_precision("high")

    def prepare(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Makes each way, and its first steps."""
        self.ways = []
        gc.collect()
        torch.cuda.empty_cache()
        torch._dynamo.reset()
        self.batches = self.batches_of(asked)
        answers = []
        for way in asked["ways"]:
            # A way that this machine cannot make is said, and is no reason to leave the others out.
            try:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                made = self.make(way, asked)
                count = len(self.batches)
                # Kept on the GPU until all are there; a graph's own memory is written again by the next step.
                losses = [made.step(*self.batches[at % count]).detach().clone() for at in range(asked["steps"])]
                peak = (torch.cuda.max_memory_allocated() - before) / 2**30
                told = {"losses": [loss.item() for loss in losses], "memory": peak}
                self.ways.append(made)
            except Exception as error:  # noqa: BLE001
                told = {"losses": [], "error": f"{type(error).__name__}: {error}"[:300]}
                self.ways.append(None)
            answers.append({"name": self.names[way], **told})
        return answers

    def answer(self, line: str) -> str | None:
        """Of a line of the program: what was prepared, or the ms of a step, the mean of a sample."""
        if line.startswith("{"):
            return json.dumps(self.prepare(json.loads(line)))
        if line.startswith("go "):
            way = self.ways[int(line.split()[1])]
            return f"{cuda_clock.step_sample(lambda: way.step(*self.batches[0]), self.least_ms)}"
        return None
