"""PyTorch's side of `examples/record_candle_step`: the step of `gpt_step_torch`, eager and compiled, on the same parameters and tokens."""

from __future__ import annotations

from typing import Any

import torch

from env.baselines.gpt_step_torch import Trainer, tokens_of
from env.baselines.step_partner import StepPartner

NAMES = {"eager": "PyTorch eager", "compiled": "PyTorch compiled"}


class Partner(StepPartner):
    """What answers the program's lines."""

    names = NAMES
    least_ms = 150.0

    def batches_of(self, asked: dict[str, Any]) -> list[tuple[torch.Tensor]]:
        return [(tokens_of(asked["batch"], 100 + step),) for step in range(max(1, asked["steps"]))]

    def make(self, way: str, _asked: dict[str, Any]) -> Trainer:
        return Trainer(compiled=way == "compiled")
