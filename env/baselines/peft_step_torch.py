"""peft's side of `examples/record_lora_step`: a step of LoRA on the same weights, adapters and tokens, as its users make it.

The base is frozen in bf16, attention is SDPA, AdamW is fused, gradients are clipped at a norm of 1. Ways: `eager` has adapters in f32
under autocast to bf16, as Trainer(bf16=True) has them, `bf16` has them in bf16 as well; `compiled` is `eager` under torch.compile, and
`graphs` is `bf16` under torch.compile(mode="reduce-overhead"), with CUDA graphs.
"""

from __future__ import annotations

import contextlib
import gc
import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from env.baselines import cuda_clock

NAMES = {
    "eager": "peft, eager, autocast",
    "bf16": "peft, eager, adapters in bf16",
    "compiled": "peft, torch.compile, autocast",
    "graphs": "peft, torch.compile with CUDA graphs, adapters in bf16",
}
# Of a sample.
LEAST_MS = 60.0


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
        self.count = sum(parameter.numel() for parameter in self.learning)
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


class Partner:
    """What answers the program's lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ways: list[Way | None] = []
        self.batches: list[tuple[torch.Tensor, torch.Tensor]] = []
        torch.set_float32_matmul_precision("high")

    def prepare(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """Makes each way, and its first steps."""
        self.ways = []
        gc.collect()
        torch.cuda.empty_cache()
        raw = bytearray((self.folder / "tokens.bin").read_bytes())
        shape = (asked["batches"], asked["batch"], asked["length"] + 1)
        tokens = torch.frombuffer(raw, dtype=torch.int32).view(shape).long().cuda()
        self.batches = [(batch[:, :-1].contiguous(), batch[:, 1:].contiguous()) for batch in tokens]
        answers = []
        for way in asked["ways"]:
            # A way that this machine cannot make is said, and is no reason to leave the others out.
            try:
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                made = Way(self.folder, way, asked)
                # Kept on the GPU until all are there; a graph's own memory is written again by the next step.
                losses = [
                    made.step(*self.batches[step % len(self.batches)]).detach().clone()
                    for step in range(asked["steps"])
                ]
                peak = (torch.cuda.max_memory_allocated() - before) / 2**30
                answers.append(
                    {
                        "name": NAMES[way],
                        "losses": [loss.item() for loss in losses],
                        "memory": peak,
                        "learning": made.count,
                    }
                )
                self.ways.append(made)
            except Exception as error:  # noqa: BLE001
                answers.append({"name": NAMES[way], "losses": [], "error": f"{type(error).__name__}: {error}"[:300]})
                self.ways.append(None)
        return answers

    def sample(self, at: int) -> float:
        """The ms of a step, the mean of a sample."""
        way = self.ways[at]
        assert way is not None
        batch = self.batches[0]
        for _ in range(2):
            way.step(*batch)
        torch.cuda.synchronize()
        once = cuda_clock.timed(lambda: way.step(*batch), 2)
        return cuda_clock.timed(lambda: way.step(*batch), max(2, round(LEAST_MS / once)))

    def answer(self, line: str) -> str | None:
        """Of a line of the program."""
        if line.startswith("{"):
            return json.dumps(self.prepare(json.loads(line)))
        if line.startswith("go "):
            return f"{self.sample(int(line.split()[1]))}"
        return None
