"""Times a token of a GPT-2 (124 million parameters, bf16, batch 1) on this GPU beside PyTorch, and writes a table.

`python3 -m env.baselines.record_decode` has `examples/record_decode` time every plan of `gpulab_kernels::engine`, and in each repetition
PyTorch here (eager, and as a CUDA graph), on the same random weights, keys and values. Logits are compared with PyTorch's in
f64 first.
"""

from __future__ import annotations

from env.baselines import pages
from env.baselines.recorder import Recorder
from env.console import tool

RECORDER = Recorder("decode", "gpulab-nn", "decode_torch", "torch", pages.decode)

if __name__ == "__main__":
    tool(lambda: RECORDER.main(__doc__, {"--plans": "these plans alone, such as fused,persistent"}))
