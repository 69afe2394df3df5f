"""PyTorch's side of `examples/record_training`: the same network, eager and as a CUDA graph."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F

from env.baselines.cuda_clock import timed, warmed_up

SAMPLE_MS = 8.0
WARM_UP_MS = 30.0
SHAPES = [(32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (128, 9216), (128,), (10, 128), (10,)]
AUTOCAST = {"bf16": torch.bfloat16, "f16": torch.float16}


class Net(torch.nn.Module):
    def __init__(self, numbers: torch.Tensor) -> None:
        super().__init__()
        sizes = [math.prod(shape) for shape in SHAPES]
        parts = numbers.split(sizes)
        self.all = torch.nn.ParameterList(
            [torch.nn.Parameter(part.clone().view(shape)) for part, shape in zip(parts, SHAPES, strict=True)]
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w1, b1, w2, b2, w3, b3, w4, b4 = self.all
        x = F.relu(F.conv2d(x, w1, b1))
        x = F.max_pool2d(F.relu(F.conv2d(x, w2, b2)), 2)
        return F.linear(F.relu(F.linear(x.flatten(1), w3, b3)), w4, b4)


class Step:
    """A training step on images that lie on the GPU: the batch is gathered there, and its loss stays there."""

    def __init__(self, data: Data, batch: int, precision: str, graph: bool) -> None:
        self.data, self.batch, self.at = data, batch, 0
        self.dtype = AUTOCAST.get(precision)
        self.scaler = torch.amp.GradScaler("cuda") if precision == "f16" else None
        self.net = Net(data.parameters)
        self.optimiser = torch.optim.AdamW(
            self.net.parameters(),
            lr=1e-3,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=0.01,
            capturable=graph,
            fused=True,
        )
        self.index = torch.zeros(batch, dtype=torch.long, device="cuda")
        self.loss = torch.zeros((), device="cuda")
        self.graph = self.captured() if graph else None

    def work(self) -> None:
        x = self.data.pixels[self.index].view(-1, 1, 28, 28).float() / 255
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=self.dtype, enabled=self.dtype is not None):
            loss = F.cross_entropy(self.net(x).float(), self.data.labels[self.index])
        if self.scaler is None:
            loss.backward()
            self.optimiser.step()
        else:
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimiser)
            self.scaler.update()
        self.loss.copy_(loss.detach())

    def captured(self) -> torch.cuda.CUDAGraph:
        """Warm-up steps come before a capture, so parameters and moments are put back afterwards."""
        warmed_up(self.work)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.work()
        with torch.no_grad():
            for parameter, first in zip(self.net.all, Net(self.data.parameters).all, strict=True):
                parameter.copy_(first)
                for moment in self.optimiser.state[parameter].values():
                    moment.zero_()
        return graph

    def __call__(self) -> None:
        if (self.at + 1) * self.batch > len(self.data.order):
            self.at = 0
        self.index.copy_(self.data.order[self.at * self.batch : (self.at + 1) * self.batch])
        self.at += 1
        if self.graph is None:
            self.work()
        else:
            self.graph.replay()


class Data:
    def __init__(self, folder: Path) -> None:
        def load(name: str, dtype: torch.dtype, width: int) -> torch.Tensor:
            path = folder / f"{name}.bin"
            size = path.stat().st_size // width
            return torch.from_file(str(path), shared=False, size=size, dtype=dtype).cuda()

        self.pixels = load("pixels", torch.uint8, 1).view(-1, 784)
        self.labels = load("labels", torch.uint8, 1).long()
        self.order = load("order", torch.int32, 4).long()
        self.parameters = load("parameters", torch.float32, 4)


class Timed:
    """A way to make a step, with the losses of its first ones."""

    def __init__(self, name: str, step: Step, steps: int) -> None:
        self.name, self.step = name, step
        self.losses: list[float] = []
        self.parts: list[tuple[str, float]] = []
        for _ in range(steps):
            step()
            self.losses.append(step.loss.item())
        self.repeats = 20
        few = timed(self.step, self.repeats)
        self.repeats, self.warm_ups = max(5, round(SAMPLE_MS / few)), max(5, round(WARM_UP_MS / few))

    def sample(self) -> float:
        """One sample, after steps that do not count: the GPU has worked for another process."""
        timed(self.step, self.warm_ups)
        return timed(self.step, self.repeats)


def kernels(step: Step) -> list[tuple[str, float]]:
    """The kernels of a step, longest first: name, with how often it runs, and µs of the step."""
    steps = 5
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(steps):
            step()
        torch.cuda.synchronize()
    rows = [row for row in profile.key_averages() if row.self_device_time_total > 0]
    rows.sort(key=lambda row: -row.self_device_time_total)
    return [(f"kernel {row.key[:90]} x{row.count / steps:g}", row.self_device_time_total / steps) for row in rows]


def optimisers(data: Data) -> list[tuple[str, float]]:
    """AdamW alone, in the three ways that PyTorch has: µs of a call, the median of some."""
    found = []
    for name, options in [
        ("AdamW, a kernel an operation", {"foreach": False}),
        ("AdamW, lists of tensors", {"foreach": True}),
        ("AdamW, fused", {"fused": True}),
    ]:
        parameters = list(Net(data.parameters).all)
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimiser = torch.optim.AdamW(parameters, lr=1e-3, **options)
        found.append((name, statistics.median(timed(optimiser.step, 10) * 1e3 for _ in range(15))))
    return found


def prepare(data: Data, asked: dict) -> list[Timed]:
    precision, batch, steps = asked["precision"], asked["batch"], asked["steps"]
    allowed = precision != "f32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True
    make: Callable[[bool], Step] = lambda graph: Step(data, batch, precision, graph)
    ways = [Timed("torch", make(graph=False), steps)]
    if precision == "tf32":
        ways[0].parts = [*kernels(ways[0].step), *optimisers(data)]
    if precision != "f16":  # its loss scale is read by the host
        ways.append(Timed("torch, graph", make(graph=True), steps))
    return ways


class Partner:
    """What answers the program's lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data: Data | None = None
        self.ways: list[Timed] = []

    def answer(self, line: str) -> str:
        """The ms of a sample to `go 0`, else the ways that will be timed."""
        if line.startswith("go "):
            return f"{self.ways[int(line[3:])].sample():.6f}"
        self.data = self.data or Data(self.folder)
        self.ways = prepare(self.data, json.loads(line))
        return json.dumps([{"name": way.name, "losses": way.losses, "parts": way.parts} for way in self.ways])
