"""PyTorch's training step of GPT-2 (124 million parameters) beside `examples/gpt_step`: the same parameters, tokens and AdamW.

`python3 -m env.baselines.gpt_step_torch [--losses losses.txt] [--out gpt_step_torch.csv] [--batches 8,32] [--seconds 90]` first compares
the losses of 20 steps with those that the example has written, then times eager and compiled steps: bf16 autocast, SDPA, fused AdamW,
clipping, `zero_grad(set_to_none=True)`, `set_float32_matmul_precision("high")`, a vocabulary of 50,304 rows. Times are by CUDA events.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from env.baselines.cuda_clock import timed

LAYERS, HEADS, WIDTH, ROWS, VOCABULARY, CONTEXT = 12, 12, 768, 50304, 50257, 1024
STEPS = 20
PEAK = 989e12
OPERATIONS = 6.0 * 124_439_808


def unit(seed: int, at: np.ndarray) -> np.ndarray:
    """As `unit` in the crate's gpt_step/shape.rs: numbers in [-1, 1)."""
    with np.errstate(over="ignore"):
        z = (np.uint64(seed << 40) + at.astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(40)).astype(np.float32) / np.float32(1 << 23) - np.float32(1)


def tokens_of(batch: int, seed: int) -> torch.Tensor:
    """As `random_tokens`: texts of context + 1 tokens, few of which are frequent."""
    x = (unit(seed, np.arange(batch * (CONTEXT + 1))) + np.float32(1)) / np.float32(2)
    ids = np.minimum((x * x * x * np.float32(VOCABULARY)).astype(np.int64), VOCABULARY - 1)
    return torch.from_numpy(ids).reshape(batch, CONTEXT + 1).cuda()


