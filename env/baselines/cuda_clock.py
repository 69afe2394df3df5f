"""Time on the GPU, by CUDA's events."""

from __future__ import annotations

from collections.abc import Callable

import torch


def timed(work: Callable[[], object], calls: int) -> float:
    """The ms of a call, the mean of so many."""
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(calls):
        work()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / calls


def step_sample(step: Callable[[], object], least_ms: float) -> float:
    """The ms of a training step, the mean of a sample of so many ms, after some that do not count."""
    for _ in range(2):
        step()
    torch.cuda.synchronize()
    return timed(step, max(2, round(least_ms / timed(step, 2))))


def warmed_up(work: Callable[[], None], calls: int = 3) -> None:
    """Some calls on a stream of their own, as a capture wants them."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(calls):
            work()
    torch.cuda.current_stream().wait_stream(side)
