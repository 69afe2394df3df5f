"""PyTorch's side of `examples/record_candle_step`: the step of `gpt_step_torch`, eager and compiled, on the same parameters and tokens."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import torch

from env.baselines import cuda_clock
from env.baselines.gpt_step_torch import Trainer, tokens_of

NAMES = {"eager": "PyTorch eager", "compiled": "PyTorch compiled"}
# Of a sample.
LEAST_MS = 150.0


class Partner:
    """What answers the program's lines."""

    def __init__(self, _folder: Path) -> None:
        self.ways: list[Trainer | None] = []
        self.tokens = torch.empty(0)
        torch.set_float32_matmul_precision("high")

    def prepare(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Makes each way, and its first steps."""
        self.ways = []
        gc.collect()
        torch.cuda.empty_cache()
        torch._dynamo.reset()
        batch, answers = asked["batch"], []
        for way in asked["ways"]:
            # A way that this machine cannot make is said, and is no reason to leave the others out.
            try:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                made = Trainer(compiled=way == "compiled")
                losses = [made.step(tokens_of(batch, 100 + step)).item() for step in range(asked["steps"])]
                peak = (torch.cuda.max_memory_allocated() - before) / 2**30
                answers.append({"name": NAMES[way], "losses": losses, "memory": peak})
                self.ways.append(made)
            except Exception as error:  # noqa: BLE001
                answers.append({"name": NAMES[way], "losses": [], "error": f"{type(error).__name__}: {error}"[:300]})
                self.ways.append(None)
        self.tokens = tokens_of(batch, 100)
        return answers

    def sample(self, at: int) -> float:
        """The ms of a step, the mean of a sample."""
        way = self.ways[at]
        assert way is not None
        for _ in range(2):
            way.step(self.tokens)
        torch.cuda.synchronize()
        once = cuda_clock.timed(lambda: way.step(self.tokens), 2)
        return cuda_clock.timed(lambda: way.step(self.tokens), max(2, round(LEAST_MS / once)))

    def answer(self, line: str) -> str | None:
        """Of a line of the program."""
        if line.startswith("{"):
            return json.dumps(self.prepare(json.loads(line)))
        if line.startswith("go "):
            return f"{self.sample(int(line.split()[1]))}"
        return None
