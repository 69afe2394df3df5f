"""PyTorch's side of `examples/record_training`: the same network, eager, as a CUDA graph, channels last, compiled.

Each way has a process of its own: one that fails takes no other's CUDA context with it. A process uses the GPU only while it is
asked something; all wait for the program's lines in between.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import statistics
import sys
import time
import traceback
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from env.baselines.cuda_clock import timed

SAMPLE_MS = 8.0
WARM_UP_MS = 30.0
SHAPES = [(32, 1, 3, 3), (32,), (64, 32, 3, 3), (64,), (128, 9216), (128,), (10, 128), (10,)]
AUTOCAST = {"bf16": torch.bfloat16, "f16": torch.float16}
# A loss of the first steps may differ from eager's by so much: other kernels add in another order, and round elsewhere.
LOSS_GAP = {"f32": 0.002, "tf32": 0.03, "bf16": 0.06, "f16": 0.06}
# Until a way is ready, until all of a precision are, and for a sample. What was compiled in vain lies in Inductor's cache for the
# next run.
READY_S = 90.0
ALL_READY_S = 120.0
SAMPLE_S = 30.0
COMPILED = ("tf32", "bf16")


@dataclass(frozen=True)
class Way:
    """How PyTorch is asked for the step: a graph of the whole step captured by hand, and arguments of `torch.compile`."""

    name: str
    graph: bool = False
    channels_last: bool = False
    compiled: dict[str, Any] | None = None
    precisions: tuple[str, ...] = ("f32", "tf32", "bf16")


TUNED = {"mode": "max-autotune-no-cudagraphs"}
# GradScaler's scale is read by the host: no graph of an f16 step. Mode reduce-overhead makes graphs of both passes by itself.
WAYS = [
    Way("torch", precisions=("f32", "tf32", "bf16", "f16")),
    Way("torch, graph", graph=True),
    Way("torch, channels_last, graph", True, True),
    Way("torch, channels_last, reduce-overhead", False, True, {"mode": "reduce-overhead"}, COMPILED),
    Way("torch, channels_last, max-autotune, graph", True, True, TUNED, COMPILED),
    Way("torch, max-autotune, graph", True, False, TUNED, COMPILED),
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
        self.loss_of = torch.compile(self.forward, dynamic=False, **way.compiled) if way.compiled else self.forward
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
        """Steps on the stream of the capture come first: there the backward pass is compiled and tuned, by autograd's own thread, and there
        each parameter's gradient is at home. Parameters and moments are put back afterwards."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self.work()
        with torch.cuda.graph(graph, stream=stream):
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


class Timed:
    """A way's step: the losses of its first ones, what is measured beside, and samples."""

    def __init__(self, folder: Path, way: Way, asked: dict[str, Any]) -> None:
        precision = asked["precision"]
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "f32"
        if precision != "f32":
            torch.backends.cudnn.fp32_precision = "tf32"  # what Inductor's own convolutions go by
        torch.backends.cudnn.benchmark = True
        data = Data(folder)
        before = torch.cuda.memory_allocated()
        self.step = Step(data, asked["batch"], precision, way)
        self.losses: list[float] = []
        for _ in range(asked["steps"]):
            self.step()
            self.losses.append(self.step.loss.item())
        eager = not way.graph and not way.compiled
        self.parts = [("memory at the peak", peak(self.step, before))] if eager else []
        few = timed(self.step, 20)
        self.repeats, self.warm_ups = max(5, round(SAMPLE_MS / few)), max(5, round(WARM_UP_MS / few))
        if precision == "tf32" and (eager or way.compiled):
            self.parts += kernels(self.step)
            self.parts += optimisers(data) if eager else []
        torch.cuda.empty_cache()

    def sample(self) -> float:
        """One sample, after steps that do not count: the GPU has worked for another process."""
        timed(self.step, self.warm_ups)
        return timed(self.step, self.repeats)


def loss_gap(losses: list[float], others: list[float]) -> float:
    """How far the losses of the same steps lie apart, at most; a NaN is infinitely far."""
    differences = [abs(a - b) for a, b in zip(losses, others, strict=True)]
    return max(x if math.isfinite(x) else math.inf for x in differences)


def serve(pipe: Connection, folder: Path, way: Way, asked: dict[str, Any]) -> None:
    """A way's own process. It answers the first line with its losses, each further one with a sample; in words where it fails."""
    try:
        pipe.recv()
        made = Timed(folder, way, asked)
        pipe.send({"name": way.name, "losses": made.losses, "parts": made.parts})
        while True:
            pipe.recv()
            pipe.send(made.sample())
    except Exception as error:  # noqa: BLE001 - whatever a compiler or a kernel says
        traceback.print_exc()
        pipe.send(f"{type(error).__name__}: {str(error).strip()}".partition("\n")[0])


class Child:
    """A way in its own process, which has imported PyTorch, and touches the GPU only when it is asked."""

    def __init__(self, folder: Path, way: Way, asked: dict[str, Any]) -> None:
        spawn = multiprocessing.get_context("spawn")
        self.name, self.why = f"{asked['precision']}, {way.name}", ""
        self.pipe, its = spawn.Pipe()
        self.process = spawn.Process(target=serve, args=(its, folder, way, asked), daemon=True)
        self.process.start()
        its.close()

    def ask(self, seconds: float) -> Any:
        """Its answer. None once it has none in that time: it is ended, and `why` is said on stderr."""
        if self.why:
            return None
        try:
            self.pipe.send("go")
            answer = self.pipe.recv() if self.pipe.poll(max(0.0, seconds)) else f"no answer in {seconds:.0f} s"
        except (EOFError, OSError):
            self.process.join(5)
            answer = f"its process ended, with exit code {self.process.exitcode}"
        if isinstance(answer, str):
            self.end(answer)
            return None
        return answer

    def end(self, why: str = "") -> None:
        """Ends the process, which is left out from now on where there is a reason."""
        self.why = why
        if why:
            print(f"{self.name}: left out, {why}", file=sys.stderr)
        self.process.kill()
        self.process.join(5)


class Partner:
    """What answers the program's lines."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ways: list[Child] = []

    def prepare(self, asked: dict[str, Any]) -> list[dict[str, Any]]:
        """The ways that will be timed, made ready one after the other, with losses close to those of the first."""
        for child in self.ways:
            child.end()
        offered = [Child(self.folder, way, asked) for way in WAYS if asked["precision"] in way.precisions]
        end, answers, self.ways = time.monotonic() + ALL_READY_S, [], []
        for child in offered:
            begin = time.monotonic()
            answer = child.ask(min(READY_S, end - begin))
            if answer is None:
                continue
            answers.append(answer)
            first = answers[0]
            gap, took = loss_gap(answer["losses"], first["losses"]), time.monotonic() - begin
            if gap <= LOSS_GAP[asked["precision"]]:
                told = f"losses within {gap:.5f} of those of {first['name']}; ready in {took:.1f} s"
                print(f"{child.name}: {told}", file=sys.stderr)
                self.ways.append(child)
            else:
                child.end(f"losses up to {gap:.5f} from those of {first['name']}")
                answers.pop()
        return answers

    def answer(self, line: str) -> str:
        """The ms of a sample to `go 0`, infinitely many of a way that has failed since; else the ways that will be timed."""
        if not line.startswith("go "):
            return json.dumps(self.prepare(json.loads(line)))
        ms = self.ways[int(line[3:])].ask(SAMPLE_S)
        return f"{math.inf if ms is None else ms:.6f}"
