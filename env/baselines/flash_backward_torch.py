"""PyTorch's backward pass of attention alone, by FlashAttention-2 and by cuDNN, at the sizes of `examples/flash_backward`.

`python3 -m env.baselines.flash_backward_torch` prints a line a size: TFLOP/s of each, five products counted. A time is of
the autograd call, the median of nine samples of two calls by CUDA events; samples of both are taken in turn.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from env.baselines.cuda_clock import timed

SIZES = [(64, 4096, 128), (16, 16384, 128), (128, 4096, 64), (32, 16384, 64)]
BACKENDS = {"FlashAttention-2": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
SAMPLES = 9


def backward(backend: SDPBackend, inputs: list[torch.Tensor], gradient: torch.Tensor, causal: bool) -> Callable:
    """The backward pass alone, behind a forward pass that is done here, once."""
    with sdpa_kernel(backend):
        out = F.scaled_dot_product_attention(*inputs, is_causal=causal)
    return lambda: torch.autograd.grad(out, inputs, gradient, retain_graph=True)


def main() -> None:
    """All sizes, without and with a causal mask."""
    torch.manual_seed(1)
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for heads, length, width in SIZES:
        for causal in (False, True):
            q, k, v, gradient = (
                torch.randn(1, heads, length, width, device="cuda", dtype=torch.bfloat16) for _ in range(4)
            )
            inputs = [x.requires_grad_() for x in (q, k, v)]
            calls = {name: backward(backend, inputs, gradient, causal) for name, backend in BACKENDS.items()}
            operations = 10 * heads * length * length * width * (0.5 if causal else 1)
            samples = {name: [] for name in calls}
            for call in calls.values():
                timed(call, 3)
            for _ in range(SAMPLES):
                for name, call in calls.items():
                    samples[name].append(timed(call, 2))
            rates = {name: operations / statistics.median(ms) / 1e9 for name, ms in samples.items()}
            mask = ", causal" if causal else ""
            print(f"{heads} x {length} x {width}{mask}: " + ", ".join(f"{n} {r:.1f} TFLOP/s" for n, r in rates.items()))


if __name__ == "__main__":
    main()