class Block(nn.Module):
    """A layer; the names are those of transformers."""

    def __init__(self) -> None:
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.attn_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.c_fc, self.mlp_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Attention, then the MLP."""
        batch, length, _ = x.shape
        parts = self.c_attn(self.ln_1(x)).split(WIDTH, dim=2)
        q, k, v = (part.view(batch, length, HEADS, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn_proj(y.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.mlp_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    """GPT-2 with the table as its last matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(ROWS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The mean loss; rows that fill the table up count as no token."""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, ROWS), targets.reshape(-1))

    def matrices(self) -> list[nn.Parameter]:
        """In the order of `GptShape::tensors`, layer by layer, with the other parameters of a layer behind."""
        names = [self.wte.weight, self.wpe.weight]
        for block in self.h:
            names += [block.c_attn.weight, block.attn_proj.weight, block.c_fc.weight, block.mlp_proj.weight]
        return names

    @torch.no_grad()
    def start(self, seed: int) -> None:
        """As `GptShape::start`."""
        at = 0
        vectors = 13 * WIDTH
        for number, parameter in enumerate(self.matrices()):
            in_layer = number - 2
            if in_layer >= 4 and in_layer % 4 == 0:
                at += vectors
            residual = 1 / (2 * LAYERS) ** 0.5 if in_layer >= 0 and in_layer % 4 in (1, 3) else 1.0
            spread = np.float32(0.02 * 3**0.5 * residual)
            numbers = unit(seed, np.arange(at, at + parameter.numel())) * spread
            parameter.copy_(torch.from_numpy(numbers).reshape(parameter.shape))
            at += parameter.numel()
        for name, parameter in self.named_parameters():
            if parameter.dim() == 1:
                parameter.fill_(1.0 if "ln_" in name and name.endswith("weight") else 0.0)


class Trainer:
    """A model with its optimizer."""

    def __init__(self, compiled: bool) -> None:
        self.model = Gpt().cuda()
        self.model.start(1)
        self.model = self.prepare(self.model)
        decay = [p for p in self.model.parameters() if p.dim() > 1]
        others = [p for p in self.model.parameters() if p.dim() == 1]
        groups = [{"params": decay, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
        self.adamw = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.call = torch.compile(self.model) if compiled else self.model

    def prepare(self, model: nn.Module) -> nn.Module:
        """What is done to the model before the optimizer sees its parameters."""
        return model

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        """The loss before the update."""
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = self.call(tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous())
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.adamw.step()
        self.adamw.zero_grad(set_to_none=True)
        return loss


def compare(path: Path) -> None:
    """Losses of 20 steps at 8 × 1024 beside those in the file."""
    trainer = Trainer(compiled=False)
    own = [trainer.step(tokens_of(8, 100 + step)).item() for step in range(STEPS)]
    print("losses of PyTorch, eager: " + " ".join(f"{x:.4f}" for x in own))
    if path.exists():
        theirs = [float(line.split()[0]) for line in path.read_text(encoding="utf-8").splitlines()]
        print("losses of gpt_step:       " + " ".join(f"{x:.4f}" for x in theirs))
        print(f"losses differ by at most {max(abs(a - b) for a, b in zip(own, theirs, strict=True)):.4f}")


def lesson_row(name: str, batch: int, metric: str, value: str) -> str:
    """A row of lesson 22a, as `results/h200/recorders.csv` has them."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    commit, machine = os.environ.get("GPULAB_COMMIT", "unknown"), torch.cuda.get_device_name()
    return f'{now},{commit},22a_gpt_step,"{name}",cuda,{machine},bf16,{batch * CONTEXT},{metric},{value}'


def measure(batch: int, compiled: bool, rows: list[str], lesson: list[str]) -> str:
    """One line: a step's time and the memory at the peak."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    begin = time.time()
    trainer = Trainer(compiled)
    tokens = tokens_of(batch, 100)
    for _ in range(4):
        trainer.step(tokens)
    torch.cuda.synchronize()
    ready = time.time() - begin
    samples = [timed(lambda: trainer.step(tokens), 4) for _ in range(15)]
    ms, low, high = (float(np.percentile(samples, share)) for share in (50, 10, 90))
    peak = torch.cuda.max_memory_allocated() / 2**30
    name = "PyTorch compiled" if compiled else "PyTorch eager"
    rate = batch * CONTEXT / ms * 1e3
    used = OPERATIONS * batch * CONTEXT / ms * 1e3 / PEAK * 100
    figures = f"{ms:.5f},ms,{len(samples)},{low:.5f},{high:.5f}"
    rows.append(f"{batch},{name},a step,{figures}")
    lesson.append(lesson_row(f"GPT-2 step: {name}", batch, "time", figures))
    lesson.append(lesson_row(f"GPT-2 memory: {name}", batch, "memory", f"{peak:.5f},GiB,1,{peak:.5f},{peak:.5f}"))
    for what, value, unit_of in (
        ("tokens a second", rate, "1/s"),
        ("model FLOP utilisation", used, "%"),
        ("memory at the peak", peak, "GiB"),
    ):
        rows.append(f"{batch},{name},{what},{value:.5f},{unit_of},1,{value:.5f},{value:.5f}")
    return f"  {name:20} batch {batch}: {ms:8.3f} ms {rate:9.0f} tokens/s {used:5.1f} %, peak {peak:.2f} GiB (ready in {ready:.0f} s)"


def main() -> None:
    """Losses, then times."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--losses", type=Path, default=Path("losses.txt"))
    made.add_argument("--out", type=Path, default=Path("gpt_step_torch.csv"))
    made.add_argument("--batches", default="8,32")
    made.add_argument("--seconds", type=float, default=90)
    chosen = made.parse_args()
    begin = time.time()
    torch.set_float32_matmul_precision("high")
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    compare(chosen.losses)
    rows, lesson = ["batch,plan,what,value,unit,samples,p10,p90"], []
    batches = [int(text) for text in chosen.batches.split(",")]
    for compiled in (False, True):
        for batch in batches:
            if time.time() - begin > chosen.seconds:
                print("no time was left for more")
                return
            torch._dynamo.reset()
            print(measure(batch, compiled, rows, lesson), flush=True)
            chosen.out.write_text("\n".join(rows) + "\n", encoding="utf-8")
            Path(f"{chosen.out}.lesson").write_text("\n".join(lesson) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
