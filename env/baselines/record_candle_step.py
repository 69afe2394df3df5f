"""Times GPT-2's training step by candle's autograd with the course's operators on this GPU beside PyTorch, and writes a table.

`python3 -m env.baselines.record_candle_step` has `examples/record_candle_step` time the step at 8 × 1024 and 32 × 1024 tokens, and in each
repetition PyTorch here, eager and compiled, from the same parameters on the same tokens. Gradients are compared with f64 and losses with
PyTorch's before a time counts. candle is built with CUDA where `make setup` has decided so; else with `RUSTFLAGS="--cfg gpulab_cuda"`
in front, and nvcc on the PATH.
"""

from __future__ import annotations

import os

from env.baselines import pages
from env.baselines.recorder import Recorder
from env.console import tool
from env.kernel_cache import candle

RECORDER = Recorder("candle_step", "gpulab-nn", "candle_step_torch", "torch", pages.candle_step)
OPTIONS = {
    "--batches": "texts of 1024 tokens in a step, such as 8,32",
    "--ways": "of PyTorch: eager,compiled",
    "--quick": "few samples",
}

if __name__ == "__main__":
    os.environ.update(candle.flags())
    tool(lambda: RECORDER.main(__doc__, OPTIONS))
