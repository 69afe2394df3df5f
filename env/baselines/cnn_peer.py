"""PyTorch's side of `examples/record_training`: the same network, eager, as a CUDA graph, channels last, compiled."""

from __future__ import annotations

import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F

from env.baselines.cuda_clock import timed, warmed_up

SAMPLE_MS = 8.0
WARM_UP_MS = 30.0
SHAPES = [(32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (128, 9216), (128,), (10, 128), (10,)]
AUTOCAST = {"bf16": torch.bfloat16, "f16": torch.float16}
# A loss of the first steps may differ from eager's by so much: other kernels add in another order, and round elsewhere.
APART = {"f32": 0.002, "tf32": 0.03, "bf16": 0.06, "f16": 0.06}
# All of this process, from its first line on: a way that would take longer to make is left out.
SECONDS = 75.0


@dataclass(frozen=True)
class Way:
    """How PyTorch is asked for the step: options of `torch.compile`, a graph of the whole step captured by hand."""

    name: str
    graph: bool = False
    channels_last: bool = False
    options: dict[str, bool] | None = None
    precisions: tuple[str, ...] = ("f32", "tf32", "bf16")
    seconds: float = 3.0


# GradScaler's scale is read by the host: no graph of an f16 step.
WAYS = [
    Way("torch", precisions=("f32", "tf32", "bf16", "f16")),
    Way("torch, graph", graph=True),
    Way("torch, channels_last, graph", graph=True, channels_last=True),
    # "max-autotune" without its search over the constants of each single kernel, which takes longer than all else here.
    Way(
        "torch, max-autotune, graph",
        graph=True,
        channels_last=True,
        options={"max_autotune": True},
        precisions=("tf32", "bf16"),
        seconds=20.0,
    ),
]


class Net(torch.nn.Module):
    def __init__(self, numbers: torch.Tensor, channels_last: bool = False) -> None:
        super().__init__()

        def parameter(part: torch.Tensor, shape: tuple[int, ...]) -> torch.nn.Parameter:
            made = part.clone().view(shape)
            last = channels_last and len(shape) == 4
            return torch.nn.Parameter(made.to(memory_format=torch.channels_last) if last else made)

        parts = numbers.split([math.prod(shape) for shape in SHAPES])
        self.all = torch.nn.ParameterList(parameter(part, shape) for part, shape in zip(parts, SHAPES, strict=True))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        w1, b1, w2, b2, w3, b3, w4, b4 = self.all
        x = F.relu(F.conv2d(x, w1, b1))
        x = F.max_pool2d(F.relu(F.conv2d(x, w2, b2)), 2)
        return F.linear(F.relu(F.linear(x.flatten(1), w3, b3)), w4, b4)


class Step:
    """A training step on images that lie on the GPU: the batch is gathered there, and its loss stays there."""

    def __init__(self, data: Data, batch: int, precision: str, way: Way) -> None:
        self.data, self.batch, self.at = data, batch, 0
        self.dtype = AUTOCAST.get(precision)
        self.scaler = torch.amp.GradScaler("cuda") if precision == "f16" else None
        self.net = Net(data.parameters, way.channels_last)
        self.loss_of = torch.compile(self.forward, dynamic=False, options=way.options) if way.options else self.forward
        self.optimiser = torch.optim.AdamW(
            self.net.parameters(),
            lr=1e-3,
            betas=(0.9, 0.999),
            eps=1e-8,
            weight_decay=0.01,
            capturable=way.graph,
            fused=True,
        )
        self.index = torch.zeros(batch, dtype=torch.long, device="cuda")
        self.loss = torch.zeros((), device="cuda")
        self.graph = self.captured() if way.graph else None

    def forward(self, pixels: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        x = pixels.view(-1, 1, 28, 28).float() / 255
        return F.cross_entropy(self.net(x).float(), labels)

    def work(self) -> None:
        # Gathered outside of what is compiled: a graph of torch.compile would copy all images into its input.
        pixels, labels = self.data.pixels[self.index], self.data.labels[self.index]
        self.optimiser.zero_grad(set_to_none=True)
        with torch.autocast("cuda", dtype=self.dtype, enabled=self.dtype is not None):
            loss = self.loss_of(pixels, labels)
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
        # cuBLAS's workspaces, one for each of the two threads that launch products, are no part of a step's peak.
        square = torch.ones(8, 8, device="cuda", requires_grad=True)
        (square @ square).sum().backward()


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


def peak(step: Step, before: int) -> float:
    """The MiB at the peak of a step, with its parameters and moments, beyond what was there before it was made."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def apart(way: Timed, eager: Timed) -> float:
    """How far the losses of the same steps lie apart, at most; a NaN is infinitely far."""
    differences = [abs(a - b) for a, b in zip(way.losses, eager.losses, strict=True)]
    return max(x if math.isfinite(x) else math.inf for x in differences)


def prepare(data: Data, asked: dict, left: Callable[[], float]) -> list[Timed]:
    """Each way with its first steps. One that fails, computes something else than eager mode, or finds no time is said,
    and left out."""
    precision, batch, steps = asked["precision"], asked["batch"], asked["steps"]
    allowed = precision != "f32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    torch.backends.cudnn.benchmark = True
    torch._dynamo.reset()
    ways: list[Timed] = []
    for way in WAYS:
        if precision not in way.precisions:
            continue
        if ways and left() < way.seconds:
            print(f"{precision}, {way.name}: left out, {left():.0f} s are left", file=sys.stderr)
            continue
        begin, before = time.monotonic(), torch.cuda.memory_allocated()
        try:
            made = Timed(way.name, Step(data, batch, precision, way), steps)
        except Exception as error:
            if not ways:
                raise
            print(f"{precision}, {way.name}: left out, {type(error).__name__}: {error}"[:600], file=sys.stderr)
            continue
        gap = apart(made, ways[0]) if ways else 0.0
        fits = gap <= APART[precision]
        told = f"losses within {gap:.5f} of eager's" if fits else f"left out, losses up to {gap:.5f} from eager's"
        print(f"{precision}, {way.name}: {told}; ready in {time.monotonic() - begin:.1f} s", file=sys.stderr)
        if fits:
            ways.append(made)
        if made is ways[0]:
            made.parts.append(("memory at the peak", peak(made.step, before)))
    if precision == "tf32":
        ways[0].parts += [*kernels(ways[0].step), *optimisers(data)]
        if len(ways) > 1:
            ways[-1].parts = kernels(ways[-1].step)
    return ways


class Partner:
    """What answers the program's lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data: Data | None = None
        self.ways: list[Timed] = []
        self.begin = time.monotonic()

    def left(self) -> float:
        return SECONDS - (time.monotonic() - self.begin)

    def answer(self, line: str) -> str:
        """The ms of a sample to `go 0`, else the ways that will be timed."""
        if line.startswith("go "):
            return f"{self.ways[int(line[3:])].sample():.6f}"
        self.data = self.data or Data(self.folder)
        self.ways = []
        gc.collect()
        torch.cuda.empty_cache()
        self.ways = prepare(self.data, json.loads(line), self.left)
        return json.dumps([{"name": way.name, "losses": way.losses, "parts": way.parts} for way in self.ways])
