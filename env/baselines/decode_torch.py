"""PyTorch's side of `examples/record_decode`: a token of a GPT-2 in bf16 with a KV cache, eager and as a CUDA graph."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from env.baselines import cuda_clock

LAYERS, HEADS, WIDTH, CONTEXT = 12, 12, 768, 1024
# As in the example: the position that is compared with f64, the token there, and the tokens of a sample.
AT, TOKEN, TOKENS = 511, 4242, 64
WARM_UP = 8
DTYPES = {"BF16": torch.bfloat16, "F32": torch.float32}


def tensors(path: Path) -> dict[str, torch.Tensor]:
    """What a safetensors file holds: a length, JSON, numbers."""
    data = bytearray(path.read_bytes())
    length = int.from_bytes(data[:8], "little")
    found = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            flat = torch.frombuffer(
                data, dtype=DTYPES[entry["dtype"]], offset=8 + length + begin, count=math.prod(entry["shape"])
            )
            assert end - begin == flat.numel() * flat.element_size()
            found[name] = flat.view(entry["shape"])
    return found


class Model:
    """A GPT-2, its weights as `torch.nn.Linear` keeps them, and the keys and values of one text."""

    def __init__(self, weights: dict[str, torch.Tensor], caches: torch.Tensor, dtype: torch.dtype) -> None:
        turn = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
        self.weights = {
            name: (tensor.t() if name.endswith(turn) else tensor).to("cuda", dtype).contiguous()
            for name, tensor in weights.items()
        }
        # Layer; keys or values; head; position; number.
        self.caches = caches.view(LAYERS, 2, 1, HEADS, CONTEXT, WIDTH // HEADS).to("cuda", dtype)
        self.token = torch.tensor([TOKEN], device="cuda")
        self.logits = torch.empty(0)

    def linear(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def norm(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return F.layer_norm(x, (WIDTH,), self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], 1e-5)

    def step(self, position: int) -> None:
        """Reads `token` at that position; leaves the logits, and the next token in its place."""
        x = F.embedding(self.token, self.weights["wte.weight"]) + self.weights["wpe.weight"][position : position + 1]
        for layer in range(LAYERS):
            q, k, v = self.linear(self.norm(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn").view(3, 1, HEADS, 1, -1)
            # Keys and values are kept in bf16, in f64 too.
            keys, values = self.caches[layer]
            keys[:, :, position : position + 1] = k.bfloat16()
            values[:, :, position : position + 1] = v.bfloat16()
            there = slice(0, position + 1)
            attended = F.scaled_dot_product_attention(q, keys[:, :, there], values[:, :, there])
            x = x + self.linear(attended.view(1, WIDTH), f"h.{layer}.attn.c_proj")
            units = F.gelu(self.linear(self.norm(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc"), approximate="tanh")
            x = x + self.linear(units, f"h.{layer}.mlp.c_proj")
        self.logits = F.linear(self.norm(x, "ln_f"), self.weights["wte.weight"])
        self.token.copy_(self.logits.argmax(-1))


def timed(work: Callable[[int], None]) -> float:
    """The µs of a token, the mean of a sample, after a few that do not count."""
    for call in range(WARM_UP):
        work(call)
    numbers = iter(range(TOKENS))
    return cuda_clock.timed(lambda: work(next(numbers)), TOKENS) * 1e3


class Peers:
    """What is timed, by name, and how far its logits are off."""

    @torch.inference_mode()
    def __init__(self, folder: Path) -> None:
        weights = tensors(folder / "model.safetensors")
        raw = bytearray((folder / "cache.bin").read_bytes())
        caches = torch.frombuffer(raw, dtype=torch.bfloat16)
        exact = Model(weights, caches, torch.float64)
        exact.step(AT)
        reference = exact.logits.flatten()
        (folder / "exact.bin").write_bytes(reference.cpu().numpy().tobytes())
        self.model = Model(weights, caches, torch.bfloat16)
        self.model.step(AT)
        off = (self.model.logits.flatten().double() - reference).norm() / reference.norm()
        self.errors = [off.item()]
        self.names = ["torch eager"]
        self.work: list[Callable[[int], None]] = [lambda call: self.model.step(AT + 1 - TOKENS // 2 + call)]
        self.graph = torch.cuda.CUDAGraph()
        cuda_clock.warmed_up(lambda: self.model.step(AT))
        torch.cuda.synchronize()
        with torch.cuda.graph(self.graph):
            self.model.step(AT)
        self.model.token.fill_(TOKEN)
        self.graph.replay()
        self.errors.append(((self.model.logits.flatten().double() - reference).norm() / reference.norm()).item())
        self.names.append("torch CUDA graph")
        self.work.append(lambda _call: self.graph.replay())

    @torch.inference_mode()
    def sample(self, at: int) -> float:
        """One sample of the one with that number."""
        return timed(self.work[at])


class Partner:
    """What answers the program's lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.peers: Peers | None = None

    def answer(self, line: str) -> str:
        """What it times, to `ready`; the µs of a sample, to `go 0`."""
        if line == "ready":
            self.peers = Peers(self.folder)
            return json.dumps({"names": self.peers.names, "errors": self.peers.errors})
        return f"{self.peers.sample(int(line.removeprefix('go '))):.4f}"
