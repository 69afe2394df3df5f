"""peft's side of `examples/record_lora_step`: a step of LoRA on the same weights, adapters and tokens, as its users make it.

The base is frozen in bf16, attention is SDPA, AdamW is fused, gradients are clipped at a norm of 1. Ways: `eager` has adapters in f32
under autocast to bf16, as Trainer(bf16=True) has them, `bf16` has them in bf16 as well; `compiled` is `eager` under torch.compile, and
`graphs` is `bf16` under torch.compile(mode="reduce-overhead"), with CUDA graphs.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from env.baselines.step_partner import StepPartner

NAMES = {
    "eager": "peft, eager, autocast",
    "bf16": "peft, eager, adapters in bf16",
    "compiled": "peft, torch.compile, autocast",
    "graphs": "peft, torch.compile with CUDA graphs, adapters in bf16",
}


class Way:
    """A model with its adapters and optimizer."""

    def __init__(self, folder: Path, way: str, asked: dict[str, Any]) -> None:
        import peft
        from transformers import AutoModelForCausalLM

        base = AutoModelForCausalLM.from_pretrained(
            folder / "base", dtype=torch.bfloat16, attn_implementation="sdpa"
        ).cuda()
        base.config.use_cache = False
        in_f32 = way in ("eager", "compiled")
        self.model = peft.PeftModel.from_pretrained(
            base, folder / "adapter", is_trainable=True, autocast_adapter_dtype=in_f32
        ).train()
        self.learning = [parameter for parameter in self.model.parameters() if parameter.requires_grad]
        for parameter in self.learning:
            parameter.data = parameter.data.to(torch.float32 if in_f32 else torch.bfloat16)
        self.clip = asked["clip"]
        self.adamw = torch.optim.AdamW(
            self.learning, lr=asked["rate"], betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0, fused=True
        )
        self.autocast = (lambda: torch.autocast("cuda", dtype=torch.bfloat16)) if in_f32 else contextlib.nullcontext
        modes = {"compiled": "default", "graphs": "reduce-overhead"}
        self.call = torch.compile(self.loss, mode=modes[way]) if way in modes else self.loss

    def loss(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean over all tokens, from logits in f32, as transformers computes it."""
        logits = self.model(input_ids=tokens, use_cache=False).logits
        return F.cross_entropy(logits.float().view(-1, logits.shape[-1]), targets.view(-1))

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss before the update."""
        with self.autocast():
            loss = self.call(tokens, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.learning, self.clip)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        return loss


class Partner(StepPartner):
    """What answers the program's lines."""

    names = NAMES
    least_ms = 60.0

    def batches_of(self, asked: dict[str, Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
        raw = bytearray((self.folder / "tokens.bin").read_bytes())
        shape = (asked["batches"], asked["batch"], asked["length"] + 1)
        tokens = torch.frombuffer(raw, dtype=torch.int32).view(shape).long().cuda()
        return [(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()) for batch in tokens]

    def make(self, way: str, asked: dict[str, Any]) -> Way:
        return Way(self.folder, way, asked)
